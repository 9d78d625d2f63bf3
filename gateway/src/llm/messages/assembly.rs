//! [`MessageAssembly`]: the events of a streamed answer, merged into the bytes of a whole one.
//!
//! An event means what it means to the SDKs of Anthropic: they tell events by their names, and address blocks by `index`.
//! What two readers could understand in two ways is refused. What the SDKs don't read is dropped.

use std::borrow::Cow;

use bytes::Bytes;

use super::{answer::MAX_BLOCKS, block_assembly::BlockAssembly};
use crate::{
    json::{self, MAX_DEPTH, ValueKind},
    llm::{
        answer_json::{check_event, invalid},
        format::{AnswerError, FormatAssembly, StreamProgress},
        merged::{Account, Members, MergeResult, NODE_BYTES, ObjectWriter, Rule, too_large},
        sse::SseEvent,
        value::{kind, member, object_member, string_member},
    },
};

/// Greatest depth of an event. A citation is two levels deeper in the answer than in its event.
const MAX_EVENT_DEPTH: usize = MAX_DEPTH - 2;

/// The events that are read, beside `error`. The SDKs drop any others, and read nothing in a `ping`.
const EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

/// Members of an answer that have their place at its beginning.
pub(super) const HEAD: [&str; 4] = ["id", "type", "role", "model"];

/// Members of an answer that are known at its end, in the `delta` of a `message_delta`.
pub(super) const END: [&str; 5] =
    ["stop_reason", "stop_sequence", "stop_details", "container", "safeguard_results"];

/// What is known so far of a streamed answer.
#[derive(Debug)]
pub(crate) struct MessageAssembly {
    account: Account,
    is_started: bool,
    is_stopped: bool,
    /// All but `content` and `usage`.
    members: Members,
    usage: Option<Members>,
    blocks: Vec<BlockAssembly>,
}

impl FormatAssembly for MessageAssembly {
    fn new(limit: usize) -> Self {
        MessageAssembly {
            account: Account::new(limit),
            is_started: false,
            is_stopped: false,
            members: Members::default(),
            usage: None,
            blocks: Vec::new(),
        }
    }

    fn push(&mut self, event: &SseEvent) -> Result<StreamProgress, AnswerError> {
        let (name, data) = (event.name.as_str(), event.data.as_str());
        if self.is_stopped {
            return Ok(StreamProgress::Done);
        }
        if name == "error" {
            return Ok(StreamProgress::Failed);
        }
        if !EVENTS.contains(&name) {
            return Ok(StreamProgress::GoesOn);
        }
        check(name, data)?;
        match (name, self.is_started) {
            ("message_start", false) => self.start(data)?,
            ("message_start", true) => return invalid("an answer begins inside another"),
            (_, false) => return invalid(format!("`{name}` comes before `message_start`")),
            ("content_block_start", _) => self.start_block(data)?,
            ("content_block_delta", _) => {
                let place = self.open_block(name, data)?;
                let Some(delta) = object_member(data, "delta") else {
                    return invalid("a `content_block_delta` has no `delta`");
                };
                self.blocks[place].merge(delta, &mut self.account)?;
            }
            ("content_block_stop", _) => {
                let place = self.open_block(name, data)?;
                self.blocks[place].stop();
            }
            ("message_delta", _) => self.merge_end(data)?,
            _ => self.is_stopped = true,
        }
        Ok(if self.is_stopped { StreamProgress::Done } else { StreamProgress::GoesOn })
    }

    fn held(&self) -> usize {
        self.account.held()
    }

    fn has_choices(&self) -> bool {
        self.is_started
    }

    fn is_complete(&self) -> bool {
        self.is_stopped && self.has_reason()
    }

    fn drop_open_calls(&mut self) {
        // Without a reason, more blocks could follow, and the model may not have meant these calls alone.
        let has_reason = self.has_reason();
        self.blocks.retain(|block| !block.is_call() || (has_reason && !block.is_open()));
    }

    fn body(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.account.held());
        let mut object = ObjectWriter::begin(&mut out);
        let [id, kind, role, model] = HEAD;
        self.members.write_only(id, &mut object);
        self.members.write_or(kind, "\"message\"", &mut object);
        self.members.write_or(role, "\"assistant\"", &mut object);
        self.members.write_only(model, &mut object);
        let list = object.member("content");
        list.push(b'[');
        for (place, block) in self.blocks.iter().enumerate() {
            if place > 0 {
                list.push(b',');
            }
            block.write(list);
        }
        list.push(b']');
        let [reason, sequence, ..] = END;
        self.members.write_or(reason, "null", &mut object);
        self.members.write_only(sequence, &mut object);
        self.members.write_except(&[id, kind, role, model, reason, sequence], &mut object);
        if let Some(usage) = &self.usage {
            let mut members = ObjectWriter::begin(object.member("usage"));
            usage.write_except(&[], &mut members);
            members.end();
        }
        object.end();
        out.into()
    }

    fn first_text(&self) -> Option<Cow<'_, str>> {
        let first = self.blocks.iter().find(|block| !block.is_whole_thought())?;
        first.text().filter(|text| !text.is_empty())
    }
}

