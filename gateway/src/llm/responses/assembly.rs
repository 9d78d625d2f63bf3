//! [`ResponseAssembly`]: the events of a streamed answer, merged into the bytes of a whole one.
//!
//! An event means what it means to the SDKs of OpenAI: they tell events by the `type` in their data, and address items by
//! `output_index`. What they don't read, or can't, is dropped: the client gets events that are written anew.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque, btree_map::Entry},
};

use bytes::Bytes;

use super::item_assembly::{ItemAssembly, TEXT_FORMS, TextForm, place};
use crate::{
    json::{self, MAX_DEPTH, ValueKind},
    llm::{
        answer_json::{check_event, invalid},
        format::{AnswerError, FormatAssembly, StreamProgress},
        merged::{Account, Members, MergeResult, ObjectWriter, Rule},
        sse::SseEvent,
        value::{kind, member, object_member, quote, string_member},
    },
};

/// Greatest depth of an event. An item is one level deeper in the answer than in its event.
const MAX_EVENT_DEPTH: usize = MAX_DEPTH - 1;

/// What ends a stream of OpenAI's older formats. Some servers end this one with it, too.
const DONE: &str = "[DONE]";

/// The output of an answer, which comes in items.
const OUTPUT: &str = "output";

/// What is known so far of a streamed answer.
#[derive(Debug)]
pub(crate) struct ResponseAssembly {
    account: Account,
    has_response: bool,
    has_id: bool,
    is_complete: bool,
    is_stopped: bool,
    /// All but `output`.
    members: Members,
    /// By their `output_index`, which may be any number.
    items: BTreeMap<u64, ItemAssembly>,
    /// Those that came only with the last event and whose places others have.
    late_items: Vec<ItemAssembly>,
}

impl FormatAssembly for ResponseAssembly {
    fn new(limit: usize) -> Self {
        ResponseAssembly {
            account: Account::new(limit),
            has_response: false,
            has_id: false,
            is_complete: false,
            is_stopped: false,
            members: Members::default(),
            items: BTreeMap::new(),
            late_items: Vec::new(),
        }
    }

    fn push(&mut self, event: &SseEvent) -> Result<StreamProgress, AnswerError> {
        let data = event.data.as_str();
        if self.is_stopped || data.starts_with(DONE) {
            self.is_stopped = true;
            return Ok(StreamProgress::Done);
        }
        if event.name == "error" {
            return Ok(StreamProgress::Failed);
        }
        check_event(data, "an event", MAX_EVENT_DEPTH)?;
        let name = string_member(data, "type").unwrap_or_default();
        match &*name {
            "error" | "response.failed" => return Ok(StreamProgress::Failed),
            _ if has_error(data) => return Ok(StreamProgress::Failed),
            "response.created" | "response.queued" | "response.in_progress" => {
                self.merge_response(data)?;
            }
            "response.completed" => self.end(data, "completed")?,
            "response.incomplete" => self.end(data, "incomplete")?,
            "response.output_item.added" => self.begin_item(data)?,
            "response.output_item.done" => self.end_item(data)?,
            _ => {
                if let Some((form, is_end)) = text_event(&name) {
                    self.merge_text(form, is_end, data)?;
                }
            }
        }
        Ok(if self.is_stopped { StreamProgress::Done } else { StreamProgress::GoesOn })
    }

    fn held(&self) -> usize {
        self.account.held()
    }

    fn has_choices(&self) -> bool {
        self.has_response
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn drop_open_calls(&mut self) {
        self.items.retain(|_, item| !item.is_open_call());
    }

    fn body(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.account.held());
        let mut object = ObjectWriter::begin(&mut out);
        self.members.write_only("id", &mut object);
        self.members.write_or("object", "\"response\"", &mut object);
        self.members.write_or("status", "\"in_progress\"", &mut object);
        self.members.write_except(&["id", "object", "status"], &mut object);
        let list = object.member(OUTPUT);
        list.push(b'[');
        for (place, item) in self.items.values().chain(&self.late_items).enumerate() {
            if place > 0 {
                list.push(b',');
            }
            item.write(list);
        }
        list.push(b']');
        object.end();
        out.into()
    }

    /// There is none before the answer's id is known: SDKs refuse events of a response with another one.
    fn first_text(&self) -> Option<Cow<'_, str>> {
        if !self.has_id {
            return None;
        }
        let first = self.items.values().find(|item| !item.is_done_thought())?;
        first.first_text().filter(|text| !text.is_empty())
    }
}

/// Whether the SDKs raise an error for the data of an event, whatever its type is.
fn has_error(data: &str) -> bool {
    member(data, "error").is_some_and(|error| match kind(error) {
        ValueKind::Object | ValueKind::Array => true,
        ValueKind::String => error != "\"\"",
        ValueKind::Boolean => error == "true",
        ValueKind::Number | ValueKind::Null => false,
    })
}

/// The text that an event of this type belongs to, and whether it ends it.
fn text_event(name: &str) -> Option<(&'static TextForm, bool)> {
    let (event, is_end) = match name.strip_suffix(".delta") {
        Some(event) => (event, false),
        None => (name.strip_suffix(".done")?, true),
    };
    TEXT_FORMS.iter().find(|form| form.event == event).map(|form| (form, is_end))
}

