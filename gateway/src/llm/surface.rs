//! What of a request is refused because it would pass plugins by. One row for each member, part, tool and message
//! member that is known; what is not known is refused if it may carry text.

use std::borrow::Cow;

use super::{
    chat::{ChatRequest, Role, Unit, UnseenMedium, check_medium},
    spelling,
    value::{
        MAX_SETTING_BYTES, is_settings, kind, may_carry_text, member, object_member, string, string_member,
    },
};
use crate::{
    core::error::{Code, Error, Violation},
    json::{
        self, ValueKind,
        pointer::{JsonLocation, child, cut},
    },
};

/// Most answers to a request while plugins judge each of them.
const MAX_GUARDED_CHOICES: u32 = 8;

/// At which points a tenant's plan has steps that can block or change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GuardedPoints {
    /// `before_llm_request`
    pub(crate) request: bool,
    /// `before_tool_call`
    pub(crate) calls: bool,
    /// `after_tool_result`
    pub(crate) results: bool,
    /// `before_response`
    pub(crate) answer: bool,
}

impl GuardedPoints {
    /// Whether something in an answer may be blocked or changed.
    pub(crate) fn has_answers(self) -> bool {
        self.calls || self.answer
    }
}

/// When something is refused.
#[derive(Debug, Clone, Copy)]
enum When {
    /// For every tenant: it keeps tenants apart, or to their models.
    Always,
    /// It passes `before_llm_request` by.
    Request,
    /// It passes `after_tool_result` by, and `before_llm_request` as a part of the result.
    Results,
    /// It passes `before_tool_call` and `after_tool_result` by.
    Tools,
    /// It passes `before_response` by.
    Answer,
}

impl When {
    fn applies(self, guarded: GuardedPoints) -> bool {
        match self {
            When::Always => true,
            When::Request => guarded.request,
            When::Results => guarded.request || guarded.results,
            When::Tools => guarded.calls || guarded.results,
            When::Answer => guarded.answer,
        }
    }
}

/// What is done with something known.
#[derive(Debug, Clone, Copy)]
enum Treatment {
    /// Plugins see it, in a field of their payload or in `extra.request`.
    Seen,
    /// It is refused, unless its value is `null`, `false` or empty. `{}` still turns on what the provider runs.
    Refused(When, &'static str),
}

use Treatment::{Refused, Seen};

const STATE: &str =
    "it names state at the provider that no plugin has seen, and that may be another tenant's";
const HOSTED: &str = "the provider runs it before `before_tool_call` can be asked";
const ELSEWHERE: &str = "another model may answer than the one that was asked for";
const SPOKEN: &str = "spoken answers have no text to judge";
const UNSEEN: &str = "it may carry text that plugins don't see";
const NO_CONTENT: &str = "`content` must be a string or an array of parts while plugins judge it, is null";

/// The members of a request.
const MEMBERS: &[(&str, Treatment)] = &[
    ("model", Seen),
    ("messages", Seen),
    ("tools", Seen),
    ("functions", Seen),
    ("function_call", Seen),
    ("tool_choice", Seen),
    ("prediction", Seen),
    ("response_format", Seen),
    ("logit_bias", Seen),
    ("metadata", Seen),
    ("modalities", Seen),
    ("moderation", Seen),
    ("prompt_cache_key", Seen),
    ("prompt_cache_options", Seen),
    ("safety_identifier", Seen),
    ("stop", Seen),
    ("stream_options", Seen),
    ("user", Seen),
    ("reasoning", Seen),
    ("thinking", Seen),
    ("audio", Refused(When::Answer, SPOKEN)),
    ("web_search_options", Refused(When::Tools, HOSTED)),
    ("plugins", Refused(When::Tools, HOSTED)),
    ("mcp_servers", Refused(When::Tools, HOSTED)),
    ("container", Refused(When::Tools, HOSTED)),
    ("previous_response_id", Refused(When::Always, STATE)),
    ("conversation", Refused(When::Always, STATE)),
    ("thread", Refused(When::Always, STATE)),
    ("background", Refused(When::Answer, "the answer would come where no plugin sees it")),
    ("prompt", Refused(When::Request, "the provider adds a text that no plugin sees")),
    ("fallbacks", Refused(When::Always, ELSEWHERE)),
    ("models", Refused(When::Always, ELSEWHERE)),
    ("cached_content", Refused(When::Always, STATE)),
    ("cachedContent", Refused(When::Always, STATE)),
    (EXTRA_BODY, Refused(When::Always, "some servers put its members in place of the request's")),
];

/// An object that some servers merge into the request.
const EXTRA_BODY: &str = "extra_body";

/// What the name of a model has in it, or at its end, that searches the web before it answers.
const SEARCHING: [&str; 2] = ["-search-preview", "-search-api"];
const SEARCHING_END: &str = ":online";

/// Where the data of a medium is.
const MEDIUM_SOURCES: [&str; 4] = ["url", "data", "file_data", "file_url"];

/// Which unknown members are refused.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    when: When,
    /// Also those that are strings of a setting's length.
    any_string: bool,
}

