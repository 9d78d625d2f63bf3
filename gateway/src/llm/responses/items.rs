//! The items of Responses: a request's `input` and an answer's `output` are lists of them.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{
    json::ValueKind,
    llm::{
        arguments::Arguments,
        value::{kind, member, string_member},
    },
};

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// What somebody says: `{role, content}`. The `type` may be absent.
    Message,
    /// What the model thought.
    Reasoning,
    /// A tool that the agent is to run.
    Call(CallForm),
    /// The result of such a call.
    Result(CallForm),
    /// Anything else, such as what the provider runs or keeps.
    Other,
}

/// How a call is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    /// `{name, arguments, namespace}`, with JSON as text.
    Function,
    /// `{name, input}`, with any text.
    Custom,
    /// `{action: {command}}`: one command of a shell.
    LocalShell,
    /// `{action: {commands}}`: commands of a shell.
    Shell,
    /// `{operation}`: a change of a file.
    ApplyPatch,
    /// `{arguments}`, with an object: a search for tools among those that only the agent knows.
    ToolSearch,
}

/// How calls of one form are written.
struct FormRow {
    form: CallForm,
    /// The type of the call.
    call: &'static str,
    /// The type of its result.
    result: &'static str,
    /// The member of the result with what the tool returned.
    output: &'static str,
    /// The tool's name, where the call has none.
    tool: Option<&'static str>,
    /// The member with the arguments.
    args: &'static str,
    /// The kinds of value that this member may be.
    args_kinds: &'static [ValueKind],
}

const FORMS: [FormRow; 6] = [
    FormRow {
        form: CallForm::Function,
        call: "function_call",
        result: "function_call_output",
        output: "output",
        tool: None,
        args: "arguments",
        // Some servers write the object itself, and not its text.
        args_kinds: &[ValueKind::String, ValueKind::Object],
    },
    FormRow {
        form: CallForm::Custom,
        call: "custom_tool_call",
        result: "custom_tool_call_output",
        output: "output",
        tool: None,
        args: "input",
        args_kinds: &[ValueKind::String],
    },
    FormRow {
        form: CallForm::LocalShell,
        call: "local_shell_call",
        result: "local_shell_call_output",
        output: "output",
        tool: Some("local_shell"),
        args: "action",
        args_kinds: &[ValueKind::Object],
    },
    FormRow {
        form: CallForm::Shell,
        call: "shell_call",
        result: "shell_call_output",
        output: "output",
        tool: Some("shell"),
        args: "action",
        args_kinds: &[ValueKind::Object],
    },
    FormRow {
        form: CallForm::ApplyPatch,
        call: "apply_patch_call",
        result: "apply_patch_call_output",
        output: "output",
        tool: Some("apply_patch"),
        args: "operation",
        args_kinds: &[ValueKind::Object],
    },
    FormRow {
        form: CallForm::ToolSearch,
        call: "tool_search_call",
        result: "tool_search_output",
        output: "tools",
        tool: Some("tool_search"),
        args: "arguments",
        args_kinds: &[ValueKind::Object],
    },
];

impl ItemKind {
    /// What the item with this JSON is.
    pub(super) fn of(item: &str) -> ItemKind {
        let Some(name) = string_member(item, "type") else {
            let is_message = member(item, "type").is_none() && member(item, "role").is_some();
            return if is_message { ItemKind::Message } else { ItemKind::Other };
        };
        let has_name = |row: &&FormRow| row.call == name || row.result == name;
        // The provider runs searches for tools, too.
        let is_agents = |row: &&FormRow| row.form != CallForm::ToolSearch || is_search_of_agent(item);
        match (name.as_ref(), FORMS.iter().find(has_name).filter(is_agents)) {
            ("message", _) => ItemKind::Message,
            ("reasoning", _) => ItemKind::Reasoning,
            (name, Some(row)) if row.call == name => ItemKind::Call(row.form),
            (_, Some(row)) => ItemKind::Result(row.form),
            (_, None) => ItemKind::Other,
        }
    }
}

impl CallForm {
    fn row(self) -> &'static FormRow {
        FORMS.iter().find(|row| row.form == self).expect("the table has each form")
    }

    /// The member with the arguments.
    pub(super) fn args_member(self) -> &'static str {
        self.row().args
    }

    /// The member of a result with what the tool returned.
    pub(super) fn output_member(self) -> &'static str {
        self.row().output
    }

    /// The kinds of value that the member with the arguments may be.
    pub(super) fn args_kinds(self) -> &'static [ValueKind] {
        self.row().args_kinds
    }

    /// The tool's name, where the call has none.
    pub(super) fn tool(self) -> Option<&'static str> {
        self.row().tool
    }

    /// The kind of value that the arguments must be, as plugins see them. Those of a function are what its text is the JSON of.
    pub(super) fn args_kind(self) -> Option<ValueKind> {
        match (self, self.args_kinds()) {
            (CallForm::Function, _) => None,
            (_, kinds) => kinds.first().copied(),
        }
    }

    /// Whether results of this form may be those of a call of another. Codex answers its first form of shells as a function.
    pub(super) fn may_answer(self, call: CallForm) -> bool {
        self == call || (self, call) == (CallForm::Function, CallForm::LocalShell)
    }
}

/// A tool call, in a request's history or in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCall {
    /// The tool's name, behind its namespace and a dot if it has one.
    pub(super) name: String,
    /// The model's id of the call.
    pub(super) call_id: Option<String>,
    /// What the tool is called with.
    pub(super) arguments: Arguments,
    pub(super) form: CallForm,
}

impl ToolCall {
    /// Reads an item, a slice of `body`. Returns `None` if it isn't a call in its form.
    pub(super) fn read(body: &Bytes, item: &str) -> Option<ToolCall> {
        let ItemKind::Call(form) = ItemKind::of(item) else { return None };
        let name = match form.tool() {
            Some(tool) => tool.to_owned(),
            None => qualified(string_member(item, "namespace"), &string_member(item, "name")?),
        };
        let arguments = match (form, member(item, form.args_member())) {
            (CallForm::Function, args) => Arguments::read(body, args),
            (CallForm::Custom, None) => Arguments::Json(Bytes::from_static(br#""""#)),
            (_, args) => {
                let args = args.filter(|args| form.args_kinds().contains(&kind(args)))?;
                Arguments::Json(body.slice_ref(args.as_bytes()))
            }
        };
        Some(ToolCall { name, call_id: call_id(item).map(Cow::into_owned), arguments, form })
    }
}

/// Whether the agent searches for tools. Without an id of the call no result could answer it.
fn is_search_of_agent(item: &str) -> bool {
    string_member(item, "execution").is_some_and(|execution| execution == "client")
        && string_member(item, "call_id").is_some()
}

/// The id of the call that an item is.
pub(super) fn call_id(call: &str) -> Option<Cow<'_, str>> {
    string_member(call, "call_id").or_else(|| string_member(call, "id"))
}

/// The ids of the call that a result of this form may be of: the first that names one counts. The first form of shells has it in `id`,
/// and the provider reads nothing else there.
pub(super) fn result_ids(form: CallForm, result: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let names = if form == CallForm::LocalShell { ["id", "call_id"] } else { ["call_id", "id"] };
    names.into_iter().filter_map(|name| string_member(result, name))
}

fn qualified(namespace: Option<Cow<'_, str>>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name.to_owned(),
    }
}