impl ResponseAssembly {
    /// Takes the `response` of an event, without its output. Returns the output.
    fn merge_response<'e>(&mut self, data: &'e str) -> Result<Option<&'e str>, AnswerError> {
        let Some(response) = object_member(data, "response") else {
            return invalid("an event of a response has no `response`");
        };
        self.has_response = true;
        let mut output = None;
        for (name, value) in json::members(response) {
            match &*name {
                OUTPUT => output = Some(value),
                // All events of a response have the same one. The SDKs refuse another.
                "id" if self.has_id => {}
                _ => {
                    self.has_id |= name == "id" && kind(value) == ValueKind::String;
                    self.members.merge(&name, value, Rule::Whole, &mut self.account)?;
                }
            }
        }
        Ok(output)
    }

    /// Takes the last event. Its output counts for what isn't done: the items are the same once more. A call that isn't whole even
    /// there must not be run.
    fn end(&mut self, data: &str, status: &str) -> MergeResult {
        let output = self.merge_response(data)?.filter(|output| *output != "null");
        self.members.merge("status", &quote(status), Rule::Whole, &mut self.account)?;
        if let Some(output) = output {
            if kind(output) != ValueKind::Array {
                return invalid(format!("the `output` of a response is {}", kind(output)));
            }
            self.end_items(&json::elements(output).collect::<Vec<_>>())?;
        }
        self.drop_open_calls();
        (self.is_stopped, self.is_complete) = (true, true);
        Ok(())
    }

    /// Takes the items of the last event.
    fn end_items(&mut self, output: &[&str]) -> MergeResult {
        output.iter().try_for_each(|item| check_item(item))?;
        for ((index, item), known) in (0..).zip(output).zip(same_items(&self.items, output)) {
            if let Some(known) = known.and_then(|known| self.items.get_mut(&known)) {
                if !known.is_done() {
                    known.end(item, &mut self.account)?;
                }
                continue;
            }
            let item = ItemAssembly::whole(item, &mut self.account)?;
            match self.items.entry(index) {
                Entry::Occupied(_) => self.late_items.push(item),
                Entry::Vacant(slot) => {
                    slot.insert(item);
                }
            }
        }
        Ok(())
    }

    fn begin_item(&mut self, data: &str) -> MergeResult {
        // The SDKs ignore an item that is null.
        let Some(item) = member(data, "item") else { return Ok(()) };
        check_item(item)?;
        match self.items.entry(output_index(data)?) {
            Entry::Occupied(_) => invalid("an item begins with the `output_index` of another"),
            Entry::Vacant(slot) => {
                slot.insert(ItemAssembly::begin(item, &mut self.account)?);
                Ok(())
            }
        }
    }

    fn end_item(&mut self, data: &str) -> MergeResult {
        let Some(item) = member(data, "item") else { return invalid("an item that is done is missing") };
        check_item(item)?;
        match self.items.entry(output_index(data)?) {
            Entry::Occupied(mut known) => known.get_mut().end(item, &mut self.account),
            Entry::Vacant(slot) => {
                slot.insert(ItemAssembly::whole(item, &mut self.account)?);
                Ok(())
            }
        }
    }

    fn merge_text(&mut self, form: &'static TextForm, is_end: bool, data: &str) -> MergeResult {
        match self.items.get_mut(&output_index(data)?) {
            Some(item) => item.merge(form, is_end, data, &mut self.account),
            None => Ok(()),
        }
    }
}

/// The known item, by its place, that each item of the last event is once more: one of the same type with the same `id`, or else the
/// same `call_id`, or else the same place. Some servers write another `id` in each event.
fn same_items(known: &BTreeMap<u64, ItemAssembly>, output: &[&str]) -> Vec<Option<u64>> {
    let mut same = vec![None; output.len()];
    let mut left: BTreeSet<u64> = known.keys().copied().collect();
    for name in ["id", "call_id"] {
        let mut places: HashMap<_, VecDeque<u64>> = HashMap::new();
        for place in &left {
            if let Some(key) = item_key(known[place].json(), name) {
                places.entry(key).or_default().push_back(*place);
            }
        }
        for (same, item) in same.iter_mut().zip(output).filter(|(same, _)| same.is_none()) {
            *same = item_key(item, name).and_then(|key| places.get_mut(&key)?.pop_front());
            same.iter().for_each(|place| _ = left.remove(place));
        }
    }
    for (place, (same, item)) in (0..).zip(same.iter_mut().zip(output)) {
        if same.is_none() && left.contains(&place) && may_be_same(known[&place].json(), item) {
            *same = Some(place);
        }
    }
    same
}

/// What tells items apart: the type, and the member called `name`.
fn item_key<'i>(item: &'i str, name: &str) -> Option<(Cow<'i, str>, Cow<'i, str>)> {
    let name = string_member(item, name).filter(|name| !name.is_empty())?;
    Some((string_member(item, "type").unwrap_or_default(), name))
}

/// Whether two items at the same place are one: not two calls, each with a name of its own.
fn may_be_same(known: &str, item: &str) -> bool {
    string_member(known, "type") == string_member(item, "type")
        && [known, item].iter().any(|item| item_key(item, "call_id").is_none())
}

fn check_item(item: &str) -> MergeResult {
    match kind(item) {
        ValueKind::Object => Ok(()),
        other => invalid(format!("an item is {other}")),
    }
}

fn output_index(data: &str) -> Result<u64, AnswerError> {
    match place(data, "output_index")? {
        Some(index) => Ok(index),
        None => invalid("an event of an item has no `output_index`"),
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
