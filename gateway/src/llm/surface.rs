//! What of a request is refused because it would pass plugins by: what the formats share. Each format has its own rows,
//! one for each member, part and tool that is known; what is not known is refused if it may carry text. A format's
//! [`SurfaceTable`] has all of them, and [`super::explain`] shows it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    guarded_points::GuardedPoints,
    spelling::SPELLING,
    value::{MAX_SETTING_BYTES, is_settings, kind, may_carry_text, string},
    violation_path::{each, within},
};
use crate::{
    core::{
        error::{Code, Error, Violation},
        point::Point,
    },
    json::{self, ValueKind, pointer::cut},
};

/// Why plugins don't see the medium of a content part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnseenMedium {
    /// It has no data and no URL where they belong, or the URL is that of a file on the provider's machine.
    NoSource,
    /// Its data isn't base64. The model's server may decode it in another way than the gateway.
    NotBase64,
}

/// When something is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
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
    /// It has plugins asked more often than they should be, at `before_tool_call` or `before_response`.
    Choices,
}

impl When {
    /// The points, at any of which a step must be able to block or change. None is every tenant.
    pub(super) fn points(self) -> &'static [Point] {
        match self {
            When::Always => &[],
            When::Request => &[Point::BeforeLlmRequest],
            When::Results => &[Point::BeforeLlmRequest, Point::AfterToolResult],
            When::Tools => &[Point::BeforeToolCall, Point::AfterToolResult],
            When::Answer => &[Point::BeforeResponse],
            When::Choices => &[Point::BeforeToolCall, Point::BeforeResponse],
        }
    }

    pub(super) fn applies(self, guarded: GuardedPoints) -> bool {
        matches!(self, When::Always) || self.points().iter().any(|point| guarded.has(*point))
    }
}

/// What is done with something known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Treatment {
    /// Plugins see it, in a field of their payload or in `extra.request`.
    Seen,
    /// It passes while it has only settings. Plugins have them in `extra.request`.
    Settings,
    /// It is refused, unless its value is `null`, `false` or empty. `{}` still turns on what the provider runs.
    Refused(When, &'static str),
    /// It names what the provider keeps, so it is refused for every tenant. An object is no id, but a schema or a part that has one.
    StoredId,
}

use Treatment::{Refused, Seen, Settings, StoredId};

/// A name that the surface knows, and how it treats it.
pub(super) type Row = (&'static str, Treatment);

/// Something that is refused by more than the name of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// What it refuses, for operators.
    pub(super) what: &'static str,
    pub(super) when: When,
    pub(super) why: &'static str,
    pub(super) opened_by: AllowSwitch,
}

/// What lets something pass that is refused by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowSwitch<E = &'static str> {
    /// This entry of `llm.allow`.
    Entry(E),
    /// Its own name in `llm.allow`.
    ItsName,
    Nothing,
}

impl AllowSwitch {
    pub(super) fn to_report(self) -> AllowSwitch<String> {
        match self {
            AllowSwitch::Entry(entry) => AllowSwitch::Entry(entry.to_owned()),
            AllowSwitch::ItsName => AllowSwitch::ItsName,
            AllowSwitch::Nothing => AllowSwitch::Nothing,
        }
    }
}

/// Everything that a format refuses beside what all of them do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SurfaceTable {
    /// The members of a request.
    pub(super) members: &'static [Row],
    /// Members of other objects: of which, and their rows.
    pub(super) inner: &'static [(&'static str, &'static [Row])],
    /// What the format's code refuses.
    pub(super) rules: &'static [&'static [Rule]],
}

impl SurfaceTable {
    /// What all formats refuse.
    pub(super) const SHARED: SurfaceTable =
        SurfaceTable { members: SHARED, inner: &[], rules: &[SHARED_RULES] };

    /// Whether a rule is in it, or in what all formats refuse.
    fn has(&self, rule: &Rule) -> bool {
        self.rules.iter().any(|rules| rules.contains(rule)) || SHARED_RULES.contains(rule)
    }
}

pub(super) const STATE: &str =
    "it names state at the provider that no plugin has seen, and that may be another tenant's";
pub(super) const HOSTED: &str = "the provider runs it before `before_tool_call` can be asked";
pub(super) const UNSEEN: &str = "it may carry text that plugins don't see";
const ELSEWHERE: &str = "another model may answer than the one that was asked for";