/// Checks that the data is an object, and says the same type of event as its name. Some readers go by the one and some by
/// the other.
fn check(name: &str, data: &str) -> MergeResult {
    check_event(data, "an event", MAX_EVENT_DEPTH)?;
    if string_member(data, "type").is_none_or(|kind| kind != name) {
        return invalid(format!("the `type` of a `{name}` is another one"));
    }
    Ok(())
}

/// The `index` of an event of a block.
fn index(name: &str, data: &str) -> Result<usize, AnswerError> {
    match member(data, "index").and_then(|index| index.parse().ok()) {
        Some(index) => Ok(index),
        None => invalid(format!("a `{name}` has an `index` that is not an integer from 0")),
    }
}

impl MessageAssembly {
    fn has_reason(&self) -> bool {
        self.members.get("stop_reason").is_some_and(|reason| !reason.is_null())
    }

    fn start(&mut self, data: &str) -> MergeResult {
        let Some(message) = object_member(data, "message") else {
            return invalid("a `message_start` has no `message`");
        };
        for (name, value) in json::members(message) {
            match (&*name, kind(value)) {
                ("content", ValueKind::Null) => {}
                // Calls that a tool of the provider made in an earlier turn. The SDKs go on behind them.
                ("content", ValueKind::Array) => {
                    json::elements(value).try_for_each(|block| self.begin_block(block, false))?;
                }
                ("content", _) => return invalid("the `content` of a `message_start` is no list"),
                ("usage", _) => self.merge_usage(value)?,
                _ => self.merge_member(&name, value)?,
            }
        }
        self.is_started = true;
        Ok(())
    }

    fn start_block(&mut self, data: &str) -> MergeResult {
        if index("content_block_start", data)? != self.blocks.len() {
            return invalid("a block begins with an `index` that is not the next one");
        }
        let Some(block) = object_member(data, "content_block") else {
            return invalid("a `content_block_start` has no `content_block`");
        };
        self.begin_block(block, true)
    }

    fn begin_block(&mut self, block: &str, is_open: bool) -> MergeResult {
        if self.blocks.len() == MAX_BLOCKS {
            return Err(too_large());
        }
        self.account.charge(4 * NODE_BYTES)?;
        self.blocks.push(BlockAssembly::begin(block, is_open, &mut self.account)?);
        Ok(())
    }

    /// The place of the block that an event belongs to.
    fn open_block(&self, name: &str, data: &str) -> Result<usize, AnswerError> {
        let index = index(name, data)?;
        if self.blocks.get(index).is_some_and(BlockAssembly::is_open) {
            return Ok(index);
        }
        invalid(format!("a `{name}` belongs to no open block"))
    }

    /// Takes a `message_delta`. What its `delta` says counts more than what stands beside it.
    fn merge_end(&mut self, data: &str) -> MergeResult {
        let Some(delta) = object_member(data, "delta") else {
            return invalid("a `message_delta` has no `delta`");
        };
        for (name, value) in json::members(data) {
            match &*name {
                "delta" | "content" => {}
                "usage" => self.merge_usage(value)?,
                // Not read here by the SDKs, as far as they know them.
                known if HEAD.contains(&known) || END.contains(&known) => {}
                _ => self.merge_member(&name, value)?,
            }
        }
        for (name, value) in json::members(delta) {
            match &*name {
                "content" | "usage" => {}
                known if HEAD.contains(&known) => {}
                _ => self.merge_member(&name, value)?,
            }
        }
        Ok(())
    }

    fn merge_member(&mut self, name: &str, value: &str) -> MergeResult {
        // Some servers write an empty reason as long as there is none.
        if name == "stop_reason" && value == "\"\"" {
            return Ok(());
        }
        self.members.merge(name, value, Rule::Whole, &mut self.account)
    }

    fn merge_usage(&mut self, usage: &str) -> MergeResult {
        match kind(usage) {
            ValueKind::Null => return Ok(()),
            ValueKind::Object => {}
            other => return invalid(format!("a `usage` is {other}")),
        }
        let known = self.usage.get_or_insert_default();
        json::members(usage)
            .try_for_each(|(name, value)| known.merge(&name, value, Rule::Whole, &mut self.account))
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
