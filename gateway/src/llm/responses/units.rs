//! Finds the units of a request: what people and tools said in it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use bytes::Bytes;
use bytestring::ByteString;

use super::{
    items::{CallForm, ItemKind, ToolCall, call_id, result_ids},
    request::Role,
};
use crate::llm::{
    request_shape::Message,
    request_view::{MAX_UNITS, text_at},
    unit::{KnownCall, ToolResult, Unit, UnitKind},
    value::{member, string_member},
};

/// The units of a request, and the mistakes in its tool calls.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// By item.
    pub(super) list: Vec<Unit>,
    /// The tool calls whose id an earlier one of their answer has too, by item.
    pub(super) repeated_ids: Vec<usize>,
    /// How many units there are, and how many tool calls; also those that are not kept.
    pub(super) count: usize,
    pub(super) call_count: usize,
}

impl From<ToolCall> for KnownCall {
    fn from(call: ToolCall) -> Self {
        KnownCall::new(call.name, call.arguments.json().clone())
    }
}

/// The units of `items`, in their order. The first `leading` items are part of the system prompt, and no units.
pub(super) fn read(body: &ByteString, items: &[Message<Role>], leading: usize) -> Units {
    let mut reader = Reader { body, calls: HashMap::new(), answer: HashSet::new(), units: Units::default() };
    for (index, item) in items.iter().enumerate().skip(leading) {
        let text = text_at(body, &item.span);
        if item.role == Role::Assistant {
            reader.add_call(index, text);
            continue;
        }
        reader.answer.clear();
        match item.role {
            Role::User => reader.push(|_| Unit::of_message(index, UnitKind::User)),
            Role::Tool => reader.push(|reader| Unit::of_result(index, None, reader.result(text))),
            Role::System | Role::Developer | Role::Assistant => {
                reader.push(|_| Unit::of_message(index, UnitKind::System));
            }
        }
    }
    reader.units
}

struct Reader<'a> {
    body: &'a ByteString,
    /// The tool calls of the items so far, by id.
    calls: HashMap<String, (CallForm, KnownCall)>,
    /// The ids of the calls in the answer that is read: all items of the model that nothing else stands between.
    answer: HashSet<Cow<'a, str>>,
    units: Units,
}

impl<'a> Reader<'a> {
    fn push(&mut self, unit: impl FnOnce(&mut Self) -> Unit) {
        self.units.count += 1;
        if self.units.count <= MAX_UNITS {
            let unit = unit(self);
            self.units.list.push(unit);
        }
    }

    /// Adds the item at `index`, if it is a call.
    fn add_call(&mut self, index: usize, item: &'a str) {
        if !matches!(ItemKind::of(item), ItemKind::Call(_)) {
            return;
        }
        self.units.call_count += 1;
        if self.units.call_count > MAX_UNITS {
            return;
        }
        let Some(id) = call_id(item) else { return };
        // Some providers begin anew with each answer. A result is that of the nearest call before it.
        self.calls.remove(id.as_ref());
        if let Some(call) = ToolCall::read(self.body.as_bytes(), item) {
            self.calls.insert(id.clone().into_owned(), (call.form, call.into()));
        }
        if !self.answer.insert(id) {
            self.units.repeated_ids.push(index);
        }
    }

    fn result(&mut self, item: &str) -> ToolResult {
        let form = match ItemKind::of(item) {
            ItemKind::Result(form) => Some(form),
            _ => None,
        };
        let output = form.and_then(|form| member(item, form.output_member()));
        let output = output.map(|output| self.body.slice_ref(output).into_bytes());
        let ids: Vec<Cow<'_, str>> = form.into_iter().flat_map(|form| result_ids(form, item)).collect();
        let answers = |id: &&Cow<'_, str>| {
            let call = self.calls.get(id.as_ref()).map(|(call, _)| *call);
            call.is_some_and(|call| form.is_some_and(|form| form.may_answer(call)))
        };
        let known = ids.iter().find(answers);
        let call = known.and_then(|id| self.calls.get_mut(id.as_ref())).map(|(_, call)| call);
        let id = known.or(ids.first()).map(|id| id.clone().into_owned());
        let status = string_member(item, "status");
        let has_failed = status.is_some_and(|status| matches!(status.as_ref(), "incomplete" | "failed"));
        ToolResult::new(call, id, output.unwrap_or(Bytes::from_static(b"null")), !has_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted_and_not_kept() {
        let each = [
            (Role::Assistant, r#"{"type":"function_call","call_id":"ID","name":"f","arguments":""}"#),
            (Role::Assistant, r#"{"type":"function_call","call_id":"1","name":"f","arguments":""}"#),
            (Role::Tool, r#"{"type":"function_call_output","call_id":"1","output":""}"#),
        ];
        let count = MAX_UNITS + 5;
        let mut text = String::new();
        let mut items = Vec::new();
        for (role, item) in each {
            for index in 0..count {
                let start = text.len();
                text.push_str(&item.replace("ID", &index.to_string()));
                items.push(Message { role, span: start..text.len() });
            }
        }
        let units = read(&ByteString::from(text), &items, 0);
        assert_eq!((units.list.len(), units.repeated_ids.len()), (MAX_UNITS, 0));
        assert_eq!((units.count, units.call_count), (count, 2 * count));
    }
}
