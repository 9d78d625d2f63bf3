//! What of a Chat Completions request is refused because it would pass plugins by.

use super::{
    media::check_medium,
    request::{ChatRequest, Role},
    spelling,
};
use crate::{
    core::error::{Error, Violation},
    json::{self, ValueKind},
    llm::{
        format::FormatRequest,
        guarded_points::GuardedPoints,
        request_view::RequestView as _,
        surface::{
            AUDIO_PART, AllowSwitch, CONVERSATION_RULES, HOSTED, LISTED, RESULT, Row, Rule, STATE,
            STREAM_OPTIONS, Surface, SurfaceTable,
            Treatment::{Refused, Seen},
            UNKNOWN_PART, UNLISTED, UNTYPED_TOOL, Unknown, When, has_only_switches, is_name, unsupported,
        },
        value::{ObjectMembers, kind, string, string_member},
        violation_path::{at, each, within},
    },
};

/// Most answers to a request while plugins judge each of them.
const MAX_GUARDED_CHOICES: u32 = 8;

const SPOKEN: &str = "spoken answers have no text to judge";
const NO_TEXT: &str = "it has no text to judge";
const NO_CONTENT: &str = "`content` must be a string or an array of parts while plugins judge it, is null";

/// The members of a request that not all formats have.
const MEMBERS: &[Row] = &[
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
    ("container", Refused(When::Tools, HOSTED)),
];

/// What it refuses.
pub(super) const TABLE: SurfaceTable =
    SurfaceTable { members: MEMBERS, inner: &[], rules: &[RULES, CONVERSATION_RULES] };

const RULES: &[Rule] = &[
    SPOKEN_ANSWER,
    STREAM_OPTIONS,
    CHOICES,
    HOSTED_TOOL,
    UNTYPED_TOOL,
    AUDIO_ID,
    FILE_ID,
    AUDIO_PART,
    UNKNOWN_PART,
    NULL_MESSAGE,
    NULL_RESULT,
];

const SPOKEN_ANSWER: Rule = Rule {
    what: "`audio` in `modalities`",
    when: When::Answer,
    why: SPOKEN,
    opened_by: AllowSwitch::Entry("audio"),
};

const CHOICES: Rule = Rule {
    what: "`n` above 8",
    when: When::Choices,
    why: "plugins judge each answer",
    opened_by: AllowSwitch::Nothing,
};

const HOSTED_TOOL: Rule = Rule {
    what: "a tool that is no `function` and not `custom`, by its type",
    when: When::Tools,
    why: HOSTED,
    opened_by: AllowSwitch::ItsName,
};

const AUDIO_ID: Rule = Rule {
    what: "`audio` of an earlier answer",
    when: When::Always,
    why: STATE,
    opened_by: AllowSwitch::Entry("audio_id"),
};

const FILE_ID: Rule = Rule {
    what: "`file_id` in a content part",
    when: When::Always,
    why: STATE,
    opened_by: AllowSwitch::Entry("file_id"),
};

const NULL_MESSAGE: Rule = Rule {
    what: "a message whose `content` is `null`",
    when: When::Request,
    why: NO_TEXT,
    opened_by: AllowSwitch::Nothing,
};

const NULL_RESULT: Rule = Rule {
    what: "a tool's result whose `content` is `null`",
    when: When::Results,
    why: NO_TEXT,
    opened_by: AllowSwitch::Nothing,
};

/// Where the data of a medium is.
const MEDIUM_SOURCES: [&str; 4] = ["url", "data", "file_data", "file_url"];

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
    let check = Check { request, surface: Surface { guarded, allowed, table: &TABLE } };
    let checked = spelling::check(request).and_then(|()| check.members()).and_then(|()| check.messages());
    checked.map_err(unsupported)
}

struct Check<'a> {
    request: &'a ChatRequest,
    surface: Surface<'a>,
}

