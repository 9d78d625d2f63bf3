//! [`MessagesAnswer`]: a view of an answer's bytes. [`super::render`] changes it.

use std::borrow::Cow;

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeResponsePayload, BeforeToolCallPayload, TokenUsage};

use super::{render::render, withhold::CITATION_MEMBERS};
use crate::{
    json::{self, ValueKind},
    llm::{
        answer_json::{check_call_count, check_counts, check_tool_name, scanned},
        answer_parts::{AnswerParts, Piece},
        format::{AnswerError, ChoiceEdit, FormatAnswer, InvalidArguments, RenderedAnswer},
        value::{kind, member, object_member, string, string_member},
    },
};

/// Most content blocks of an answer.
pub(super) const MAX_BLOCKS: usize = 4096;

/// Most citations of an answer. Each is an event of a stream.
const MAX_CITATIONS: usize = 4096;

/// Most of all signatures of thoughts and encrypted thoughts of an answer, in bytes. They grow with the thoughts, and
/// pass unread: the provider refuses a tool call without the thought in front of it.
const MAX_SIGNATURES: usize = 1 << 20;

/// An answer of the right shape. It has one choice.
#[derive(Debug)]
pub(crate) struct MessagesAnswer {
    body: Bytes,
    /// The blocks of the content, in their order.
    pub(super) blocks: Vec<ContentBlock>,
    /// What the model says and thinks.
    pub(super) parts: AnswerParts,
    /// What the model wants to call: one for each block of this kind.
    pub(super) calls: Vec<ToolUse>,
    /// Why the model stopped.
    pub(super) stop_reason: Option<String>,
    model: Option<String>,
    usage: Option<TokenUsage>,
}

/// A content block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentBlock {
    pub(super) kind: BlockKind,
    /// What it has of a text or a thought; `None` if that is nothing.
    pub(super) piece: Option<Piece>,
}

/// What a content block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// What the model says.
    Text,
    /// What the model thought.
    Thinking,
    /// What the model thought, encrypted.
    RedactedThinking,
    /// A tool that the agent runs.
    ToolUse,
    /// Of no kind that plugins are asked about.
    Other,
}

/// A tool call.
#[derive(Debug)]
pub(super) struct ToolUse {
    /// The tool's name.
    pub(super) name: String,
    /// What the tool is called with.
    pub(super) input: Bytes,
    call_id: Option<String>,
    /// What else plugins see of it: a JSON object, or empty.
    extra: Bytes,
}

