//! A whole answer as the events of a stream. Each part of a block stands in few large pieces, whatever pieces it came in.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    assembly::{END, HEAD},
    block_assembly::{COMPACTION, DELTA_FORMS, DeltaForm, Join, TEXT_FORM, is_input, is_thought, text_of},
};
use crate::{
    json::{self, ValueKind},
    llm::{
        format::StreamEvents,
        merged::ObjectWriter,
        sse,
        value::{kind, member, object_member, quote, string, string_member},
    },
};

/// What is known of the usage only when an answer ends.
const END_USAGE: [&str; 4] = ["output_tokens", "output_tokens_details", "server_tool_use", "iterations"];

/// The usage of an answer without one: clients read these two members without asking whether they are there.
const NO_USAGE: &str = r#"{"input_tokens":0,"output_tokens":0}"#;

/// A member of an answer that stands in the event `message_delta`, beside its `delta`.
const BESIDE_DELTA: &str = "context_management";

/// A block whose text comes in deltas.
const EMPTY_TEXT: &str = r#"{"type":"text","text":""}"#;

/// An event in which clients read nothing.
pub(super) const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// The events of an answer, a valid JSON object.
pub(super) fn stream_events(answer: &Bytes) -> StreamEvents {
    let answer = str::from_utf8(answer).unwrap_or_default();
    let mut events = vec![message_start(answer)];
    content(answer).enumerate().for_each(|(index, block)| push_block(&mut events, index, block));
    StreamEvents { answer: events, end: end(answer, false) }
}

/// The events of an answer in front of its first text, and the place of the block with that text.
pub(super) fn events_before_text(answer: &str) -> (usize, Vec<Bytes>) {
    let mut events = vec![message_start(answer)];
    let thoughts = content(answer).take_while(|block| is_thought(block));
    let index = thoughts.enumerate().map(|(index, block)| push_block(&mut events, index, block)).count();
    let first = content(answer).nth(index).filter(|block| text_of(block).is_some());
    events.push(block_start(index, first.unwrap_or(EMPTY_TEXT)));
    (index, events)
}

/// The event with a piece of the text of the block that has this place.
pub(super) fn text_event(index: usize, piece: &str) -> Bytes {
    block_delta(index, &TEXT_FORM, &quote(piece))
}

/// The events of an answer behind what was `sent` of its first text, whose block has this place for the client; `None` if it doesn't
/// begin with that. The thoughts in front of it have been sent.
pub(super) fn events_after(answer: &str, index: usize, sent: &str) -> Option<StreamEvents> {
    let mut blocks = content(answer).skip_while(|block| is_thought(block));
    let first = blocks.next()?;
    if !text_of(first)?.starts_with(sent) {
        return None;
    }
    let mut events = Vec::new();
    push_block_end(&mut events, index, first, sent);
    (index + 1..).zip(blocks).for_each(|(index, block)| push_block(&mut events, index, block));
    Some(StreamEvents { answer: events, end: end(answer, true) })
}

/// An event with an error in place of the rest of a stream.
pub(super) fn error_event(json: &[u8]) -> Bytes {
    sse::event("error", json)
}

/// An event whose members behind `type` are written by `write`.
fn event(name: &str, write: impl FnOnce(&mut ObjectWriter<'_>)) -> Bytes {
    let mut json = Vec::new();
    let mut object = ObjectWriter::begin(&mut json);
    object.raw("type", &quote(name));
    write(&mut object);
    object.end();
    sse::event(name, &json)
}

/// The content blocks of an answer.
fn content(answer: &str) -> impl Iterator<Item = &str> {
    member(answer, "content").into_iter().flat_map(json::elements)
}

/// The members of an answer that have no place of their own in the events.
fn other_members(answer: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    json::members(answer).filter(|(name, _)| {
        let is_elsewhere = matches!(&**name, "content" | "usage" | BESIDE_DELTA);
        !is_elsewhere && !HEAD.contains(&&**name) && !END.contains(&&**name)
    })
}

fn message_start(answer: &str) -> Bytes {
    event("message_start", |object| {
        let mut message = ObjectWriter::begin(object.member("message"));
        let [id, kind, role, model] = HEAD;
        let head = [(id, None), (kind, Some("\"message\"")), (role, Some("\"assistant\"")), (model, None)];
        for (name, default) in head {
            member(answer, name).or(default).into_iter().for_each(|value| message.raw(name, value));
        }
        message.raw("content", "[]");
        message.raw("stop_reason", "null");
        message.raw("stop_sequence", "null");
        other_members(answer).for_each(|(name, value)| message.raw(&name, value));
        let mut usage = ObjectWriter::begin(message.member("usage"));
        for (name, value) in json::members(usage_of(answer)) {
            if !END_USAGE.contains(&&*name) {
                usage.raw(&name, value);
            }
        }
        // Some clients add this number to that of the end.
        usage.raw("output_tokens", "0");
        usage.end();
        message.end();
    })
}

/// The events that end an answer; `with_others` if it began before all of its other members were known.
fn end(answer: &str, with_others: bool) -> Vec<Bytes> {
    vec![message_delta(answer, with_others), event("message_stop", |_| {})]
}

fn message_delta(answer: &str, with_others: bool) -> Bytes {
    event("message_delta", |object| {
        let mut delta = ObjectWriter::begin(object.member("delta"));
        let [reason, sequence, others @ ..] = END;
        for name in [reason, sequence] {
            delta.raw(name, member(answer, name).unwrap_or("null"));
        }
        for name in others {
            member(answer, name).into_iter().for_each(|value| delta.raw(name, value));
        }
        delta.end();
        object.raw("usage", usage_of(answer));
        if let Some(value) = member(answer, BESIDE_DELTA) {
            object.raw(BESIDE_DELTA, value);
        }
        if with_others {
            // A `delta` beside ours would be an end that no plugin saw. Some clients ignore the case of names.
            let others = other_members(answer).filter(|(name, _)| !name.eq_ignore_ascii_case("delta"));
            others.for_each(|(name, value)| object.raw(&name, value));
        }
    })
}

fn usage_of(answer: &str) -> &str {
    object_member(answer, "usage").unwrap_or(NO_USAGE)
}

/// Adds the events of a block.
fn push_block(events: &mut Vec<Bytes>, index: usize, block: &str) {
    events.push(block_start(index, block));
    push_block_end(events, index, block, "");
}

/// The forms of the deltas of a block.
fn delta_forms(block: &str) -> impl Iterator<Item = &'static DeltaForm> {
    let kind = string_member(block, "type").unwrap_or_default();
    DELTA_FORMS.iter().filter(move |form| form.blocks.contains(&&*kind))
}

