//! A whole answer as the events of a stream. Each text stands in few large pieces, whatever pieces it came in.

use std::borrow::Cow;

use bytes::Bytes;
use uuid::Uuid;

use super::{
    answer::{first_text, parts},
    heartbeat::StreamHeartbeat,
    item_assembly::{LIST_FORMS, ListForm, MESSAGE, OUTPUT_TEXT, TEXT_FORMS, TextForm},
    items::ItemKind,
    withhold::TEXT_LISTS,
};
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::edit_object,
        format::StreamEvents,
        merged::ObjectWriter,
        sse,
        value::{is_same, kind, member, object_member, quote, string, string_member},
    },
};

/// The event that an answer begins with.
pub(super) const CREATED: &str = "response.created";

/// The event that follows it, and may come again and again.
pub(super) const IN_PROGRESS: &str = "response.in_progress";

/// The events that an answer may begin with. Those of an answer in progress may be the first that a server sends.
pub(super) const BEGINNINGS: [&str; 3] = [CREATED, "response.queued", IN_PROGRESS];

/// A message whose text comes in deltas.
const EMPTY_MESSAGE: &str =
    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"","annotations":[]}]}"#;

/// Members of an answer that are known only when it ends.
const LATE_MEMBERS: [&str; 4] = ["error", "incomplete_details", "usage", "completed_at"];

/// The events of an answer, a valid JSON object. They go on behind those of the heartbeat.
pub(super) fn stream_events(answer: &Bytes, heartbeat: &StreamHeartbeat) -> StreamEvents {
    let answer = str::from_utf8(answer).unwrap_or_default();
    let mut writer = EventWriter::begin(&opening(answer), heartbeat.events());
    output(answer).enumerate().for_each(|(index, item)| writer.item(index, item));
    writer.end(answer)
}

/// A message whose text goes out before the answer is whole.
#[derive(Debug)]
pub(super) struct OpenMessage {
    /// Its place among the items.
    index: usize,
    /// Its id, as JSON. Clients find by it what its events belong to.
    id: String,
    /// The items in front of it.
    thoughts: Vec<String>,
}

/// The events of an answer in front of its first text, and the message with that text. They go on behind so many events of the
/// heartbeat.
pub(super) fn events_before_text(answer: &str, opening: &str, number: usize) -> (OpenMessage, Vec<Bytes>) {
    let mut writer = EventWriter::begin(opening, number);
    let thoughts: Vec<_> = output(answer).take_while(|item| is_thought(item)).map(str::to_owned).collect();
    thoughts.iter().enumerate().for_each(|(index, item)| writer.item(index, item));
    let index = thoughts.len();
    let message = output(answer).nth(index).filter(|item| first_text(item).is_some());
    let message = message.unwrap_or(EMPTY_MESSAGE);
    let id = string_member(message, "id").filter(|id| !id.is_empty());
    let id = id.unwrap_or_else(|| format!("msg_{}", Uuid::now_v7().simple()).into());
    let open = OpenMessage { index, id: quote(&id), thoughts };
    writer.begin_message(index, &with_id(message, &open.id));
    (open, writer.events)
}

/// The event with a piece of the text of a message.
pub(super) fn text_event(message: &OpenMessage, number: usize, piece: &str) -> Bytes {
    let mut writer = EventWriter { number, events: Vec::new() };
    let mut parts =
        PartWriter { writer: &mut writer, item: "{}", id: &message.id, index: message.index.to_string() };
    parts.delta(&OUTPUT_TEXT, Some((&MESSAGE, 0)), piece, "[]");
    writer.events.remove(0)
}

/// The events of an answer behind what was `sent` of its first text, that of the message `open`; `None` if it doesn't begin with that.
/// The reasoning in front of it has been sent. The message keeps its place and its id: SDKs add a delta to the item at its place, and
/// other clients to the one with its id.
pub(super) fn events_after(
    answer: &str,
    open: &OpenMessage,
    number: usize,
    sent: &str,
) -> Option<StreamEvents> {
    let place = output(answer).position(|item| first_text(item).is_some())?;
    let item = output(answer).nth(place)?;
    let (_, text) = first_text(item)?;
    if !text.starts_with(sent) {
        return None;
    }
    let message = with_id(item, &open.id);
    // SDKs refuse two items with the same id.
    if message != item && output(answer).any(|item| has_id(item, &open.id)) {
        return None;
    }
    let mut writer = EventWriter { number, events: Vec::new() };
    writer.end_message(open.index, &message, sent);
    let others: Vec<_> = output(answer).skip(place + 1).collect();
    (open.index + 1..).zip(&others).for_each(|(index, item)| writer.item(index, item));
    // The last event repeats what was sent, also in front of a message in the answer's place.
    let items = open.thoughts.iter().map(String::as_str).chain([message.as_ref()]).chain(others);
    let items = format!("[{}]", items.collect::<Vec<_>>().join(","));
    Some(writer.end(&edit_object(answer, |answer| answer.set("output", items))))
}

