//! What of a Responses request is refused because it would pass plugins by.

use super::{
    items::{CallForm, ItemKind},
    marks::MARK,
    media::{check_medium, has_source, sources},
    request::{ResponsesRequest, Role},
    spelling,
    surface_rules::{
        COMPACTION, COMPUTER, COMPUTER_TOOL, CONTAINER_ID, HOSTED_TOOL, INCLUDE, REFERENCE, RESULT_IN_CALL,
        SHELL, STORED, TABLE, UNKNOWN_ITEM,
    },
};
use crate::{
    core::error::{Error, Violation},
    json::{self, ValueKind},
    llm::{
        format::FormatRequest as _,
        guarded_points::GuardedPoints,
        request_view::RequestView as _,
        surface::{
            AUDIO_PART, LISTED, RESULT, STREAM_OPTIONS, Surface, UNKNOWN_PART, UNLISTED, UNTYPED_TOOL,
            Unknown, has_only_switches, is_name, unsupported,
        },
        unit::Unit,
        value::{MAX_SETTING_BYTES, is_text, kind, member, object_member, string, string_member},
        violation_path::{at, each, within},
    },
};

/// The items of what the provider runs, and the tools that they are of.
const HOSTED_ITEMS: &[(&str, &str)] = &[
    ("web_search_call", "web_search"),
    ("file_search_call", "file_search"),
    ("code_interpreter_call", "code_interpreter"),
    ("image_generation_call", "image_generation"),
    ("mcp_call", "mcp"),
    ("mcp_list_tools", "mcp"),
    ("mcp_approval_request", "mcp"),
    ("mcp_approval_response", "mcp"),
    ("tool_search_call", "tool_search"),
    ("tool_search_output", "tool_search"),
    ("program", "programmatic_tool_calling"),
    ("program_output", "programmatic_tool_calling"),
    ("computer_call", COMPUTER),
    ("computer_call_output", COMPUTER),
];

/// What Codex notes about an item: the turn's id, a time, and the kinds of its parts.
const NOTES: &str = "internal_chat_message_metadata_passthrough";

/// Members of the agent's tools whose value is a JSON schema, which may have members with any name.
const SCHEMAS: &[&str] = &["parameters"];

/// Longest object of names, in bytes.
const MAX_NAMES_BYTES: usize = 512;

/// Refuses what would pass plugins by, unless it is in `allowed` (`llm.allow`). Tenants without plugins are only kept
/// apart. Nothing allows a name that some servers take for another.
///
/// # Errors
/// `UNSUPPORTED`, with a violation for the first thing that is refused.
pub(crate) fn check_request(
    request: &ResponsesRequest,
    guarded: GuardedPoints,
    allowed: &[String],
) -> Result<(), Error> {
    let check = Check { request, surface: Surface { guarded, allowed, table: &TABLE } };
    let checked = spelling::check(request).and_then(|()| check.members()).and_then(|()| check.items());
    checked.map_err(unsupported)
}

struct Check<'a> {
    request: &'a ResponsesRequest,
    surface: Surface<'a>,
}

