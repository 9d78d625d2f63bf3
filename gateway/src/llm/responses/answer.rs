//! [`ResponsesAnswer`]: a view of an answer's bytes. [`super::render`] changes it.

use std::borrow::Cow;

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeResponsePayload, BeforeToolCallPayload, TokenUsage};

use super::{
    items::{ItemKind, ToolCall},
    output_plan::RenderOptions,
    render::render,
    withhold::{ANNOTATION_MEMBERS, is_id},
};
use crate::{
    json::{self, ValueKind},
    llm::{
        answer_json::{check_call_count, check_counts, check_tool_name, scanned},
        answer_parts::{AnswerParts, Piece},
        arguments::Arguments,
        format::{AnswerError, ChoiceEdit, FormatAnswer, InvalidArguments, RenderedAnswer},
        value::{kind, member, object_member, string, string_member},
    },
};

/// Most items of an answer.
const MAX_ITEMS: usize = 4096;

/// Most content parts of all items of an answer.
const MAX_PARTS: usize = 4096;

/// Most annotations of an answer. Each is an event of a stream.
const MAX_ANNOTATIONS: usize = 4096;

/// Most of all encrypted thoughts of an answer, in bytes. They grow with the thoughts, and pass unread: the provider refuses a tool
/// call without the thought in front of it.
const MAX_ENCRYPTED: usize = 1 << 20;

/// The members of a reasoning item that are lists of texts, in the order in which plugins see them.
pub(super) const REASONING_LISTS: [&str; 2] = ["summary", "content"];

/// An answer of the right shape. It has one choice.
#[derive(Debug)]
pub(crate) struct ResponsesAnswer {
    body: Bytes,
    /// What each item of the output is, in their order.
    pub(super) items: Vec<OutputKind>,
    /// What each item has of texts and thoughts: an entry for each content part of a message, and for each element of the lists of
    /// reasoning; `None` if that has none.
    pub(super) pieces: Vec<Vec<Option<Piece>>>,
    /// What the model says and thinks.
    pub(super) parts: AnswerParts,
    /// What the model wants to call: one for each item of this kind.
    pub(super) calls: Vec<ToolCall>,
    /// Why the model stopped.
    pub(super) stop_reason: Option<String>,
    model: Option<String>,
    usage: Option<TokenUsage>,
}

/// What an item of the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputKind {
    /// What the model says.
    Message,
    /// What the model thought.
    Reasoning,
    /// A tool that the agent runs.
    Call,
    /// Of no kind that plugins are asked about.
    Other,
}

impl FormatAnswer for ResponsesAnswer {
    fn parse(body: Bytes, _choices: u32) -> Result<Self, AnswerError> {
        let (answer, size) = read_answer(&body).map_err(AnswerError::Invalid)?;
        check_call_count(answer.calls.len())?;
        check_counts(&[
            (answer.items.len(), MAX_ITEMS, "items"),
            (size.parts, MAX_PARTS, "content parts"),
            (size.annotations, MAX_ANNOTATIONS, "annotations"),
            (size.encrypted, MAX_ENCRYPTED, "bytes of encrypted reasoning"),
        ])?;
        Ok(answer)
    }

    fn choices(&self) -> usize {
        1
    }

    fn calls(&self, choice: usize) -> usize {
        if choice == 0 { self.calls.len() } else { 0 }
    }

    fn parts(&self, choice: usize) -> &AnswerParts {
        debug_assert_eq!(choice, 0, "there is one choice");
        &self.parts
    }

    fn payload(&self, choice: usize) -> BeforeResponsePayload {
        debug_assert_eq!(choice, 0, "there is one choice");
        BeforeResponsePayload {
            model: self.model.clone(),
            token_usage: self.usage,
            stop_reason: self.stop_reason.clone(),
            ..BeforeResponsePayload::default()
        }
    }

    fn call_payload(&self, choice: usize, call: usize) -> Result<BeforeToolCallPayload, InvalidArguments> {
        debug_assert_eq!(choice, 0, "there is one choice");
        let ToolCall { name, call_id, arguments, .. } = &self.calls[call];
        match arguments {
            Arguments::Json(args) => Ok(BeforeToolCallPayload {
                tool_name: name.clone(),
                args: args.clone(),
                call_id: call_id.clone(),
                extra: Bytes::new(),
            }),
            Arguments::Invalid(_) => Err(InvalidArguments { tool_name: name.clone() }),
        }
    }

    fn args_kind(&self, choice: usize, call: usize) -> Option<ValueKind> {
        debug_assert_eq!(choice, 0, "there is one choice");
        self.calls[call].form.args_kind()
    }

    fn render(&self, edits: &[ChoiceEdit], expects_json: bool, is_guarded: bool) -> RenderedAnswer {
        let unchanged = ChoiceEdit::default();
        let options = RenderOptions { expects_json, is_guarded };
        render(self, edits.first().unwrap_or(&unchanged), options)
    }
}

impl ResponsesAnswer {
    /// The body as it came.
    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }
}

/// The member with the text of a content part that plugins see.
pub(super) fn text_member(part: &str) -> Option<&'static str> {
    match string_member(part, "type").as_deref() {
        Some("output_text") => Some("text"),
        Some("refusal") => Some("refusal"),
        _ => None,
    }
}

/// The text of a content part that is no refusal.
pub(super) fn output_text(part: &str) -> Option<Cow<'_, str>> {
    string_member(part, text_member(part).filter(|name| *name == "text")?)
}

