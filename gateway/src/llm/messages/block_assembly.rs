//! One content block of a streamed answer: how it begins, and what its deltas add.

use std::borrow::Cow;

use crate::{
    json::{self, MAX_DEPTH, ValueKind},
    llm::{
        answer_json::invalid,
        format::AnswerError,
        merged::{Account, MergeResult, NODE_BYTES, ObjectWriter},
        value::{kind, member, quote, string_member},
    },
};

/// Greatest depth of arguments: they stand three levels below an answer.
const MAX_INPUT_DEPTH: usize = MAX_DEPTH - 3;

/// The tool that the client is to run.
const CALL: &str = "tool_use";

/// A member of a block that comes in deltas.
#[derive(Debug)]
pub(super) struct DeltaForm {
    /// The type of the deltas.
    pub(super) name: &'static str,
    /// The types of the blocks that have them.
    pub(super) blocks: &'static [&'static str],
    /// The member of the delta.
    pub(super) piece: &'static str,
    /// The member of the block.
    pub(super) member: &'static str,
    /// How a piece joins the member.
    pub(super) join: Join,
}

/// What a delta does to the value that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// The text goes on.
    Text,
    /// The last value counts: a text or `null`.
    Last,
    /// The piece is the next element of a list.
    Element,
    /// The pieces are the text of a JSON object, in place of the one that the block began with.
    Json,
}

const TEXT: &[&str] = &["text"];
const THINKING: &[&str] = &["thinking"];
const REDACTED_THINKING: &str = "redacted_thinking";
const TOOL_USES: &[&str] = &[CALL, "server_tool_use", "mcp_tool_use"];
pub(super) const COMPACTION: &[&str] = &["compaction"];

/// The text of a block.
pub(super) const TEXT_FORM: DeltaForm =
    DeltaForm { name: "text_delta", blocks: TEXT, piece: "text", member: "text", join: Join::Text };

/// What the SDKs of Anthropic join. The order is that of the deltas of one block: the signature of a text follows it.
pub(super) const DELTA_FORMS: [DeltaForm; 7] = [
    TEXT_FORM,
    DeltaForm {
        name: "citations_delta",
        blocks: TEXT,
        piece: "citation",
        member: "citations",
        join: Join::Element,
    },
    DeltaForm {
        name: "thinking_delta",
        blocks: THINKING,
        piece: "thinking",
        member: "thinking",
        join: Join::Text,
    },
    DeltaForm {
        name: "signature_delta",
        blocks: THINKING,
        piece: "signature",
        member: "signature",
        join: Join::Last,
    },
    DeltaForm {
        name: "input_json_delta",
        blocks: TOOL_USES,
        piece: "partial_json",
        member: "input",
        join: Join::Json,
    },
    DeltaForm {
        name: "compaction_delta",
        blocks: COMPACTION,
        piece: "content",
        member: "content",
        join: Join::Last,
    },
    DeltaForm {
        name: "compaction_delta",
        blocks: COMPACTION,
        piece: "encrypted_content",
        member: "encrypted_content",
        join: Join::Last,
    },
];

/// A block so far.
#[derive(Debug)]
pub(super) struct BlockAssembly {
    /// The JSON with which it began.
    start: String,
    /// Its type, if blocks of this type have deltas; otherwise empty.
    kind: &'static str,
    /// Whether it is what the model thought.
    is_thought: bool,
    /// The members that deltas have changed.
    parts: Vec<Part>,
    is_open: bool,
}

impl BlockAssembly {
    /// A block that begins with this object, and is whole unless it is open.
    pub(super) fn begin(block: &str, is_open: bool, account: &mut Account) -> Result<Self, AnswerError> {
        let Some(kind) = string_member(block, "type") else {
            return invalid("a content block has no `type`");
        };
        account.charge(block.len())?;
        let mut known = DELTA_FORMS.iter().flat_map(|form| form.blocks);
        let kind = known.find(|known| **known == kind).copied().unwrap_or_default();
        let is_thought = is_thought(block);
        Ok(BlockAssembly { start: block.to_owned(), kind, is_thought, parts: Vec::new(), is_open })
    }

    /// Whether more of it may come.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Ends it.
    pub(super) fn stop(&mut self) {
        self.is_open = false;
    }

    /// Whether it is a call of a tool that the client runs.
    pub(super) fn is_call(&self) -> bool {
        self.kind == CALL
    }

    /// Whether it is what the model thought, and is whole.
    pub(super) fn is_whole_thought(&self) -> bool {
        self.is_thought && !self.is_open
    }