/// In a message that plugins have in `messages`, as it is. When it is judged on its own, they have its text and media.
const LISTED: Unknown = Unknown { when: When::Request, any_string: false };

/// In a message of which plugins have the text and media alone.
const UNLISTED: Unknown = Unknown { when: When::Request, any_string: true };

/// In the result of a tool.
const RESULT: Unknown = Unknown { when: When::Results, any_string: true };

/// Refuses what would pass plugins by, unless it is in `allowed` (`llm.allow`). Tenants without plugins are only kept
/// apart. Nothing allows a name that some servers take for another.
///
/// # Errors
/// `UNSUPPORTED`, with a violation for the first thing that is refused.
pub(crate) fn check_request(
    request: &ChatRequest,
    guarded: GuardedPoints,
    allowed: &[String],
) -> Result<(), Error> {
    let surface = Surface { guarded, allowed };
    let checked = spelling::check(request)
        .and_then(|()| surface.members(request))
        .and_then(|()| surface.messages(request));
    checked.map_err(unsupported)
}

/// Refuses a model that searches the web by itself. `model` is its name at the provider, which may be another than that
/// in the request.
///
/// # Errors
/// `UNSUPPORTED`.
pub(crate) fn check_model(model: &str, guarded: GuardedPoints, allowed: &[String]) -> Result<(), Error> {
    Surface { guarded, allowed }.model(model).map_err(unsupported)
}

fn unsupported(violation: Violation) -> Error {
    let detail = violation.message.clone();
    Error { violations: vec![violation], ..Error::new(Code::Unsupported, detail) }
}

struct Surface<'a> {
    guarded: GuardedPoints,
    allowed: &'a [String],
}