impl FormatAnswer for MessagesAnswer {
    fn parse(body: Bytes, _choices: u32) -> Result<Self, AnswerError> {
        let (answer, size) = read_answer(&body).map_err(AnswerError::Invalid)?;
        check_call_count(answer.calls.len())?;
        check_counts(&[
            (answer.blocks.len(), MAX_BLOCKS, "content blocks"),
            (size.citations, MAX_CITATIONS, "citations"),
            (size.signatures, MAX_SIGNATURES, "bytes of signatures"),
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
        let ToolUse { name, input, call_id, extra } = &self.calls[call];
        // Text that was streamed and isn't JSON comes as a string.
        if ValueKind::from_text(input) != Some(ValueKind::Object) {
            return Err(InvalidArguments { tool_name: name.clone() });
        }
        Ok(BeforeToolCallPayload {
            tool_name: name.clone(),
            args: input.clone(),
            call_id: call_id.clone(),
            extra: extra.clone(),
        })
    }

    fn args_kind(&self, _choice: usize, _call: usize) -> Option<ValueKind> {
        Some(ValueKind::Object)
    }

    fn render(&self, edits: &[ChoiceEdit], expects_json: bool, is_guarded: bool) -> RenderedAnswer {
        let unchanged = ChoiceEdit::default();
        render(self, edits.first().unwrap_or(&unchanged), expects_json, is_guarded)
    }
}

impl MessagesAnswer {
    /// The body as it came.
    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }
}

/// How much an answer has of what is bounded.
#[derive(Debug, Default)]
struct Size {
    citations: usize,
    /// Bytes of signatures and encrypted thoughts.
    signatures: usize,
}

impl Size {
    fn add(&mut self, kind: BlockKind, block: &str) {
        let length_of = |name| string_member(block, name).map_or(0, |text| text.len());
        match kind {
            BlockKind::Text => self.citations += citations(block).count(),
            BlockKind::Thinking => self.signatures += length_of("signature"),
            BlockKind::RedactedThinking => self.signatures += length_of("data"),
            BlockKind::ToolUse | BlockKind::Other => {}
        }
    }
}

fn read_answer(body: &Bytes) -> Result<(MessagesAnswer, Size), String> {
    let text = scanned(body)?;
    if member(text, "type").is_some_and(|value| string(value).as_deref() != Some("message")) {
        return Err("the answer's `type` is not `message`".to_owned());
    }
    let content = member(text, "content").filter(|content| kind(content) == ValueKind::Array);
    let content = content.ok_or("the answer has no array `content`")?;
    let mut answer = MessagesAnswer {
        body: body.clone(),
        blocks: Vec::new(),
        parts: AnswerParts::default(),
        calls: Vec::new(),
        stop_reason: string_member(text, "stop_reason").map(Cow::into_owned),
        model: string_member(text, "model").map(Cow::into_owned),
        usage: object_member(text, "usage").and_then(read_usage),
    };
    let (mut size, mut text_before) = (Size::default(), None);
    for (index, block) in json::elements(content).enumerate() {
        let read = read_block(&mut answer, block, text_before);
        let read = read.map_err(|flaw| format!("`content/{index}`: {flaw}"))?;
        size.add(read.kind, block);
        answer.blocks.push(read);
        text_before = match read.kind {
            BlockKind::Text if read.piece.is_none() => text_before,
            BlockKind::Text => Some(block),
            _ => None,
        };
    }
    Ok((answer, size))
}

/// Adds what a block says to the answer, and returns what it is. `text_before` is the text block in front of it, if there is one.
fn read_block(
    answer: &mut MessagesAnswer,
    block: &str,
    text_before: Option<&str>,
) -> Result<ContentBlock, String> {
    let block_type = string_member(block, "type").ok_or("it is no object with a string `type`")?;
    let text_of = |name: &str| string_member(block, name).ok_or_else(|| format!("it has no string `{name}`"));
    let mut piece = None;
    let kind = match block_type.as_ref() {
        "text" => {
            // Providers cut one text where a citation begins or ends.
            let goes_on = text_before.is_some_and(|before| is_cited(before) || is_cited(block));
            piece = answer.parts.push_text(&text_of("text")?, goes_on);
            citations(block).for_each(|citation| answer.parts.cited.add(citation, CITATION_MEMBERS));
            BlockKind::Text
        }
        "thinking" => {
            piece = answer.parts.push_thought(&text_of("thinking")?);
            BlockKind::Thinking
        }
        "redacted_thinking" => BlockKind::RedactedThinking,
        "tool_use" => {
            let name = text_of("name")?.into_owned();
            check_tool_name(&name)?;
            let input = member(block, "input").map(|input| answer.body.slice_ref(input.as_bytes()));
            let input = input.unwrap_or(Bytes::from_static(b"{}"));
            let call_id = string_member(block, "id").map(Cow::into_owned);
            let toolset = member(block, "toolset_name");
            let extra = toolset.map(|toolset| format!(r#"{{"toolset_name":{toolset}}}"#).into());
            answer.calls.push(ToolUse { name, input, call_id, extra: extra.unwrap_or_default() });
            BlockKind::ToolUse
        }
        _ => BlockKind::Other,
    };
    Ok(ContentBlock { kind, piece })
}

/// Whether a text block has citations.
fn is_cited(block: &str) -> bool {
    citations(block).next().is_some()
}

/// The citations of a text block.
fn citations(block: &str) -> impl Iterator<Item = &str> {
    json::elements(member(block, "citations").unwrap_or_default())
}

/// The tokens. Those that the provider read from its cache or wrote there are input as well.
fn read_usage(usage: &str) -> Option<TokenUsage> {
    let tokens = |name| member(usage, name).and_then(|number| number.parse::<u64>().ok());
    let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"].into_iter().filter_map(tokens);
    let input = cached.fold(tokens("input_tokens")?, u64::saturating_add);
    Some(TokenUsage { input, output: tokens("output_tokens")? })
}