fn block_start(index: usize, block: &str) -> Bytes {
    let forms: Vec<_> = delta_forms(block).collect();
    event("content_block_start", |object| {
        object.raw("index", &index.to_string());
        let mut start = ObjectWriter::begin(object.member("content_block"));
        for (name, value) in json::members(block) {
            let form = forms.iter().find(|form| form.member == name && comes_in_deltas(form, value));
            start.raw(&name, form.map_or(value, |form| placeholder(form.join)));
        }
        start.end();
    })
}

fn block_delta(index: usize, form: &DeltaForm, piece: &str) -> Bytes {
    event("content_block_delta", |object| {
        object.raw("index", &index.to_string());
        let mut delta = ObjectWriter::begin(object.member("delta"));
        delta.raw("type", &quote(form.name));
        delta.raw(form.piece, piece);
        delta.end();
    })
}

/// Adds the events of a block behind its start and what was `sent` of its text, which begins with that.
fn push_block_end(events: &mut Vec<Bytes>, index: usize, block: &str, sent: &str) {
    for form in delta_forms(block) {
        let value = member(block, form.member).filter(|value| comes_in_deltas(form, value));
        let pieces = value.map(|value| delta_pieces(form.join, value, sent)).unwrap_or_default();
        events.extend(pieces.iter().map(|piece| block_delta(index, form, piece)));
    }
    if string_member(block, "type").is_some_and(|kind| COMPACTION.contains(&&*kind)) {
        events.extend(compaction_delta(index, block));
    }
    events.push(event("content_block_stop", |object| object.raw("index", &index.to_string())));
}

/// The only delta of a compaction, unless it is odd or empty. Its start has the same members: some clients read the start,
/// others the delta alone, and the SDKs put what it says, and what it lacks, in place of the start's.
fn compaction_delta(index: usize, block: &str) -> Option<Bytes> {
    let is_member =
        |name: &str| DELTA_FORMS.iter().any(|form| form.blocks == COMPACTION && form.member == name);
    let members: Vec<_> = json::members(block).filter(|(name, _)| is_member(name)).collect();
    let has_kind = |of_kind| move |(_, value): &(_, &str)| kind(value) == of_kind;
    let is_odd = |member: &_| !has_kind(ValueKind::String)(member) && !has_kind(ValueKind::Null)(member);
    if members.iter().any(is_odd) || !members.iter().any(has_kind(ValueKind::String)) {
        return None;
    }
    Some(event("content_block_delta", |object| {
        object.raw("index", &index.to_string());
        let mut delta = ObjectWriter::begin(object.member("delta"));
        delta.raw("type", "\"compaction_delta\"");
        members.iter().for_each(|(name, value)| delta.raw(name, value));
        delta.end();
    }))
}

/// Whether a member of a block is left out of its start. Anything odd stays there, where no SDK joins or parses it.
/// Arguments that are no object were cut, and come in pieces as the provider sent them; what would be read as an object in
/// another way than it was judged stays.
fn comes_in_deltas(form: &DeltaForm, value: &str) -> bool {
    match form.join {
        Join::Text | Join::Last => form.blocks != COMPACTION && kind(value) == ValueKind::String,
        Join::Element => {
            let is_object = |element: &str| kind(element) == ValueKind::Object;
            kind(value) == ValueKind::Array && json::elements(value).all(is_object)
        }
        Join::Json => {
            let is_cut = |text: &str| !text.is_empty() && !is_input(text);
            kind(value) == ValueKind::Object || string(value).is_some_and(|text| is_cut(&text))
        }
    }
}

/// What stands in the start of a block for a member that comes in deltas.
fn placeholder(join: Join) -> &'static str {
    match join {
        Join::Text | Join::Last => "\"\"",
        Join::Element => "[]",
        Join::Json => "{}",
    }
}

/// The pieces of a member, as JSON; of a text without what was `sent`. An empty text or list has none.
fn delta_pieces(join: Join, value: &str, sent: &str) -> Vec<String> {
    let strings = |text: &str| sse::pieces(text).filter(|piece| !piece.is_empty()).map(quote).collect();
    match join {
        Join::Text => strings(string(value).unwrap_or_default().strip_prefix(sent).unwrap_or_default()),
        Join::Last if value == "\"\"" => Vec::new(),
        Join::Last => vec![value.to_owned()],
        Join::Element => json::elements(value).map(str::to_owned).collect(),
        Join::Json => strings(&string(value).unwrap_or(Cow::Borrowed(value))),
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