    /// The text of a text block so far.
    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        match self.parts.iter().find(|part| part.form.name == TEXT_FORM.name) {
            Some(part) => Some(Cow::Borrowed(&part.text)),
            None => text_of(&self.start),
        }
    }

    /// Joins a delta. One of an unknown type is dropped, as the SDKs do: the client gets what is held.
    ///
    /// # Errors
    /// It is none of such a block, or there is no room for it.
    pub(super) fn merge(&mut self, delta: &str, account: &mut Account) -> MergeResult {
        let name = string_member(delta, "type").unwrap_or_default();
        for form in DELTA_FORMS.iter().filter(|form| form.name == name) {
            if !form.blocks.contains(&self.kind) {
                return invalid(format!("a `{name}` belongs to a block of another type"));
            }
            let Some((_, piece)) = json::members(delta).find(|(name, _)| name == form.piece) else {
                continue;
            };
            let is_expected = match (form.join, kind(piece)) {
                (Join::Last, ValueKind::Null) => true,
                (_, ValueKind::Null) => continue,
                (Join::Element, found) => found == ValueKind::Object,
                (_, found) => found == ValueKind::String,
            };
            if !is_expected {
                return invalid(format!("`{}` of a `{name}` is {}", form.piece, kind(piece)));
            }
            self.part(form, account)?.join(piece, account)?;
        }
        Ok(())
    }

    fn part(&mut self, form: &'static DeltaForm, account: &mut Account) -> Result<&mut Part, AnswerError> {
        let place = match self.parts.iter().position(|part| part.form.member == form.member) {
            Some(place) => place,
            None => {
                account.charge(NODE_BYTES)?;
                self.parts.push(Part::begin(form, member(&self.start, form.member), account)?);
                self.parts.len() - 1
            }
        };
        Ok(&mut self.parts[place])
    }

    /// Writes its JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        let mut added: Vec<&Part> = self.parts.iter().collect();
        for (name, value) in json::members(&self.start) {
            match added.iter().position(|part| part.form.member == name) {
                Some(place) => added.remove(place).write(value, object.member(&name)),
                None => object.raw(&name, value),
            }
        }
        for part in added {
            part.write("{}", object.member(part.form.member));
        }
        object.end();
    }
}

/// Whether a block is what the model thought.
pub(super) fn is_thought(block: &str) -> bool {
    string_member(block, "type").is_some_and(|kind| kind == REDACTED_THINKING || THINKING.contains(&&*kind))
}

/// The text of a text block.
pub(super) fn text_of(block: &str) -> Option<Cow<'_, str>> {
    let is_text = string_member(block, "type").is_some_and(|kind| TEXT.contains(&&*kind));
    string_member(block, TEXT_FORM.member).filter(|_| is_text)
}

/// Whether the pieces of arguments are one JSON object.
pub(super) fn is_input(text: &str) -> bool {
    json::scan(text.as_bytes(), MAX_INPUT_DEPTH) == Ok(ValueKind::Object)
}

/// A member that deltas have changed.
#[derive(Debug)]
struct Part {
    form: &'static DeltaForm,
    /// A text; or JSON: the last value, or the elements of a list with commas between them.
    text: String,
}

impl Part {
    /// The member as the block began with it.
    fn begin(
        form: &'static DeltaForm,
        value: Option<&str>,
        account: &mut Account,
    ) -> Result<Self, AnswerError> {
        let mut part = Part { form, text: String::new() };
        let Some(value) = value else { return Ok(part) };
        match (form.join, kind(value)) {
            (Join::Json, _) => {}
            (Join::Text | Join::Last, ValueKind::String) => part.join(value, account)?,
            (Join::Element, ValueKind::Array) => {
                json::elements(value).try_for_each(|element| part.join(element, account))?;
            }
            (_, other) => return invalid(format!("`{}` of a content block is {other}", form.member)),
        }
        Ok(part)
    }

    /// Joins a piece: a string, a value or, in a list, an element.
    fn join(&mut self, piece: &str, account: &mut Account) -> MergeResult {
        let piece = match self.form.join {
            Join::Text | Join::Json => json::unescape(piece),
            Join::Last | Join::Element => Cow::Borrowed(piece),
        };
        if self.form.join == Join::Last {
            // A value that comes again and again must not be charged each time, so its memory is used again.
            account.charge(piece.len().saturating_sub(self.text.capacity()))?;
            self.text.clear();
            self.text.reserve_exact(piece.len());
        } else {
            let is_element = self.form.join == Join::Element;
            account.charge(piece.len() + if is_element { NODE_BYTES } else { 1 })?;
            if is_element && !self.text.is_empty() {
                self.text.push(',');
            }
        }
        self.text.push_str(&piece);
        Ok(())
    }

    /// Writes the value of a member that began with `start`.
    fn write(&self, start: &str, out: &mut Vec<u8>) {
        match self.form.join {
            Join::Text => out.extend_from_slice(quote(&self.text).as_bytes()),
            Join::Last => out.extend_from_slice(self.text.as_bytes()),
            Join::Element => {
                out.push(b'[');
                out.extend_from_slice(self.text.as_bytes());
                out.push(b']');
            }
            Join::Json if self.text.is_empty() => out.extend_from_slice(start.as_bytes()),
            Join::Json => {
                // Two parsers could see two calls in anything else. As a string it is none.
                let is_input = is_input(&self.text);
                let input = if is_input { Cow::Borrowed(&*self.text) } else { Cow::Owned(quote(&self.text)) };
                out.extend_from_slice(input.as_bytes());
            }
        }
    }
}

#[cfg(test)]
#[path = "block_assembly_tests.rs"]
mod tests;
