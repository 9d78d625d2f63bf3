//! [`ChatAnswer`]: a view of an answer's bytes. [`super::render`] changes it.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeResponsePayload, BeforeToolCallPayload, TokenUsage};

use super::{answer_texts::MessageTexts, call::ToolCall, render::render};
use crate::{
    json::{self, ValueKind},
    llm::{
        answer_json::{check_call_count, check_tool_name, scanned},
        answer_parts::AnswerParts,
        arguments::Arguments,
        edits::{ArrayEdit, Edits, edit_object, span_in},
        format::{AnswerError, ChoiceEdit, FormatAnswer, InvalidArguments, RenderedAnswer},
        value::{kind, member, object_member, string_member},
    },
};

/// An answer of the right shape.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    body: Bytes,
    choices: Vec<Choice>,
    model: Option<String>,
    usage: Option<TokenUsage>,
}

/// One of several answers to the same request.
#[derive(Debug)]
pub(super) struct Choice {
    /// What the model says and thinks: texts, a refusal, and the transcript of audio.
    pub(super) parts: AnswerParts,
    /// Why the model stopped.
    pub(super) finish_reason: Option<String>,
    /// What the model wants to call.
    pub(super) calls: Vec<ToolCall>,
    /// Where the choice is in the body.
    pub(super) span: Range<usize>,
}

impl FormatAnswer for ChatAnswer {
    fn parse(body: Bytes, asked: u32) -> Result<Self, AnswerError> {
        let (body, (choices, model, usage)) = match read_answer(&body, asked) {
            Ok(parts) => (body, parts),
            Err(flaw) => {
                let body = with_filtered_messages(&body).ok_or(AnswerError::Invalid(flaw))?;
                let parts = read_answer(&body, asked).map_err(AnswerError::Invalid)?;
                (body, parts)
            }
        };
        let calls: usize = choices.iter().map(|choice| choice.calls.len()).sum();
        check_call_count(calls)?;
        Ok(ChatAnswer { body, choices, model, usage })
    }

    fn choices(&self) -> usize {
        self.choices.len()
    }

    fn calls(&self, choice: usize) -> usize {
        self.choices.get(choice).map_or(0, |choice| choice.calls.len())
    }

    fn parts(&self, choice: usize) -> &AnswerParts {
        &self.choices[choice].parts
    }

    fn payload(&self, choice: usize) -> BeforeResponsePayload {
        BeforeResponsePayload {
            model: self.model.clone(),
            // It is the usage of all choices together. Plugins that count tokens must count it once.
            token_usage: self.usage.filter(|_| choice == 0),
            stop_reason: self.choices[choice].finish_reason.clone(),
            ..BeforeResponsePayload::default()
        }
    }

    fn call_payload(&self, choice: usize, call: usize) -> Result<BeforeToolCallPayload, InvalidArguments> {
        let ToolCall { name, call_id, arguments, .. } = &self.choices[choice].calls[call];
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

    fn render(&self, edits: &[ChoiceEdit], expects_json: bool, is_guarded: bool) -> RenderedAnswer {
        render(self, edits, expects_json, is_guarded)
    }
}

impl ChatAnswer {
    /// The body as it came.
    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }

    pub(super) fn all(&self) -> &[Choice] {
        &self.choices
    }
}

/// An answer with an empty message in each choice that its provider's filter left without one, as Azure's does. Returns `None` if there
/// is no such choice.
fn with_filtered_messages(body: &Bytes) -> Option<Bytes> {
    let text = scanned(body).ok()?;
    let mut list = ArrayEdit::new(text, member(text, "choices")?);
    let is_filtered = |choice: &str| {
        let reason = string_member(choice, "finish_reason");
        member(choice, "message").is_none() && reason.as_deref() == Some("content_filter")
    };
    let filtered: Vec<usize> =
        (0..list.elements().len()).filter(|index| is_filtered(list.elements()[*index])).collect();
    for &index in &filtered {
        let empty = r#"{"role":"assistant","content":null}"#;
        list.replace(index, edit_object(list.elements()[index], |choice| choice.set("message", empty)));
    }
    let mut edits = Edits::default();
    list.finish(&mut edits);
    (!filtered.is_empty()).then(|| edits.apply(body))
}

/// The choices, the model and the usage of an answer.
type Parts = (Vec<Choice>, Option<String>, Option<TokenUsage>);

fn read_answer(body: &Bytes, asked: u32) -> Result<Parts, String> {
    let text = scanned(body)?;
    let list = member(text, "choices").filter(|choices| kind(choices) == ValueKind::Array);
    let list = list.ok_or("the answer has no array `choices`")?;
    let found = json::elements(list).count();
    if !u32::try_from(found).is_ok_and(|found| found <= asked) {
        return Err(format!("the answer has {found} choices, and {asked} were asked for"));
    }
    let choices = json::elements(list).enumerate().map(|(index, choice)| {
        read_choice(body, text, choice).map_err(|flaw| format!("`choices/{index}`: {flaw}"))
    });
    let model = string_member(text, "model").map(Cow::into_owned);
    let usage = object_member(text, "usage").and_then(read_usage);
    Ok((choices.collect::<Result<_, _>>()?, model, usage))
}

fn read_choice(body: &Bytes, text: &str, choice: &str) -> Result<Choice, String> {
    let message = object_member(choice, "message").ok_or("it has no object `message`")?;
    let content = member(message, "content").unwrap_or_default();
    if !matches!(kind(content), ValueKind::String | ValueKind::Array | ValueKind::Null) {
        return Err(format!("`content` is {}", kind(content)));
    }
    // A refusal in another form would reach the user unseen.
    if let Some(refusal) = member(message, "refusal").filter(|refusal| kind(refusal) != ValueKind::String) {
        return Err(format!("`refusal` is {}", kind(refusal)));
    }
    Ok(Choice {
        parts: MessageTexts::new(message).parts,
        finish_reason: string_member(choice, "finish_reason").map(Cow::into_owned),
        calls: read_calls(body, message)?,
        span: span_in(text, choice),
    })
}

/// The calls in `tool_calls`, in their order, and that in the old `function_call`.
fn read_calls(body: &Bytes, message: &str) -> Result<Vec<ToolCall>, String> {
    let list = member(message, "tool_calls").unwrap_or("[]");
    if kind(list) != ValueKind::Array {
        return Err(format!("`tool_calls` is {}", kind(list)));
    }
    let mut calls = Vec::new();
    for (index, call) in json::elements(list).enumerate() {
        let call = ToolCall::read(body, call);
        calls.push(
            call.ok_or_else(|| format!("`tool_calls/{index}` is not a call of a function or custom tool"))?,
        );
    }
    if let Some(call) = member(message, "function_call") {
        let call = ToolCall::function(body, call).ok_or("`function_call` has no string `name`")?;
        calls.push(call);
    }
    calls.iter().try_for_each(|call| check_tool_name(&call.name))?;
    Ok(calls)
}

fn read_usage(usage: &str) -> Option<TokenUsage> {
    let tokens = |name| member(usage, name).and_then(|number| number.parse().ok());
    Some(TokenUsage { input: tokens("prompt_tokens")?, output: tokens("completion_tokens")? })
}
