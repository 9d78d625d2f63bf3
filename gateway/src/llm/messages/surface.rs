//! What of a Messages request is refused because it would pass plugins by.

use super::{
    media::check_medium,
    request::{MessagesRequest, Role},
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
            AllowSwitch, CONVERSATION_RULES, HOSTED, LISTED, RESULT, Row, Rule, STATE, Surface, SurfaceTable,
            Treatment::{Refused, Seen, Settings, StoredId},
            UNLISTED, UNSEEN, Unknown, When, has_only_switches, unsupported,
        },
        unit::Unit,
        value::{is_settings, kind, member, object_member, string, string_member},
        violation_path::{at, each, within},
    },
};

/// The members of a request that not all formats have.
const MEMBERS: &[Row] = &[
    ("model", Seen),
    ("messages", Seen),
    ("system", Seen),
    ("tools", Seen),
    ("tool_choice", Seen),
    ("stream", Seen),
    ("metadata", Seen),
    ("stop_sequences", Seen),
    ("output_config", Seen),
    ("output_format", Seen),
    ("max_tokens", Settings),
    ("temperature", Settings),
    ("top_p", Settings),
    ("top_k", Settings),
    ("thinking", Settings),
    ("service_tier", Settings),
    ("inference_geo", Settings),
    ("cache_control", Settings),
    // It takes older content away, which plugins have judged. Instructions for a summary are text.
    ("context_management", Settings),
    ("container", Refused(When::Always, STATE)),
    ("diagnostics", Refused(When::Always, STATE)),
];

/// What names a stored file in a content block.
const STORED: &[Row] = &[("file_id", StoredId)];

/// What it refuses.
pub(super) const TABLE: SurfaceTable = SurfaceTable {
    members: MEMBERS,
    inner: &[("a content block", STORED)],
    rules: &[RULES, CONVERSATION_RULES],
};

const RULES: &[Rule] =
    &[HOSTED_TOOL, UNTYPED_TOOL, CONTAINER_UPLOAD, UNKNOWN_BLOCK, RESULT_ELSEWHERE, RESULT_OF_PROVIDER];

const HOSTED_TOOL: Rule = Rule {
    what: "a tool that the agent doesn't run, by its type with or without the date",
    when: When::Tools,
    why: HOSTED,
    opened_by: AllowSwitch::ItsName,
};

const UNTYPED_TOOL: Rule = Rule {
    what: "a tool without a `type`, and without `name` or `input_schema`",
    when: When::Tools,
    why: "a tool without a `type` has a `name` and an `input_schema`",
    opened_by: AllowSwitch::Entry("tools"),
};

const CONTAINER_UPLOAD: Rule = Rule {
    what: "a `container_upload` block",
    when: When::Always,
    why: STATE,
    opened_by: AllowSwitch::Entry("container_upload"),
};