impl Check<'_> {
    fn members(&self) -> Result<(), Violation> {
        self.surface.members(self.request.members())?;
        self.modalities()?;
        self.stream_options()?;
        self.choices()?;
        self.tools()
    }

    fn modalities(&self) -> Result<(), Violation> {
        let mut modalities = json::elements(self.request.member("modalities").unwrap_or_default());
        match modalities.any(|modality| string(modality).is_some_and(|modality| modality == "audio")) {
            true => within("modalities", self.surface.refuse(&SPOKEN_ANSWER)),
            false => Ok(()),
        }
    }

    /// Plugins don't see the options of streams, so these are only switches.
    fn stream_options(&self) -> Result<(), Violation> {
        let options = self.request.member("stream_options").unwrap_or_default();
        match has_only_switches(options) {
            true => Ok(()),
            false => within("stream_options", self.surface.refuse(&STREAM_OPTIONS)),
        }
    }

    fn choices(&self) -> Result<(), Violation> {
        let choices = self.request.choices();
        if choices <= MAX_GUARDED_CHOICES {
            return Ok(());
        }
        self.surface.refuse_always(&CHOICES, || {
            let message = format!(
                "`n` is {choices}, and at most {MAX_GUARDED_CHOICES} while plugins judge each answer"
            );
            Violation::new("/n", message)
        })
    }

    fn tools(&self) -> Result<(), Violation> {
        let tools = json::elements(self.request.member("tools").unwrap_or_default());
        let check = |tool| match string_member(tool, "type").as_deref() {
            Some("function" | "custom") => Ok(()),
            Some(hosted) => within("type", self.surface.refuse_named(&HOSTED_TOOL, hosted)),
            None => self.surface.refuse(&UNTYPED_TOOL),
        };
        within("tools", each(tools, check))
    }

    fn messages(&self) -> Result<(), Violation> {
        let main = self.request.main_message();
        let mut messages = 0..self.request.message_count();
        let checked = messages.try_for_each(|index| at(index, self.message(index, main == Some(index))));
        within("messages", checked)
    }

    fn message(&self, index: usize, is_main: bool) -> Result<(), Violation> {
        let Some(role) = self.request.role(index) else { return Ok(()) };
        let members = ObjectMembers::read(self.request.message_text(index));
        spelling::check_message(role, &members)?;
        if members.get("audio").is_some() {
            within("audio", self.surface.refuse(&AUDIO_ID))?;
        }
        let (unknown, null) = match role {
            Role::Tool | Role::Function => (RESULT, NULL_RESULT),
            _ if is_main || index < self.request.leading() => (UNLISTED, NULL_MESSAGE),
            _ => (LISTED, NULL_MESSAGE),
        };
        if role != Role::Assistant {
            let is_known = |name: &str, value: &str| is_message_member(role, is_main, name, value);
            self.surface.unknown_members(members.iter(), is_known, unknown)?;
        }
        let content = members.get("content");
        if content.is_none() && role != Role::Assistant {
            self.surface.refuse_always(&null, || Violation::new("/content", NO_CONTENT))?;
        }
        let parts = json::elements(content.unwrap_or_default());
        within("content", each(parts, |part| self.part(role, part, unknown)))
    }

    fn part(&self, role: Role, part: &str, unknown: Unknown) -> Result<(), Violation> {
        let members = ObjectMembers::read(part);
        let name = members.get("type").and_then(string).unwrap_or_default();
        let source = members.get(&name).filter(|source| kind(source) == ValueKind::Object);
        let source = ObjectMembers::read(source.unwrap_or_default());
        let has_id = members.get("file_id").or_else(|| source.get("file_id")).is_some();
        if has_id {
            self.surface.refuse(&FILE_ID)?;
        }
        // Plugins see these messages as they are: the model's in `messages`, and a tool's as its result.
        if matches!(role, Role::Assistant | Role::Tool | Role::Function) {
            return Ok(());
        }
        match (name.as_ref(), role) {
            ("text", _) | ("image_url" | "file", Role::User) => {}
            ("input_audio", Role::User) => self.surface.refuse(&AUDIO_PART)?,
            (other, _) => self.surface.refuse_named(&UNKNOWN_PART, other)?,
        }
        // A medium at the provider has nothing else that a server could read in its place.
        let has_source = MEDIUM_SOURCES
            .iter()
            .any(|source_name| members.get(source_name).or_else(|| source.get(source_name)).is_some());
        let is_stored = has_id && !has_source && members.get(&name).and_then(string).is_none();
        if matches!(name.as_ref(), "image_url" | "file" | "input_audio") && !is_stored {
            self.surface.medium(|| check_medium(part), &name)?;
        }
        let is_known = |member: &str, _: &str| member == "type" || member == "file_id" || member == name;
        self.surface.unknown_members(members.iter(), is_known, unknown)?;
        let has_url = source.get("file_url").and_then(string).is_some();
        let is_known = |member: &str, value: &str| is_source_member(&name, has_url, member, value);
        within(&name, self.surface.unknown_members(source.iter(), is_known, unknown))
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

#[cfg(test)]
#[path = "surface_tests.rs"]
mod tests;
