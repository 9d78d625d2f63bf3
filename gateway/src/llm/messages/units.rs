//! Finds the units of a request: what people and tools said in it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ops::Range,
};

use bytes::Bytes;
use bytestring::ByteString;

use super::{
    blocks::{blocks, is_result},
    request::Role,
    shape::MessagesShape,
};
use crate::{
    core::error::Error,
    llm::{
        edits::span_in,
        request_shape::{FormatShape as _, Message},
        request_view::{MAX_UNITS, check_counts, text_at},
        unit::{KnownCall, ToolResult, Unit, UnitKind},
        value::{member, string, string_member},
    },
};

/// The units of a request, and the mistakes in its tool calls.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// By message. In each message first its results, by block, and then what else it says.
    pub(super) list: Vec<Unit>,
    /// Where the block or the message of each unit is in the body.
    spans: Vec<Range<usize>>,
    /// The tool calls whose id an earlier one of their message has too: the message, and the index of the block in it.
    pub(super) repeated_ids: Vec<(usize, usize)>,
    /// How many units there are, and how many tool calls; also those that are not kept.
    count: usize,
    call_count: usize,
}

impl Units {
    /// Checks how many units and tool calls there are.
    pub(super) fn check_size(&self) -> Result<(), Error> {
        check_counts(
            MessagesShape::MESSAGES,
            &[(self.count, "texts and results"), (self.call_count, "tool calls")],
        )
    }

    /// Where the block or the message of a unit is in the body.
    pub(super) fn span(&self, unit: &Unit) -> Option<&Range<usize>> {
        self.spans.get(self.position(unit)?)
    }

    /// Whether a unit is what else a message says beside its results.
    pub(super) fn has_results_beside(&self, unit: &Unit) -> bool {
        let before = self.position(unit).and_then(|position| self.list[..position].last());
        unit.block().is_none() && before.is_some_and(|before| before.message() == unit.message())
    }

    fn position(&self, unit: &Unit) -> Option<usize> {
        // What is a message as a whole comes behind its blocks.
        let place = |unit: &Unit| (unit.message(), unit.block().unwrap_or(usize::MAX));
        self.list.binary_search_by_key(&place(unit), place).ok()
    }

    fn push(&mut self, unit: impl FnOnce() -> Unit, span: Range<usize>) {
        self.count += 1;
        if self.count <= MAX_UNITS {
            self.list.push(unit());
            self.spans.push(span);
        }
    }
}

/// The units of `messages`, in their order. The first `leading` messages are part of the system prompt, and no units.
pub(super) fn read(body: &ByteString, messages: &[Message<Role>], leading: usize) -> Units {
    let mut reader = Reader { body, calls: HashMap::new(), units: Units::default() };
    for (index, message) in messages.iter().enumerate().skip(leading) {
        match message.role {
            Role::User => reader.user(index, message),
            Role::System => {
                let unit = || Unit::of_message(index, UnitKind::System);
                reader.units.push(unit, message.span.clone());
            }
            Role::Assistant => reader.assistant(index, text_at(body, &message.span)),
        }
    }
    reader.units
}

struct Reader<'a> {
    body: &'a ByteString,
    /// The tool calls of the messages so far, by id.
    calls: HashMap<String, KnownCall>,
    units: Units,
}

impl Reader<'_> {
    fn user(&mut self, index: usize, message: &Message<Role>) {
        let text = text_at(self.body, &message.span);
        let mut has_others = member(text, "content").and_then(string).is_some();
        for (place, block) in blocks(text).enumerate() {
            if !is_result(block) {
                has_others = true;
                continue;
            }
            let span = span_in(text, block);
            let span = message.span.start + span.start..message.span.start + span.end;
            let (body, calls) = (self.body, &mut self.calls);
            self.units.push(|| Unit::of_result(index, Some(place), result(body, calls, block)), span);
        }
        if has_others {
            self.units.push(|| Unit::of_message(index, UnitKind::User), message.span.clone());
        }
    }

    /// Adds the calls of a message, the one at `index`.
    fn assistant(&mut self, index: usize, message: &str) {
        // Some clients begin anew with each message. A result is that of the nearest call before it.
        let mut ids = HashSet::new();
        for (place, block) in blocks(message).enumerate() {
            let kind = string_member(block, "type").filter(|kind| kind.ends_with("tool_use"));
            let (Some(kind), Some(id)) = (kind, string_member(block, "id")) else { continue };
            self.units.call_count += 1;
            if self.units.call_count > MAX_UNITS {
                continue;
            }
            self.calls.remove(id.as_ref());
            // The provider's own tools have their results in the same message.
            if kind == "tool_use"
                && let Some(call) = self.call(block)
            {
                self.calls.insert(id.clone().into_owned(), call);
            }
            if !ids.insert(id) {
                self.units.repeated_ids.push((index, place));
            }
        }
    }

    fn call(&self, block: &str) -> Option<KnownCall> {
        let name = string_member(block, "name")?.into_owned();
        let input = member(block, "input").map(|input| self.body.slice_ref(input).into_bytes());
        Some(KnownCall::new(name, input.unwrap_or(Bytes::from_static(b"{}"))))
    }
}

fn result(body: &ByteString, calls: &mut HashMap<String, KnownCall>, block: &str) -> ToolResult {
    let content = member(block, "content").map(|content| body.slice_ref(content).into_bytes());
    let id = string_member(block, "tool_use_id").map(Cow::into_owned);
    let call = id.as_ref().and_then(|id| calls.get_mut(id));
    let is_success = member(block, "is_error") != Some("true");
    ToolResult::new(call, id, content.unwrap_or(Bytes::from_static(b"null")), is_success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted_and_not_kept() {
        let each = [
            r#"{"type":"tool_use","id":"ID","name":"f"}"#,
            r#"{"type":"tool_use","id":"1","name":"f"}"#,
            r#"{"type":"tool_result","tool_use_id":"1"}"#,
        ];
        let count = MAX_UNITS + 5;
        let contents = each.map(|block| {
            let blocks = (0..count).map(|index| block.replace("ID", &index.to_string()));
            format!(r#"{{"content":[{}]}}"#, blocks.collect::<Vec<_>>().join(","))
        });
        let body = ByteString::from(contents.concat());
        let text: &str = &body;
        let roles = [Role::Assistant, Role::Assistant, Role::User];
        let messages: Vec<Message<Role>> = roles
            .into_iter()
            .zip(&contents)
            .map(|(role, content)| {
                let start = text.find(content.as_str()).expect("it is there");
                Message { role, span: start..start + content.len() }
            })
            .collect();
        let mut reader = Reader { body: &body, calls: HashMap::new(), units: Units::default() };
        reader.assistant(0, &contents[0]);
        assert_eq!((reader.calls.len(), reader.units.call_count), (MAX_UNITS, count));
        let units = read(&body, &messages, 0);
        assert_eq!(
            (units.list.len(), units.spans.len(), units.repeated_ids.len()),
            (MAX_UNITS, MAX_UNITS, 0)
        );
        let refused = units.check_size().expect_err("it is too much");
        let messages: Vec<String> = refused.violations.into_iter().map(|excess| excess.message).collect();
        let expected = [
            "`messages` has 10005 texts and results, more than 10000",
            "`messages` has 20010 tool calls, more than 10000",
        ];
        assert_eq!(messages, expected);
    }
}