const UNKNOWN_BLOCK: Rule = Rule {
    what: "an unknown content block, by its type",
    when: When::Request,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

const RESULT_ELSEWHERE: Rule = Rule {
    what: "a `tool_result` in a message of another role",
    when: When::Results,
    why: "results of tools are judged in messages of the role `user` only",
    opened_by: AllowSwitch::Entry("tool_result"),
};

const RESULT_OF_PROVIDER: Rule = Rule {
    what: "a user's block of another type `*_tool_result`",
    when: When::Results,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

/// The tools that an agent runs, although the provider defines them. Their types end with a version.
const AGENT_RUN: [&str; 4] = ["bash", "text_editor", "memory", "computer"];

/// Refuses what would pass plugins by, unless it is in `allowed` (`llm.allow`). Tenants without plugins are only kept
/// apart. Nothing allows a name that some servers take for another.
///
/// # Errors
/// `UNSUPPORTED`, with a violation for the first thing that is refused.
pub(crate) fn check_request(
    request: &MessagesRequest,
    guarded: GuardedPoints,
    allowed: &[String],
) -> Result<(), Error> {
    let check = Check { request, surface: Surface { guarded, allowed, table: &TABLE } };
    let checked = spelling::check(request).and_then(|()| check.members()).and_then(|()| check.messages());
    checked.map_err(unsupported)
}

struct Check<'a> {
    request: &'a MessagesRequest,
    surface: Surface<'a>,
}

impl Check<'_> {
    fn members(&self) -> Result<(), Violation> {
        let members = self.request.members();
        let members = members.filter(|(name, value)| *name != "diagnostics" || names_an_answer(value));
        self.surface.members(members)?;
        self.tools()?;
        let system = self.request.member("system").unwrap_or_default();
        within("system", self.blocks(Role::System, system, UNLISTED))
    }

    fn tools(&self) -> Result<(), Violation> {
        let tools = json::elements(self.request.member("tools").unwrap_or_default());
        within("tools", each(tools, |tool| self.tool(tool)))
    }

    fn tool(&self, tool: &str) -> Result<(), Violation> {
        let type_name = member(tool, "type").map(|name| string(name).unwrap_or_default());
        match type_name.as_deref() {
            Some("custom") => Ok(()),
            Some(name) if is_agent_run(name) || self.surface.allows(name) => Ok(()),
            Some(name) => {
                let name = without_version(name).unwrap_or(name);
                within("type", self.surface.refuse_named(&HOSTED_TOOL, name))
            }
            None if string_member(tool, "name").is_some()
                && object_member(tool, "input_schema").is_some() =>
            {
                Ok(())
            }
            None => self.surface.refuse(&UNTYPED_TOOL),
        }
    }

    fn messages(&self) -> Result<(), Violation> {
        let main = self.request.main_unit().map(Unit::message);
        let mut messages = 0..self.request.message_count();
        let checked = messages.try_for_each(|index| at(index, self.message(index, main == Some(index))));
        within("messages", checked)
    }

    fn message(&self, index: usize, is_main: bool) -> Result<(), Violation> {
        let Some(role) = self.request.role(index) else { return Ok(()) };
        let message = self.request.message_text(index);
        let unknown = if is_main || index < self.request.leading() { UNLISTED } else { LISTED };
        if role != Role::Assistant {
            let is_known = |name: &str, _: &str| matches!(name, "role" | "content");
            self.surface.unknown_members(json::members(message), is_known, unknown)?;
        }
        let content = member(message, "content").unwrap_or_default();
        within("content", self.blocks(role, content, unknown))
    }

    fn blocks(&self, role: Role, content: &str, unknown: Unknown) -> Result<(), Violation> {
        each(json::elements(content), |block| self.block(role, block, unknown))
    }

    fn block(&self, role: Role, block: &str, unknown: Unknown) -> Result<(), Violation> {
        let name = string_member(block, "type").unwrap_or_default();
        self.stored(role, block, &name)?;
        match (name.as_ref(), role) {
            ("tool_result", Role::User) => {
                let is_known = |name: &str, value: &str| match name {
                    "type" | "content" => true,
                    name => name == "tool_use_id" && string(value).is_some(),
                };
                self.surface.unknown_members(json::members(block), is_known, RESULT)
            }
            ("tool_result", _) => self.surface.refuse(&RESULT_ELSEWHERE),
            // Plugins see what the model said as it is, in `messages`.
            (_, Role::Assistant) => Ok(()),
            ("text", _) => {
                let is_known =
                    |name: &str, value: &str| matches!(name, "type" | "text") || is_citing(name, value);
                self.surface.unknown_members(json::members(block), is_known, unknown)
            }
            ("image" | "document", Role::User) => self.medium(block, &name, unknown),
            (other, _) if other.ends_with("_tool_result") => {
                self.surface.refuse_named(&RESULT_OF_PROVIDER, other)
            }
            (other, _) => self.surface.refuse_named(&UNKNOWN_BLOCK, other),
        }
    }

    /// Refuses what is stored at the provider.
    fn stored(&self, role: Role, block: &str, name: &str) -> Result<(), Violation> {
        if name == "container_upload" {
            return self.surface.refuse(&CONTAINER_UPLOAD);
        }
        // Arguments may have any names, and the provider's own results name files for their readers.
        let is_of_call = name.ends_with("tool_use") || name.ends_with("_tool_result");
        if role == Role::Assistant && is_of_call {
            return Ok(());
        }
        self.surface.always_refused("", block, &[STORED])
    }

    fn medium(&self, block: &str, block_type: &str, unknown: Unknown) -> Result<(), Violation> {
        let source = object_member(block, "source").unwrap_or_default();
        let form = string_member(source, "type").unwrap_or_default();
        let is_stored = is_stored(source, &form);
        if !is_stored {
            self.surface.medium(|| check_medium(block), block_type)?;
        }
        // Plugins see the title of a document as the name of a file that they see.
        let is_known = |name: &str, value: &str| match name {
            "type" | "source" => true,
            "title" => block_type == "document" && !is_stored && string(value).is_some(),
            _ => is_citing(name, value),
        };
        self.surface.unknown_members(json::members(block), is_known, unknown)?;
        let is_known = |name: &str, value: &str| is_source_member(&form, name, value);
        within("source", self.surface.unknown_members(json::members(source), is_known, unknown))
    }
}

/// Whether `diagnostics` have an earlier answer that the provider compares with this one. Agents also send them without.
fn names_an_answer(diagnostics: &str) -> bool {
    let is_id = |name: &str, value: &str| name.eq_ignore_ascii_case("previous_message_id") && value != "null";
    kind(diagnostics) != ValueKind::Object
        || !is_settings("diagnostics", diagnostics)
        || json::members(diagnostics).any(|(name, value)| is_id(&name, value))
}

/// Whether a medium is at the provider. It then has nothing else that a server could read in its place.
fn is_stored(source: &str, form: &str) -> bool {
    let has_other = ["data", "url", "content"].iter().any(|name| member(source, name).is_some());
    form == "file" && string_member(source, "file_id").is_some() && !has_other
}

/// Whether plugins see a member of a source of this form, or `llm.allow` has let it pass.
fn is_source_member(form: &str, name: &str, value: &str) -> bool {
    match (form, name) {
        ("content", "content") => true,
        ("text", "media_type") => value == r#""text/plain""#,
        (_, "type") | ("base64", "media_type" | "data") => string(value).is_some(),
        ("text", "data") | ("url", "url") | ("file", "file_id") => string(value).is_some(),
        _ => false,
    }
}

/// Whether a member only turns citations on or off.
fn is_citing(name: &str, value: &str) -> bool {
    name == "citations"
        && match kind(value) {
            ValueKind::Object => has_only_switches(value),
            ValueKind::Array => json::elements(value).next().is_none(),
            _ => false,
        }
}

/// Whether a tool with this type comes back as an ordinary call.
fn is_agent_run(type_name: &str) -> bool {
    without_version(type_name).is_some_and(|name| AGENT_RUN.contains(&name))
}

/// The name of a provider's tool: its type without the date at the end; `None` if there is no date.
fn without_version(type_name: &str) -> Option<&str> {
    let (name, date) = type_name.rsplit_once('_')?;
    (date.len() == 8 && date.bytes().all(|digit| digit.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
#[path = "surface_tests.rs"]
mod tests;