/// The items of an answer.
fn output(answer: &str) -> impl Iterator<Item = &str> {
    member(answer, "output").into_iter().flat_map(json::elements)
}

fn is_thought(item: &str) -> bool {
    ItemKind::of(item) == ItemKind::Reasoning
}

/// Whether an item has this id, given as JSON.
fn has_id(item: &str, id: &str) -> bool {
    member(item, "id").is_some_and(|known| is_same(known, id))
}

/// An item with this id, given as JSON.
fn with_id<'i>(item: &'i str, id: &str) -> Cow<'i, str> {
    if has_id(item, id) {
        return item.into();
    }
    edit_object(item, |item| item.set("id", id)).into()
}

/// An error in place of the rest of a stream: in the form that the API documents, and in the one that it sends. Some clients read
/// the one, some the other.
pub(super) fn error_event(json: &[u8]) -> Bytes {
    let body = str::from_utf8(json).unwrap_or_default();
    let error = object_member(body, "error").unwrap_or("{}");
    let mut data = Vec::new();
    let mut object = ObjectWriter::begin(&mut data);
    object.raw("type", "\"error\"");
    object.raw("code", member(error, "code").unwrap_or("null"));
    object.raw("message", member(error, "message").unwrap_or("\"\""));
    object.raw("param", member(error, "param").unwrap_or("null"));
    object.raw("sequence_number", "0");
    object.raw("error", error);
    object.end();
    sse::event("error", &data)
}

/// An answer as it begins: without output, and without what is known only in the end.
pub(super) fn opening(answer: &str) -> String {
    let mut json = Vec::new();
    let mut object = ObjectWriter::begin(&mut json);
    for (name, value) in json::members(answer) {
        match &*name {
            "output" | "output_text" | "status" => {}
            known if LATE_MEMBERS.contains(&known) => object.raw(&name, "null"),
            _ => object.raw(&name, value),
        }
    }
    object.raw("status", "\"in_progress\"");
    object.raw("output", "[]");
    object.end();
    String::from_utf8(json).unwrap_or_default()
}

/// An event with an answer.
pub(super) fn response_event(name: &str, number: usize, response: &str) -> Bytes {
    event(name, number, |object| object.raw("response", response))
}

/// An event whose members behind `sequence_number` are written by `write`.
fn event(name: &str, number: usize, write: impl FnOnce(&mut ObjectWriter<'_>)) -> Bytes {
    let mut json = Vec::new();
    let mut object = ObjectWriter::begin(&mut json);
    object.raw("type", &quote(name));
    object.raw("sequence_number", &number.to_string());
    write(&mut object);
    object.end();
    sse::event(name, &json)
}

/// The status of an answer of which no more comes: one that hasn't ended is incomplete.
fn last_status(answer: &str) -> Cow<'_, str> {
    let Some(status) = member(answer, "status") else { return "completed".into() };
    let is_last =
        |status: &Cow<'_, str>| matches!(&**status, "completed" | "incomplete" | "failed" | "cancelled");
    string(status).filter(is_last).unwrap_or("incomplete".into())
}

/// The event that ends an answer with this status.
fn last_event(status: &str) -> &'static str {
    match status {
        "incomplete" => "response.incomplete",
        "failed" | "cancelled" => "response.failed",
        _ => "response.completed",
    }
}

/// An answer with this status.
fn with_status<'a>(answer: &'a str, status: &str) -> Cow<'a, str> {
    if string_member(answer, "status").is_some_and(|known| known == status) {
        return answer.into();
    }
    let mut json = Vec::new();
    let mut object = ObjectWriter::begin(&mut json);
    for (name, value) in json::members(answer).filter(|(name, _)| name != "status") {
        object.raw(&name, value);
    }
    object.raw("status", &quote(status));
    object.end();
    String::from_utf8(json).unwrap_or_default().into()
}

/// The events so far.
struct EventWriter {
    /// The `sequence_number` of the next one.
    number: usize,
    events: Vec<Bytes>,
}

impl EventWriter {
    /// The writer for an answer that begins like this, behind so many events of the heartbeat.
    fn begin(opening: &str, number: usize) -> Self {
        let mut writer = EventWriter { number, events: Vec::new() };
        for name in [CREATED, IN_PROGRESS].into_iter().skip(number) {
            writer.event(name, |object| object.raw("response", opening));
        }
        writer
    }

    /// Adds the last event.
    fn end(self, answer: &str) -> StreamEvents {
        let status = last_status(answer);
        let end = response_event(last_event(&status), self.number, &with_status(answer, &status));
        StreamEvents { answer: self.events, end: vec![end] }
    }