/// The members of requests that some servers take in every format that they speak.
const SHARED: &[Row] = &[
    ("web_search_options", Refused(When::Tools, HOSTED)),
    ("plugins", Refused(When::Tools, HOSTED)),
    ("mcp_servers", Refused(When::Tools, HOSTED)),
    // Baidu, Alibaba, xAI, Tencent: some are only switches.
    ("web_search", Refused(When::Tools, HOSTED)),
    ("enable_search", Refused(When::Tools, HOSTED)),
    ("search_options", Refused(When::Tools, HOSTED)),
    ("enable_code_interpreter", Refused(When::Tools, HOSTED)),
    ("search_parameters", Refused(When::Tools, HOSTED)),
    ("enable_enhancement", Refused(When::Tools, HOSTED)),
    ("force_search_enhancement", Refused(When::Tools, HOSTED)),
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

/// What the code of all formats refuses.
const SHARED_RULES: &[Rule] = &[SPELLING, UNKNOWN_MEMBER, SEARCHING_MODEL, COMPOUND_MODEL];

const UNKNOWN_MEMBER: Rule = Rule {
    what: "an unknown member or a setting that is longer than settings are",
    when: When::Request,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

const SEARCHING_MODEL: Rule = Rule {
    what: "a model named `*-search-preview*`, `*-search-api*`, `*sonar*` or `*:online`",
    when: When::Tools,
    why: "it searches the web before `before_tool_call` can be asked",
    opened_by: AllowSwitch::Entry(WEB_SEARCH),
};

const COMPOUND_MODEL: Rule = Rule {
    what: "a model named `*groq/compound*` or `compound-beta*`",
    when: When::Tools,
    why: "it searches the web and runs code before `before_tool_call` can be asked",
    opened_by: AllowSwitch::Entry(COMPOUND),
};

/// What the code of all formats with a conversation refuses.
pub(super) const CONVERSATION_RULES: &[Rule] =
    &[UNKNOWN_IN_MESSAGE, UNKNOWN_IN_RESULT, NO_SOURCE, NOT_BASE64];

const UNKNOWN_IN_MESSAGE: Rule = Rule {
    what: "an unknown member of a message that may carry text",
    when: When::Request,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

const UNKNOWN_IN_RESULT: Rule = Rule {
    what: "an unknown member of a tool's result that may carry text",
    when: When::Results,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

const NO_SOURCE: Rule = Rule {
    what: "a medium in an unknown form, by the type of its part",
    when: When::Request,
    why: "it has no data and no URL where plugins could see it",
    opened_by: AllowSwitch::ItsName,
};

const NOT_BASE64: Rule = Rule {
    what: "a medium that is not base64, by the type of its part",
    when: When::Request,
    why: "its data is not base64, so that plugins can't see what the model sees",
    opened_by: AllowSwitch::ItsName,
};

// Rules of Chat Completions and Responses.

pub(super) const STREAM_OPTIONS: Rule = Rule {
    what: "`stream_options` with more than switches",
    when: When::Request,
    why: UNSEEN,
    opened_by: AllowSwitch::Entry("stream_options"),
};

pub(super) const UNTYPED_TOOL: Rule = Rule {
    what: "a tool without a `type`",
    when: When::Tools,
    why: "a tool without a `type` is not known here",
    opened_by: AllowSwitch::Entry("tools"),
};

pub(super) const AUDIO_PART: Rule = Rule {
    what: "audio from the user",
    when: When::Request,
    why: "plugins have no text of it to judge",
    opened_by: AllowSwitch::Entry("audio"),
};

pub(super) const UNKNOWN_PART: Rule = Rule {
    what: "an unknown content part, by its type",
    when: When::Request,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

/// An object that some servers merge into the request.
const EXTRA_BODY: &str = "extra_body";

/// What the name of a model has in it, or at its end, that searches the web before it answers.
const SEARCHING: [&str; 3] = ["-search-preview", "-search-api", "sonar"];
const SEARCHING_END: &str = ":online";
const WEB_SEARCH: &str = "web_search";
const COMPOUND: &str = "compound";

/// Which unknown members are refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unknown {
    pub(super) rule: &'static Rule,
    /// Also those that are strings of a setting's length.
    pub(super) any_string: bool,
}

/// In a message that plugins have in `messages`, as it is. When it is judged on its own, they have its text and media.
pub(super) const LISTED: Unknown = Unknown { rule: &UNKNOWN_IN_MESSAGE, any_string: false };

/// In a message of which plugins have the text and media alone.
pub(super) const UNLISTED: Unknown = Unknown { rule: &UNKNOWN_IN_MESSAGE, any_string: true };

/// In the result of a tool.
pub(super) const RESULT: Unknown = Unknown { rule: &UNKNOWN_IN_RESULT, any_string: true };

/// Refuses a model that runs tools by itself. `model` is its name at the provider, which may be another than that in the request.
///
/// # Errors
/// `UNSUPPORTED`.
pub(crate) fn check_model(model: &str, guarded: GuardedPoints, allowed: &[String]) -> Result<(), Error> {
    let lower = model.to_ascii_lowercase();
    let searches = SEARCHING.iter().any(|part| lower.contains(part)) || lower.ends_with(SEARCHING_END);
    let is_compound = lower.contains("groq/compound") || lower.starts_with("compound-beta");
    for (is_one, Rule { when, why, .. }, entry) in
        [(searches, SEARCHING_MODEL, WEB_SEARCH), (is_compound, COMPOUND_MODEL, COMPOUND)]
    {
        if is_one && when.applies(guarded) && !is_allowed(allowed, entry) {
            let remedy = remedy(when, entry);
            let message = format!("the model `{}` is refused: {why}; {remedy}", cut(model));
            return Err(unsupported(Violation::new("/model", message)));
        }
    }
    Ok(())
}

/// Whether `llm.allow` has a name.
pub(super) fn is_allowed(allowed: &[String], name: &str) -> bool {
    allowed.iter().any(|allowed| allowed == name)
}

pub(super) fn unsupported(violation: Violation) -> Error {
    let detail = violation.message.clone();
    Error { violations: vec![violation], ..Error::new(Code::Unsupported, detail) }
}

/// What a tenant's plan guards, and what the operator allows all the same (`llm.allow`). Tenants without plugins are only
/// kept apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surface<'a> {
    pub(super) guarded: GuardedPoints,
    pub(super) allowed: &'a [String],
    /// What the request's format refuses.
    pub(super) table: &'static SurfaceTable,
}

impl Surface<'_> {
    /// Checks the members of a request.
    pub(super) fn members<'r>(
        self,
        members: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Result<(), Violation> {
        let rows = [self.table.members, SHARED];
        for (name, value) in members {
            let row = rows.into_iter().flatten().find(|(known, _)| *known == name);
            let checked = match row.map_or(Settings, |(_, treatment)| *treatment) {
                Seen => Ok(()),
                Refused(when, _) if is_off(when, value) => Ok(()),
                Refused(When::Tools, why) => {
                    self.refuse_at(When::Tools, name, why).and_then(|()| self.setting(name, value))
                }
                Refused(when, why) => self.refuse_at(when, name, why),
                StoredId => self.always_refused(name, value, &rows),
                Settings => self.setting(name, value),
            };
            within(name, checked)?;
            // Where tools aren't judged, their rows say nothing of a member.
            let is_unknown = row.is_none_or(|(_, treatment)| matches!(treatment, Refused(When::Tools, _)));
            if is_unknown || name == EXTRA_BODY {
                within(name, self.always_refused(name, value, &rows))?;
            }
        }
        Ok(())
    }

    /// Refuses what is longer than settings are.
    fn setting(self, name: &str, value: &str) -> Result<(), Violation> {
        if is_settings(name, value) { Ok(()) } else { self.refuse_named(&UNKNOWN_MEMBER, name) }
    }

    /// Refuses what `rows` refuse for every tenant, as the member `name` or anywhere in its value. Depth is bounded by the
    /// scan.
    pub(super) fn always_refused(self, name: &str, value: &str, rows: &[&[Row]]) -> Result<(), Violation> {
        let mut always = rows.iter().copied().flatten().filter_map(|(known, treatment)| match treatment {
            Refused(When::Always, why) => Some((*known, *why)),
            StoredId if kind(value) != ValueKind::Object => Some((*known, STATE)),
            _ => None,
        });
        let row = always.find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((known, why)) = row.filter(|_| !is_off(When::Always, value)) {
            self.refuse_at(When::Always, known, why)?;
        }
        match kind(value) {
            ValueKind::Object => json::members(value)
                .try_for_each(|(name, value)| within(&name, self.always_refused(&name, value, rows))),
            ValueKind::Array => each(json::elements(value), |value| self.always_refused("", value, rows)),
            _ => Ok(()),
        }
    }

    /// Refuses members of an object that are more than settings.
    pub(super) fn unknown_members<'r>(
        self,
        members: impl Iterator<Item = (impl AsRef<str>, &'r str)>,
        is_known: impl Fn(&str, &str) -> bool,
        unknown: Unknown,
    ) -> Result<(), Violation> {
        for (name, value) in members {
            let name = name.as_ref();
            // A mark for the provider's cache is an object of settings.
            let is_mark = name == "cache_control" && value.len() <= MAX_SETTING_BYTES;
            let is_text = may_carry_text(name, value) || (unknown.any_string && string(value).is_some());
            if is_text && !is_mark && !is_known(name, value) {
                within(name, self.refuse_named(unknown.rule, name))?;
            }
        }
        Ok(())
    }

    /// Refuses a medium that plugins don't see. To check its data takes time, so that is done only where it can matter.
    pub(super) fn medium(
        self,
        check: impl FnOnce() -> Result<(), UnseenMedium>,
        name: &str,
    ) -> Result<(), Violation> {
        if !When::Request.applies(self.guarded) {
            return Ok(());
        }
        match check() {
            Ok(()) => Ok(()),
            Err(UnseenMedium::NotBase64) => self.refuse_named(&NOT_BASE64, name),
            Err(UnseenMedium::NoSource) => self.refuse_named(&NO_SOURCE, name),
        }
    }

    pub(super) fn allows(self, name: &str) -> bool {
        is_allowed(self.allowed, name)
    }

    /// Refuses what `rule` is about, unless the entry that opens it is allowed.
    pub(super) fn refuse(self, rule: &Rule) -> Result<(), Violation> {
        match rule.opened_by {
            AllowSwitch::Entry(entry) => self.refuse_named(rule, entry),
            AllowSwitch::ItsName | AllowSwitch::Nothing => unreachable!("no entry opens {rule:?}"),
        }
    }

    /// Refuses what `rule` is about and has this name, unless the name is allowed.
    pub(super) fn refuse_named(self, rule: &Rule, name: &str) -> Result<(), Violation> {
        debug_assert!(self.table.has(rule), "operators read of every rule: {rule:?}");
        self.refuse_at(rule.when, name, rule.why)
    }

    /// The refusal that nothing opens, if `rule` applies.
    pub(super) fn refuse_always(
        self,
        rule: &Rule,
        violation: impl FnOnce() -> Violation,
    ) -> Result<(), Violation> {
        debug_assert!(self.table.has(rule), "operators read of every rule: {rule:?}");
        if rule.when.applies(self.guarded) { Err(violation()) } else { Ok(()) }
    }

    fn refuse_at(self, when: When, name: &str, why: &str) -> Result<(), Violation> {
        if !when.applies(self.guarded) || self.allows(name) {
            return Ok(());
        }
        let message = format!("`{}` is refused: {why}; {}", cut(name), remedy(when, name));
        Err(Violation::new("", message))
    }
}

/// What to do about a refusal. It doesn't name `llm.allow` where that would open one tenant's state to another or let the provider
/// replace the model, nor where the client gains nothing by it.
fn remedy(when: When, name: &str) -> Cow<'static, str> {
    match (when, name) {
        (_, "previous_response_id" | "conversation" | "thread" | "item_reference") => {
            "send the whole conversation instead".into()
        }
        // The gateway serves no path where the answer could be fetched.
        (When::Always, _) | (_, "background") => "leave it out".into(),
        _ => format!("`llm.allow: [{}]` allows it for all tenants", cut(name)).into(),
    }
}

/// Whether a text has the form of a name: letters and digits of ASCII, and `others`.
pub(super) fn is_name(text: &str, others: &str) -> bool {
    (1..=MAX_SETTING_BYTES).contains(&text.len())
        && text.chars().all(|each| each.is_ascii_alphanumeric() || others.contains(each))
}

/// Whether all members of an object only turn something on or off.
pub(super) fn has_only_switches(object: &str) -> bool {
    json::members(object).all(|(name, value)| {
        name.len() <= MAX_SETTING_BYTES && matches!(kind(value), ValueKind::Boolean | ValueKind::Null)
    })
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