impl Surface<'_> {
    fn model(&self, model: &str) -> Result<(), Violation> {
        let lower = model.to_ascii_lowercase();
        let searches = SEARCHING.iter().any(|part| lower.contains(part)) || lower.ends_with(SEARCHING_END);
        if !searches || !When::Tools.applies(self.guarded) || self.allows("web_search") {
            return Ok(());
        }
        let message = format!(
            "the model `{}` is refused: it searches the web before `before_tool_call` can be asked; \
             `llm.allow: [web_search]` allows it",
            cut(model)
        );
        Err(Violation::new("/model", message))
    }

    fn members(&self, request: &ChatRequest) -> Result<(), Violation> {
        let root = JsonLocation::Root("");
        for (name, value) in request.members() {
            let pointer = child("", &cut(name));
            let place = JsonLocation::Key(&root, name);
            match MEMBERS.iter().find(|(known, _)| *known == name) {
                Some((_, Seen)) => {}
                Some((_, Refused(when, why))) if !is_off(*when, value) => {
                    self.refuse(*when, name, &pointer, why)?;
                }
                Some((_, Refused(..))) => {}
                // Plugins have settings in `extra.request`.
                None if is_settings(name, value) => {}
                None => self.refuse(When::Request, name, &pointer, UNSEEN)?,
            }
            if !MEMBERS.iter().any(|(known, _)| *known == name && *known != EXTRA_BODY) {
                self.always_refused(name, value, &place)?;
            }
        }
        self.modalities(request)?;
        self.stream_options(request)?;
        self.choices(request)?;
        self.tools(request)
    }

    /// Refuses what is refused for every tenant also where it hides in an unknown member. Depth is bounded by the scan.
    fn always_refused(&self, name: &str, value: &str, place: &JsonLocation<'_>) -> Result<(), Violation> {
        let mut rows = MEMBERS.iter().filter_map(|(known, treatment)| match treatment {
            Refused(When::Always, why) => Some((*known, *why)),
            _ => None,
        });
        let row = rows.find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((known, why)) =
            row.filter(|(known, _)| !self.allows(known) && !is_off(When::Always, value))
        {
            self.refuse(When::Always, known, &place.pointer(), why)?;
        }
        match kind(value) {
            ValueKind::Object => json::members(value).try_for_each(|(name, value)| {
                self.always_refused(&name, value, &JsonLocation::Key(place, &name))
            }),
            ValueKind::Array => json::elements(value).enumerate().try_for_each(|(index, value)| {
                self.always_refused("", value, &JsonLocation::Index(place, index))
            }),
            _ => Ok(()),
        }
    }

    fn modalities(&self, request: &ChatRequest) -> Result<(), Violation> {
        let mut modalities = json::elements(request.member("modalities").unwrap_or_default());
        match modalities.any(|modality| string(modality).is_some_and(|modality| modality == "audio")) {
            true => self.refuse(When::Answer, "audio", "/modalities", SPOKEN),
            false => Ok(()),
        }
    }

    /// Plugins don't see the options of streams, so these are only switches.
    fn stream_options(&self, request: &ChatRequest) -> Result<(), Violation> {
        let options = request.member("stream_options").unwrap_or_default();
        let is_switch = |(name, value): (Cow<'_, str>, &str)| {
            name.len() <= MAX_SETTING_BYTES && matches!(kind(value), ValueKind::Boolean | ValueKind::Null)
        };
        match json::members(options).all(is_switch) {
            true => Ok(()),
            false => self.refuse(When::Request, "stream_options", "/stream_options", UNSEEN),
        }
    }

    fn choices(&self, request: &ChatRequest) -> Result<(), Violation> {
        if request.choices() > MAX_GUARDED_CHOICES && self.guarded.has_answers() {
            let message = format!(
                "`n` is {}, and at most {MAX_GUARDED_CHOICES} while plugins judge each answer",
                request.choices()
            );
            return Err(Violation::new("/n", message));
        }
        Ok(())
    }

    fn tools(&self, request: &ChatRequest) -> Result<(), Violation> {
        for (index, tool) in json::elements(request.member("tools").unwrap_or_default()).enumerate() {
            match string_member(tool, "type").as_deref() {
                Some("function" | "custom") => {}
                Some(hosted) => {
                    self.refuse(When::Tools, hosted, &format!("/tools/{index}/type"), HOSTED)?;
                }
                None => {
                    let pointer = format!("/tools/{index}");
                    self.refuse(When::Tools, "tools", &pointer, "a tool without a `type` is not known here")?;
                }
            }
        }
        Ok(())
    }

    fn messages(&self, request: &ChatRequest) -> Result<(), Violation> {
        let main = request.main_unit().map(Unit::message);
        for index in 0..request.message_count() {
            let Some(role) = request.role(index) else { continue };
            let message = request.message_text(index);
            let pointer = format!("/messages/{index}");
            if member(message, "audio").is_some() {
                self.refuse(When::Always, "audio_id", &child(&pointer, "audio"), STATE)?;
            }
            let is_main = main == Some(index);
            let unknown = match role {
                Role::Tool | Role::Function => RESULT,
                _ if is_main || index < request.leading() => UNLISTED,
                _ => LISTED,
            };
            if role != Role::Assistant {
                let is_known = |name: &str, value: &str| is_message_member(role, is_main, name, value);
                self.unknown_members(message, is_known, unknown, &pointer)?;
            }
            let content = member(message, "content");
            if content.is_none() && role != Role::Assistant && unknown.when.applies(self.guarded) {
                return Err(Violation::new(child(&pointer, "content"), NO_CONTENT));
            }
            let content = content.unwrap_or_default();
            self.parts(role, content, unknown, &child(&pointer, "content"))?;
        }
        Ok(())
    }

    fn parts(&self, role: Role, content: &str, unknown: Unknown, pointer: &str) -> Result<(), Violation> {
        for (index, part) in json::elements(content).enumerate() {
            let pointer = format!("{pointer}/{index}");
            let name = string_member(part, "type").unwrap_or_default();
            let source = object_member(part, &name).unwrap_or_default();
            let has_id = member(part, "file_id").or_else(|| member(source, "file_id")).is_some();
            if has_id {
                self.refuse(When::Always, "file_id", &pointer, STATE)?;
            }
            // Plugins see these messages as they are: the model's in `messages`, and a tool's as its result.
            if matches!(role, Role::Assistant | Role::Tool | Role::Function) {
                continue;
            }
            match (name.as_ref(), role) {
                ("text", _) | ("image_url" | "file", Role::User) => {}
                ("input_audio", Role::User) => {
                    self.refuse(When::Request, "audio", &pointer, "plugins have no text of it to judge")?;
                }
                (other, _) => self.refuse(When::Request, other, &pointer, UNSEEN)?,
            }
            // A medium at the provider has nothing else that a server could read in its place.
            let has_source = MEDIUM_SOURCES.iter().any(|source_name| {
                member(part, source_name).or_else(|| member(source, source_name)).is_some()
            });
            let is_stored = has_id && !has_source && member(part, &name).and_then(string).is_none();
            if matches!(name.as_ref(), "image_url" | "file" | "input_audio") && !is_stored {
                self.medium(part, &name, &pointer)?;
            }
            let is_known = |member: &str, _: &str| member == "type" || member == "file_id" || member == name;
            self.unknown_members(part, is_known, unknown, &pointer)?;
            let has_url = string_member(source, "file_url").is_some();
            let is_known = |member: &str, value: &str| is_source_member(&name, has_url, member, value);
            self.unknown_members(source, is_known, unknown, &child(&pointer, &name))?;
        }
        Ok(())
    }

    fn medium(&self, part: &str, name: &str, pointer: &str) -> Result<(), Violation> {
        // To check the data takes time, so it is done only where it can matter.
        if !When::Request.applies(self.guarded) {
            return Ok(());
        }
        let why = match check_medium(part) {
            Ok(()) => return Ok(()),
            Err(UnseenMedium::NotBase64) => {
                "its data is not base64, so that plugins can't see what the model sees"
            }
            Err(UnseenMedium::NoSource) => "it has no data and no URL where plugins could see it",
        };
        self.refuse(When::Request, name, pointer, why)
    }

    /// Refuses members that are more than settings.
    fn unknown_members(
        &self,
        object: &str,
        is_known: impl Fn(&str, &str) -> bool,
        unknown: Unknown,
        pointer: &str,
    ) -> Result<(), Violation> {
        for (name, value) in json::members(object) {
            // A mark for the provider's cache is an object of settings.
            let is_mark = name == "cache_control" && value.len() <= MAX_SETTING_BYTES;
            let is_text = may_carry_text(&name, value) || (unknown.any_string && string(value).is_some());
            if is_text && !is_mark && !is_known(&name, value) {
                self.refuse(unknown.when, &name, &child(pointer, &cut(&name)), UNSEEN)?;
            }
        }
        Ok(())
    }

    fn allows(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == name)
    }

    fn refuse(&self, when: When, name: &str, pointer: &str, why: &str) -> Result<(), Violation> {
        if !when.applies(self.guarded) || self.allows(name) {
            return Ok(());
        }
        let name = cut(name);
        let message = format!("`{name}` is refused: {why}; `llm.allow: [{name}]` allows it");
        Err(Violation::new(pointer, message))
    }
}