impl Check<'_> {
    fn members(&self) -> Result<(), Violation> {
        self.surface.members(self.request.members())?;
        self.include()?;
        self.stream_options()?;
        self.stored_in_members()?;
        within("tools", self.tools(self.request.member("tools").unwrap_or_default()))
    }

    /// Refuses what the provider keeps, in what is neither an item nor a tool. The client's notes and the schema of the answer
    /// may have members with any name.
    fn stored_in_members(&self) -> Result<(), Violation> {
        for (name, value) in self.request.members() {
            let checked = match name {
                "input" | "tools" | "metadata" | "client_metadata" => Ok(()),
                "text" => self.stored_in_text(value),
                _ => self.surface.always_refused(name, value, &[STORED]),
            };
            within(name, checked)?;
        }
        Ok(())
    }

    fn stored_in_text(&self, text: &str) -> Result<(), Violation> {
        self.stored_but_in(&["format"], text)?;
        let format = object_member(text, "format").unwrap_or_default();
        within("format", self.stored_but_in(&["schema"], format))
    }

    /// What the answer is to have is a list of names.
    fn include(&self) -> Result<(), Violation> {
        let include = self.request.member("include").unwrap_or("[]");
        let is_list = kind(include) == ValueKind::Array;
        match is_list && json::elements(include).all(|name| kind(name) == ValueKind::String) {
            true => Ok(()),
            false => within("include", self.surface.refuse(&INCLUDE)),
        }
    }

    /// Plugins don't see the options of streams, so these are only switches.
    fn stream_options(&self) -> Result<(), Violation> {
        let options = self.request.member("stream_options").unwrap_or("{}");
        match kind(options) == ValueKind::Object && has_only_switches(options) {
            true => Ok(()),
            false => within("stream_options", self.surface.refuse(&STREAM_OPTIONS)),
        }
    }

    fn tools(&self, tools: &str) -> Result<(), Violation> {
        each(json::elements(tools), |tool| self.tool(tool))
    }

    fn tool(&self, tool: &str) -> Result<(), Violation> {
        let is_clients = || string_member(tool, "execution").is_some_and(|execution| execution == "client");
        match string_member(tool, "type").as_deref() {
            Some("function" | "custom" | "local_shell" | "apply_patch") => self.stored_but_in(SCHEMAS, tool),
            // The agent itself looks for the tools.
            Some("tool_search") if is_clients() => self.stored_but_in(SCHEMAS, tool),
            Some("namespace") => {
                self.stored_but_in(&["tools"], tool)?;
                within("tools", self.inner_tools(tool))
            }
            Some("shell") => self.shell(tool),
            Some(hosted) => {
                self.stored_for_tool(tool)?;
                within("type", self.hosted(hosted))
            }
            None => self.surface.refuse(&UNTYPED_TOOL),
        }
    }

    /// The tools of a namespace. All of them are the agent's.
    fn inner_tools(&self, namespace: &str) -> Result<(), Violation> {
        each(json::elements(member(namespace, "tools").unwrap_or_default()), |tool| {
            match string_member(tool, "type").as_deref() {
                Some("function" | "custom") => self.stored_but_in(SCHEMAS, tool),
                Some(other) => {
                    self.stored_for_tool(tool)?;
                    within("type", self.hosted(other))
                }
                None => self.surface.refuse(&UNTYPED_TOOL),
            }
        })
    }

    /// A shell is the agent's if it says so. Otherwise it runs in a container of the provider.
    fn shell(&self, tool: &str) -> Result<(), Violation> {
        self.stored_for_tool(tool)?;
        let environment = object_member(tool, "environment").unwrap_or_default();
        match string_member(environment, "type").as_deref() {
            Some("local") => Ok(()),
            _ => within("environment", self.surface.refuse(&SHELL)),
        }
    }

    /// Refuses what a tool of the provider names that the provider keeps.
    fn stored_for_tool(&self, tool: &str) -> Result<(), Violation> {
        if string_member(tool, "container").is_some() {
            within("container", self.surface.refuse(&CONTAINER_ID))?;
        }
        self.stored_but_in(&[], tool)
    }

    /// Refuses a tool of the provider by its type, unless it is allowed under any name of its family.
    fn hosted(&self, type_name: &str) -> Result<(), Violation> {
        let family = family(type_name);
        if self.surface.allows(type_name) || self.surface.allows(without_date(type_name)) {
            return Ok(());
        }
        match family {
            COMPUTER => self.surface.refuse(&COMPUTER_TOOL),
            family => self.surface.refuse_named(&HOSTED_TOOL, family),
        }
    }

    fn items(&self) -> Result<(), Violation> {
        let main = self.request.main_unit().map(Unit::message);
        let items = (0..self.request.message_count()).map(|index| self.request.message_text(index));
        let is_alone = |index: usize| main == Some(index) || index < self.request.leading();
        let checked = items.enumerate().try_for_each(|(index, item)| {
            let Some(role) = self.request.role(index) else { return Ok(()) };
            let unknown = if is_alone(index) { UNLISTED } else { LISTED };
            at(index, self.item(role, item, unknown))
        });
        within("input", checked)
    }

    fn item(&self, role: Role, item: &str, unknown: Unknown) -> Result<(), Violation> {
        match ItemKind::of(item) {
            ItemKind::Message => self.message(role, item, unknown),
            ItemKind::Result(form) => self.result(form, item),
            // Plugins see what the model said as it is, in `messages`.
            ItemKind::Reasoning => self.stored_but_in(&[], item),
            ItemKind::Call(form) => self.call(form, item),
            ItemKind::Other => self.other(item),
        }
    }

    fn message(&self, role: Role, item: &str, unknown: Unknown) -> Result<(), Violation> {
        if role != Role::Assistant {
            self.surface.unknown_members(json::members(item), is_message_member, unknown)?;
        }
        self.stored_but_in(&["content"], item)?;
        let parts = json::elements(member(item, "content").unwrap_or_default());
        let checked = each(parts, |part| {
            self.stored_in_part(part)?;
            if role == Role::Assistant { Ok(()) } else { self.part(role, part, unknown) }
        });
        within("content", checked)
    }

    fn part(&self, role: Role, part: &str, unknown: Unknown) -> Result<(), Violation> {
        let name = string_member(part, "type").unwrap_or_default();
        match (name.as_ref(), role) {
            ("input_text" | "output_text" | "text", _) => {
                let is_known =
                    |name: &str, value: &str| matches!(name, "type" | "text") || is_mark(name, value);
                self.surface.unknown_members(json::members(part), is_known, unknown)
            }
            ("input_image" | "input_file", Role::User) => self.medium(part, &name, unknown),
            ("input_audio", Role::User) => self.audio(part, unknown),
            (other, _) => self.surface.refuse_named(&UNKNOWN_PART, other),
        }
    }

    fn medium(&self, part: &str, part_type: &str, unknown: Unknown) -> Result<(), Violation> {
        // A medium at the provider has nothing else that a server could read in its place.
        let is_stored = string_member(part, "file_id").is_some() && !has_source(part);
        if !is_stored {
            self.surface.medium(|| check_medium(part), part_type)?;
        }
        let is_known = |name: &str, value: &str| match (part_type, name) {
            (_, "detail") => string(value).is_some_and(|detail| is_name(&detail, "_-")),
            ("input_file", "filename") => !is_stored && string(value).is_some(),
            (_, "type" | "file_id") => string(value).is_some(),
            (part_type, source) if sources(part_type).contains(&source) => string(value).is_some(),
            _ => is_mark(name, value),
        };
        self.surface.unknown_members(json::members(part), is_known, unknown)
    }

    fn audio(&self, part: &str, unknown: Unknown) -> Result<(), Violation> {
        self.surface.refuse(&AUDIO_PART)?;
        self.surface.medium(|| check_medium(part), "input_audio")?;
        let is_known =
            |name: &str, value: &str| matches!(name, "type" | "input_audio") || is_mark(name, value);
        self.surface.unknown_members(json::members(part), is_known, unknown)?;
        let source = object_member(part, "input_audio").unwrap_or_default();
        let is_known = |name: &str, value: &str| matches!(name, "data" | "format") && string(value).is_some();
        within("input_audio", self.surface.unknown_members(json::members(source), is_known, unknown))
    }

    fn result(&self, form: CallForm, item: &str) -> Result<(), Violation> {
        let name = form.output_member();
        let is_known = |member: &str, value: &str| member == name || is_result_member(member, value);
        self.surface.unknown_members(json::members(item), is_known, RESULT)?;
        self.stored_but_in(&[name], item)?;
        let output = member(item, name).unwrap_or_default();
        let checked = match form {
            // The model may call them as it may those of the request.
            CallForm::ToolSearch => self.tools(output),
            _ => each(json::elements(output), |part| self.stored_in_part(part)),
        };
        within(name, checked)
    }

    /// What a tool returned is an item of its own, about which plugins are asked.
    fn call(&self, form: CallForm, item: &str) -> Result<(), Violation> {
        for name in ["output", "content", "result", form.output_member()] {
            if member(item, name).is_some() {
                within(name, self.surface.refuse_named(&RESULT_IN_CALL, name))?;
            }
        }
        // The agent's arguments may have members with any name.
        self.stored_but_in(&[form.args_member(), "tools"], item)?;
        within("tools", self.tools(member(item, "tools").unwrap_or_default()))
    }

    /// Refuses what is stored at the provider. The model's citations name files for their readers.
    fn stored_in_part(&self, part: &str) -> Result<(), Violation> {
        self.stored_but_in(&["annotations"], part)
    }

    /// Refuses what is stored at the provider, anywhere in an object but in these members.
    fn stored_but_in(&self, except: &[&str], object: &str) -> Result<(), Violation> {
        json::members(object)
            .filter(|(name, _)| !except.contains(&name.as_ref()))
            .try_for_each(|(name, value)| within(&name, self.surface.always_refused(&name, value, &[STORED])))
    }

    /// An item of what the provider runs or keeps, or one that is unknown.
    fn other(&self, item: &str) -> Result<(), Violation> {
        let name = string_member(item, "type").unwrap_or("item_reference".into());
        if name == "item_reference" || is_only_named(item) {
            self.surface.refuse(&REFERENCE)?;
        }
        // The tools are checked below. Schemas of the agent's may have members with any name.
        self.stored_but_in(&["tools"], item)?;
        let tool = HOSTED_ITEMS.iter().find(|(item_type, _)| *item_type == name).map(|(_, tool)| *tool);
        match (name.as_ref(), tool) {
            // Plugins see their tools in `messages`.
            ("item_reference" | "additional_tools", _) => {}
            (_, Some(tool)) => self.hosted_item(&name, tool)?,
            (name, None) if name.starts_with("compaction") => {
                self.surface.refuse_named(&COMPACTION, name)?;
            }
            (name, None) => self.surface.refuse_named(&UNKNOWN_ITEM, name)?,
        }
        let tools = member(item, "tools").unwrap_or_default();
        // What an MCP server offers has no types. It is a part of what is allowed above.
        within(
            "tools",
            match name.as_ref() {
                "mcp_list_tools" => {
                    each(json::elements(tools), |tool| self.stored_but_in(&["input_schema"], tool))
                }
                _ => self.tools(tools),
            },
        )
    }

    /// Who allows a tool under any name of its family also allows the items that the tool leads to.
    fn hosted_item(&self, item_type: &str, tool: &str) -> Result<(), Violation> {
        let mut allowed = self.surface.allowed.iter();
        match allowed.any(|allowed| family(allowed) == tool || allowed == item_type) {
            true => Ok(()),
            false => self.hosted(tool),
        }
    }
}