    fn event(&mut self, name: &str, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        self.events.push(event(name, self.number, write));
        self.number += 1;
    }

    /// Adds the events of an item. One that the SDKs couldn't join comes whole in its first event.
    fn item(&mut self, index: usize, item: &str) {
        let is_joined = is_joined(item);
        let kind = string_member(item, "type").filter(|_| is_joined).unwrap_or_default();
        self.begin_item(index, &kind, item);
        let mut parts = PartWriter::new(self, index, item);
        for list in LIST_FORMS.into_iter().filter(|list| list.item == kind) {
            let elements = member(item, list.list).into_iter().flat_map(json::elements);
            elements.enumerate().for_each(|(place, part)| parts.part(list, place, part));
        }
        for (name, value) in json::members(item) {
            if let Some(form) = item_text(&kind, &name, value) {
                parts.text(form, None, item, value, "");
            }
        }
        self.end_item(index, item);
    }

    /// Adds the first event of an item of this type.
    fn begin_item(&mut self, index: usize, kind: &str, item: &str) {
        let mut added = Vec::new();
        let mut object = ObjectWriter::begin(&mut added);
        for (name, value) in json::members(item) {
            let placeholder = match &*name {
                "status" => Some("\"in_progress\""),
                _ if list_form(kind, &name).is_some() => Some("[]"),
                _ => item_text(kind, &name, value).map(|_| "\"\""),
            };
            object.raw(&name, placeholder.unwrap_or(value));
        }
        object.end();
        let added = String::from_utf8(added).unwrap_or_default();
        self.item_event("response.output_item.added", index, if is_object(item) { &added } else { item });
    }

    fn end_item(&mut self, index: usize, item: &str) {
        self.item_event("response.output_item.done", index, item);
    }

    /// Adds the events of a message in front of its first text.
    fn begin_message(&mut self, index: usize, message: &str) {
        self.begin_item(index, MESSAGE.item, message);
        // There may be annotations later, and SDKs look for the list that they go into.
        let with_list = |part| match member(part, "annotations") {
            Some(_) => part.into(),
            None => Cow::Owned(edit_object(part, |part| part.set("annotations", "[]"))),
        };
        let part = parts(message).next().map(with_list).unwrap_or_default();
        PartWriter::new(self, index, message).begin_part(&MESSAGE, 0, &part);
    }

    /// Adds the events of a message behind what was `sent` of its first text. Behind a part that the SDKs don't join they would lose
    /// count, so that only the last event has what follows.
    fn end_message(&mut self, index: usize, message: &str, sent: &str) {
        let mut writer = PartWriter::new(self, index, message);
        for (place, part) in parts(message).take_while(|part| is_part(&MESSAGE, part)).enumerate() {
            match place {
                0 => writer.end_part(&MESSAGE, place, part, sent),
                _ => writer.part(&MESSAGE, place, part),
            }
        }
        self.end_item(index, message);
    }

    fn item_event(&mut self, name: &str, index: usize, item: &str) {
        self.event(name, |object| {
            object.raw("output_index", &index.to_string());
            object.raw("item", item);
        });
    }
}

fn is_object(value: &str) -> bool {
    kind(value) == ValueKind::Object
}

/// Whether an item's texts come in events of their own, which name it by its id.
fn is_joined(item: &str) -> bool {
    if !is_object(item) || string_member(item, "id").is_none_or(|id| id.is_empty()) {
        return false;
    }
    let kind = string_member(item, "type").unwrap_or_default();
    LIST_FORMS.iter().filter(|list| list.item == kind).all(|list| {
        member(item, list.list).is_none_or(|value| {
            self::kind(value) == ValueKind::Array && json::elements(value).all(|part| is_part(list, part))
        })
    })
}

/// Whether the SDKs take this for a part of such a list. They tell what a part belongs to by its type.
fn is_part(list: &ListForm, part: &str) -> bool {
    let is_thought = || string_member(part, "type").is_some_and(|kind| kind == "reasoning_text");
    is_object(part) && (list.list == "summary" || is_thought() == (list.item == "reasoning"))
}

/// The list that a member of an item of this type is.
fn list_form(item: &str, name: &str) -> Option<&'static ListForm> {
    LIST_FORMS.into_iter().find(|list| list.item == item && list.list == name)
}

/// The text that a member of an item of this type is.
fn item_text(item: &str, name: &str, value: &str) -> Option<&'static TextForm> {
    let is_text = kind(value) == ValueKind::String;
    TEXT_FORMS.iter().find(|form| is_text && form.part.is_none() && form.item == item && form.member == name)
}

/// Whether the events of a text have probabilities, and it has annotations.
fn has_details(form: &TextForm) -> bool {
    form.event == OUTPUT_TEXT.event
}