/// Whether plugins see a member of a message that isn't the model's. They don't judge the names of users and tools as
/// text, so these must look like names.
fn is_message_member(role: Role, is_main: bool, member: &str, value: &str) -> bool {
    match (member, role) {
        ("role" | "content", _) | ("tool_call_id", Role::Tool) | ("name", Role::Function) => true,
        ("name", Role::User) if is_main => string(value).is_some_and(|name| is_name(&name, "_-")),
        ("name", Role::Tool) => string(value).is_some_and(|name| is_name(&name, "_-.:/")),
        _ => false,
    }
}

/// Whether plugins see a member of an image, a file or audio, or it is a setting that looks like a name. If a file has a
/// URL (`has_url`), they don't see its data.
fn is_source_member(part_type: &str, has_url: bool, member: &str, value: &str) -> bool {
    let Some(text) = string(value) else { return false };
    match (part_type, member) {
        ("image_url", "detail") => is_name(&text, "_-"),
        ("image_url", "url") | ("input_audio", "data" | "format") | ("file", "filename" | "file_id") => true,
        ("file", "file_url") => has_url,
        ("file", "file_data") => !has_url,
        ("text" | "image_url" | "input_audio" | "file", _) => false,
        // A part that `llm.allow` lets pass.
        (_, member) => matches!(member, "url" | "data" | "file_data" | "filename" | "file_id"),
    }
}

/// Whether a text has the form of a name: letters and digits of ASCII, and `others`.
fn is_name(text: &str, others: &str) -> bool {
    (1..=MAX_SETTING_BYTES).contains(&text.len())
        && text.chars().all(|each| each.is_ascii_alphanumeric() || others.contains(each))
}

/// Whether a value asks for nothing of what is refused at `when`.
fn is_off(when: When, value: &str) -> bool {
    match kind(value) {
        ValueKind::Null => true,
        ValueKind::Boolean => value == "false",
        ValueKind::Array => json::elements(value).next().is_none(),
        ValueKind::String => value == "\"\"",
        ValueKind::Object => json::members(value).next().is_none() && !matches!(when, When::Tools),
        ValueKind::Number => false,
    }
}

#[cfg(test)]
#[path = "surface_tests.rs"]
mod tests;