/// Whether an item has its id and nothing that it could stand for by itself, so that the provider would have to know it.
fn is_only_named(item: &str) -> bool {
    let is_empty = |value: &str| match kind(value) {
        ValueKind::Null => true,
        ValueKind::String => value == "\"\"",
        ValueKind::Array => json::elements(value).next().is_none(),
        ValueKind::Object => json::members(value).next().is_none(),
        ValueKind::Boolean | ValueKind::Number => false,
    };
    member(item, "id").is_some()
        && json::members(item)
            .all(|(name, value)| matches!(name.as_ref(), "type" | "id" | "status") || is_empty(value))
}

/// Whether a member of a message that isn't the model's is seen, or looks like a name.
fn is_message_member(name: &str, value: &str) -> bool {
    match name {
        "role" | "content" => true,
        "type" | "id" | "status" | "phase" => string(value).is_some_and(|name| is_name(&name, "_-")),
        NOTES => is_object_of_names(value),
        _ => false,
    }
}

/// Whether a member of a tool's result, beside what the tool returned, is seen, or looks like a name.
fn is_result_member(name: &str, value: &str) -> bool {
    match name {
        "type" => true,
        "call_id" => string(value).is_some(),
        "id" | "status" | "name" | "namespace" | "execution" | "created_by" => {
            kind(value) == ValueKind::String && has_only_names(value)
        }
        "caller" | NOTES => is_object_of_names(value),
        _ => false,
    }
}