/// The form and the value of the text of a part.
fn part_text<'p>(list: &ListForm, part: &'p str) -> Option<(&'static TextForm, &'p str)> {
    let kind = string_member(part, "type")?;
    let is_of =
        |(known, name): (&ListForm, &str)| known.item == list.item && known.list == list.list && name == kind;
    let form = TEXT_FORMS.iter().find(|form| form.part.is_some_and(is_of))?;
    let value = member(part, form.member)?;
    (self::kind(value) == ValueKind::String).then_some((form, value))
}

/// Writes the events inside an item.
struct PartWriter<'w, 'i> {
    writer: &'w mut EventWriter,
    item: &'i str,
    /// The item's id, as JSON.
    id: &'i str,
    /// The item's place.
    index: String,
}

impl<'w, 'i> PartWriter<'w, 'i> {
    fn new(writer: &'w mut EventWriter, index: usize, item: &'i str) -> Self {
        PartWriter { writer, item, id: member(item, "id").unwrap_or("null"), index: index.to_string() }
    }
}

impl PartWriter<'_, '_> {
    /// Adds an event of the item, or of the part that has this place in this list.
    fn event(
        &mut self,
        name: &str,
        place: Option<(&ListForm, usize)>,
        write: impl FnOnce(&mut ObjectWriter<'_>),
    ) {
        let (id, index) = (self.id, &self.index);
        self.writer.event(name, |object| {
            object.raw("item_id", id);
            object.raw("output_index", index);
            if let Some((list, place)) = place {
                object.raw(list.index, &place.to_string());
            }
            write(object);
        });
    }

    /// Adds the events of a part. One without a text that is known is whole in the first one.
    fn part(&mut self, list: &ListForm, place: usize, part: &str) {
        self.begin_part(list, place, part);
        self.end_part(list, place, part, "");
    }

    /// Adds the first event of a part.
    fn begin_part(&mut self, list: &ListForm, place: usize, part: &str) {
        let text = part_text(list, part);
        let mut added = Vec::new();
        let mut object = ObjectWriter::begin(&mut added);
        for (name, value) in json::members(part) {
            // They have events of their own, or come with the text's pieces.
            let is_list = TEXT_LISTS.contains(&&*name) && kind(value) == ValueKind::Array;
            let placeholder = match text {
                Some((form, _)) if form.member == name => "\"\"",
                Some(_) if is_list => "[]",
                _ => value,
            };
            object.raw(&name, placeholder);
        }
        object.end();
        let added = String::from_utf8(added).unwrap_or_default();
        let name = format!("{}.added", list.event);
        self.event(&name, Some((list, place)), |object| object.raw("part", &added));
    }

    /// Adds the other events of a part, behind what was `sent` of its text.
    fn end_part(&mut self, list: &ListForm, place: usize, part: &str, sent: &str) {
        let name = format!("{}.done", list.event);
        let text = part_text(list, part);
        let place = Some((list, place));
        if let Some((form, value)) = text {
            self.text(form, place, part, value, sent);
        }
        self.event(&name, place, |object| object.raw("part", part));
    }

    /// Adds the event with a piece of a text.
    fn delta(&mut self, form: &TextForm, place: Option<(&ListForm, usize)>, piece: &str, logprobs: &str) {
        self.event(&format!("{}.delta", form.event), place, |object| {
            object.raw("delta", &quote(piece));
            if has_details(form) {
                object.raw("logprobs", logprobs);
            }
        });
    }

    /// Adds the events of a text, a member of `owner`: a part or the item. They begin behind what was `sent` of it.
    fn text(
        &mut self,
        form: &TextForm,
        place: Option<(&ListForm, usize)>,
        owner: &str,
        value: &str,
        sent: &str,
    ) {
        let has_details = has_details(form);
        let list = |name| member(owner, name).filter(|value| kind(value) == ValueKind::Array);
        let logprobs = list("logprobs").unwrap_or("[]");
        let text = string(value).unwrap_or_default();
        let rest = text.strip_prefix(sent).unwrap_or_default();
        for (number, piece) in sse::pieces(rest).filter(|piece| !piece.is_empty()).enumerate() {
            // With the first piece come the probabilities of all of them.
            self.delta(form, place, piece, if number == 0 { logprobs } else { "[]" });
        }
        let annotations = list("annotations").filter(|_| has_details);
        for (number, annotation) in annotations.into_iter().flat_map(json::elements).enumerate() {
            self.event("response.output_text.annotation.added", place, |object| {
                object.raw("annotation_index", &number.to_string());
                object.raw("annotation", annotation);
            });
        }
        let name = member(self.item, "name").filter(|_| form.member == "arguments");
        self.event(&format!("{}.done", form.event), place, |object| {
            object.raw(form.member, value);
            if has_details {
                object.raw("logprobs", logprobs);
            }
            if let Some(name) = name {
                object.raw("name", name);
            }
        });
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