/// The first part of a message of the model, and its text; `None` if it has none or refuses.
pub(super) fn first_text(item: &str) -> Option<(&str, Cow<'_, str>)> {
    let is_said = ItemKind::of(item) == ItemKind::Message && is_of_model(item);
    let part = parts(item).next().filter(|_| is_said)?;
    Some((part, output_text(part)?))
}

/// The content parts of a message.
pub(super) fn parts(message: &str) -> impl Iterator<Item = &str> {
    json::elements(member(message, "content").unwrap_or_default())
}

/// The elements of a reasoning item's lists, in the order in which plugins see them.
pub(super) fn thoughts(item: &str) -> impl Iterator<Item = &str> {
    REASONING_LISTS.into_iter().filter_map(|name| member(item, name)).flat_map(json::elements)
}

/// Whether an element of a reasoning item's lists has text.
pub(super) fn is_thought(part: &str) -> bool {
    string_member(part, "text").is_some()
}

/// How much an answer has of what is bounded.
#[derive(Debug, Default)]
struct Size {
    parts: usize,
    annotations: usize,
    /// Bytes of encrypted thoughts.
    encrypted: usize,
}

fn read_answer(body: &Bytes) -> Result<(ResponsesAnswer, Size), String> {
    let text = scanned(body)?;
    if member(text, "object").is_some_and(|value| string(value).as_deref() != Some("response")) {
        return Err("the answer's `object` is not `response`".to_owned());
    }
    let output = member(text, "output").filter(|output| kind(output) == ValueKind::Array);
    let output = output.ok_or("the answer has no array `output`")?;
    let reason =
        object_member(text, "incomplete_details").and_then(|details| string_member(details, "reason"));
    let mut answer = ResponsesAnswer {
        body: body.clone(),
        items: Vec::new(),
        pieces: Vec::new(),
        parts: AnswerParts::default(),
        calls: Vec::new(),
        stop_reason: reason.or_else(|| string_member(text, "status")).map(Cow::into_owned),
        model: string_member(text, "model").map(Cow::into_owned),
        usage: object_member(text, "usage").and_then(read_usage),
    };
    let mut size = Size::default();
    for (index, item) in json::elements(output).enumerate() {
        let mut pieces = Vec::new();
        let read = read_item(&mut answer, &mut pieces, &mut size, item);
        answer.items.push(read.map_err(|flaw| format!("`output/{index}`: {flaw}"))?);
        answer.pieces.push(pieces);
    }
    Ok((answer, size))
}

/// Adds what an item says to the answer and to its own `pieces`, and returns what it is.
fn read_item(
    answer: &mut ResponsesAnswer,
    pieces: &mut Vec<Option<Piece>>,
    size: &mut Size,
    item: &str,
) -> Result<OutputKind, String> {
    string_member(item, "type").ok_or("it is no object with a string `type`")?;
    Ok(match ItemKind::of(item) {
        ItemKind::Message if is_of_model(item) => {
            read_message(answer, pieces, size, item)?;
            OutputKind::Message
        }
        ItemKind::Reasoning => {
            for part in thoughts(item) {
                size.parts += 1;
                pieces.push(answer.parts.push_thought(&string_member(part, "text").unwrap_or_default()));
            }
            size.encrypted += string_member(item, "encrypted_content").map_or(0, |text| text.len());
            OutputKind::Reasoning
        }
        ItemKind::Call(_) => {
            let call = ToolCall::read(&answer.body, item).ok_or("it is not a call in its form")?;
            check_tool_name(&call.name)?;
            // An agent sends the id with the result: it links the result to the call.
            if member(item, "call_id").is_some_and(|id| !is_id(id)) {
                return Err("its `call_id` is no id".to_owned());
            }
            answer.calls.push(call);
            OutputKind::Call
        }
        ItemKind::Message | ItemKind::Result(_) | ItemKind::Other => OutputKind::Other,
    })
}

/// Whether a message is what the model says. Servers that leave the role out say nothing else.
pub(super) fn is_of_model(message: &str) -> bool {
    member(message, "role").is_none_or(|role| string(role).as_deref() == Some("assistant"))
}

/// Adds what a message says to the answer. What clients would read as text must be where plugins see it.
fn read_message(
    answer: &mut ResponsesAnswer,
    pieces: &mut Vec<Option<Piece>>,
    size: &mut Size,
    message: &str,
) -> Result<(), String> {
    if let Some(content) = member(message, "content").filter(|content| kind(content) != ValueKind::Array) {
        return Err(format!("`content` is {}", kind(content)));
    }
    for (index, part) in parts(message).enumerate() {
        let flaw = |sentence: &str| format!("`content/{index}`: {sentence}");
        string_member(part, "type").ok_or_else(|| flaw("it is no object with a string `type`"))?;
        size.parts += 1;
        let Some(name) = text_member(part) else {
            pieces.push(None);
            continue;
        };
        let text = string_member(part, name).ok_or_else(|| flaw(&format!("it has no string `{name}`")))?;
        pieces.push(answer.parts.push_text(&text, false));
        for annotation in json::elements(member(part, "annotations").unwrap_or_default()) {
            size.annotations += 1;
            answer.parts.cited.add(annotation, ANNOTATION_MEMBERS);
        }
    }
    Ok(())
}

/// The tokens. Those that the provider read from its cache are input as well, and are counted there.
fn read_usage(usage: &str) -> Option<TokenUsage> {
    let tokens = |name| member(usage, name).and_then(|number| number.parse().ok());
    Some(TokenUsage { input: tokens("input_tokens")?, output: tokens("output_tokens")? })
}