fn is_object_of_names(value: &str) -> bool {
    kind(value) == ValueKind::Object && value.len() <= MAX_NAMES_BYTES && has_only_names(value)
}

/// Whether all that a value has are settings whose strings look like names. Depth is bounded by the scan.
fn has_only_names(value: &str) -> bool {
    match kind(value) {
        ValueKind::Object => {
            json::members(value).all(|(name, value)| is_name(&name, "_-") && has_only_names(value))
        }
        ValueKind::Array => json::elements(value).all(has_only_names),
        ValueKind::String => string(value).is_some_and(|name| is_name(&name, "_-.:/")),
        _ => !is_text(value),
    }
}

/// Whether a member is a mark for the provider's cache: an object of settings.
fn is_mark(name: &str, value: &str) -> bool {
    name == MARK && kind(value) == ValueKind::Object && value.len() <= MAX_SETTING_BYTES
}

/// The plainest name of a tool of the provider: its type without a date and without `_preview`.
fn family(type_name: &str) -> &str {
    let name = without_date(type_name);
    match name.strip_suffix("_preview").unwrap_or(name) {
        name if name.split('_').next() == Some(COMPUTER) => COMPUTER,
        name => name,
    }
}

/// A type without the date at its end, `_2025_08_26`, if it has one.
fn without_date(type_name: &str) -> &str {
    const DATE: &[u8] = b"_0000_00_00";
    let is_date = |date: &str| {
        let is_like =
            |(form, byte): (&u8, u8)| if *form == b'_' { byte == b'_' } else { byte.is_ascii_digit() };
        DATE.iter().zip(date.bytes()).all(is_like)
    };
    let parts = type_name.len().checked_sub(DATE.len()).and_then(|at| type_name.split_at_checked(at));
    parts.filter(|(name, date)| !name.is_empty() && is_date(date)).map_or(type_name, |(name, _)| name)
}

#[cfg(test)]
#[path = "surface_tests.rs"]
mod tests;
