//! A whole answer as the events of a stream. Each part of the text stands in few large pieces, whatever pieces it came in.

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;

use super::{answer_texts::REASONING, text_stream::SentMessage};
use crate::{
    json,
    llm::{
        format::StreamEvents,
        merged::ObjectWriter,
        sse::{self, pieces},
        value::{member, object_member, quote, string, string_member},
    },
};

/// The event that ends a stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// Longest value of a member that is in every chunk, in bytes of JSON.
const MAX_HEAD_BYTES: usize = 512;

/// Members of an answer that are in every chunk, if they are short.
const HEAD: [&str; 5] = ["id", "created", "model", "system_fingerprint", "service_tier"];

/// Members of a message that have deltas of their own.
const MESSAGE_PARTS: [&str; 5] = ["role", "content", "refusal", "tool_calls", "function_call"];

/// The events of an answer, a valid JSON object.
pub(super) fn stream_events(answer: &Bytes, shows_usage: bool) -> StreamEvents {
    let answer = str::from_utf8(answer).unwrap_or_default();
    let mut writer = ChunkWriter { head: head(answer), events: Vec::new() };
    let choices = choices(answer);
    for (place, (choice, index)) in choices.iter().zip(indices(&choices)).enumerate() {
        let mut chunks = ChoiceWriter { writer: &mut writer, index, logprobs: member(choice, "logprobs") };
        let message = object_member(choice, "message").unwrap_or("{}");
        chunks.role(message, true);
        chunks.reasoning(message, &[]);
        chunks.texts(message, "");
        chunks.calls(message);
        let is_last = place + 1 == choices.len();
        chunks.finish(choice, |object| {
            if is_last {
                write_others(answer, object);
            }
        });
    }
    if choices.is_empty() {
        writer.chunk(|object| {
            object.raw("choices", "[]");
            write_others(answer, object);
        });
    }
    writer.end(answer, shows_usage)
}

/// The events of an answer with one choice in front of its text: with this reasoning. `head` is for all chunks.
pub(super) fn events_before_text(
    head: &str,
    message: &str,
    reasoning: &[(&'static str, String)],
) -> Vec<Bytes> {
    let mut writer = ChunkWriter { head: self::head(head), events: Vec::new() };
    let mut chunks = ChoiceWriter { writer: &mut writer, index: 0, logprobs: None };
    chunks.role(message, false);
    for (name, text) in reasoning {
        pieces(text).for_each(|piece| chunks.delta(|delta| delta.raw(name, &quote(piece))));
    }
    writer.events
}

/// The event with a piece of the text of an answer with one choice.
pub(super) fn text_event(head: &str, piece: &str) -> Bytes {
    let mut writer = ChunkWriter { head: self::head(head), events: Vec::new() };
    ChoiceWriter { writer: &mut writer, index: 0, logprobs: None }.text("content", &quote(piece));
    writer.events.remove(0)
}

/// The events of an answer with one choice, without what was sent; `None` if it doesn't begin with that.
pub(super) fn events_after(
    head: &str,
    answer: &str,
    sent: &SentMessage,
    shows_usage: bool,
) -> Option<StreamEvents> {
    let choice = choices(answer).first().copied()?;
    let message = only_message(answer);
    if !string_member(message, "content")?.starts_with(&sent.content) {
        return None;
    }
    let mut writer = ChunkWriter { head: self::head(head), events: Vec::new() };
    let mut chunks = ChoiceWriter { writer: &mut writer, index: 0, logprobs: member(choice, "logprobs") };
    chunks.other_members(message);
    chunks.reasoning(message, &sent.reasoning);
    chunks.texts(message, &sent.content);
    chunks.calls(message);
    chunks.finish(choice, |object| write_others(answer, object));
    Some(writer.end(answer, shows_usage))
}

/// The message of the only choice of an answer.
pub(super) fn only_message(answer: &str) -> &str {
    choices(answer).first().and_then(|choice| object_member(choice, "message")).unwrap_or("{}")
}

fn choices(answer: &str) -> Vec<&str> {
    member(answer, "choices").into_iter().flat_map(json::elements).collect()
}

/// The members of an answer that are in every chunk.
fn head(answer: &str) -> Vec<(Cow<'_, str>, &str)> {
    json::members(answer).filter(|(name, value)| is_head(name, value)).collect()
}

/// The JSON of an object with the members of an answer that are in every chunk.
pub(super) fn head_json(answer: &str) -> String {
    let mut json = Vec::new();
    let mut object = ObjectWriter::begin(&mut json);
    head(answer).iter().for_each(|(name, value)| object.raw(name, value));
    object.end();
    String::from_utf8(json).unwrap_or_default()
}

/// The indices of choices. Clients join what has the same index, and so would read what no plugin saw: if two choices
/// claim one, their places count.
fn indices(choices: &[&str]) -> Vec<usize> {
    let index = |choice: &&str| member(choice, "index").and_then(|index| index.parse().ok());
    let claimed: Option<Vec<usize>> = choices.iter().map(index).collect();
    let is_unique = |indices: &Vec<usize>| HashSet::<&usize>::from_iter(indices).len() == choices.len();
    claimed.filter(is_unique).unwrap_or_else(|| (0..choices.len()).collect())
}

fn is_head(name: &str, value: &str) -> bool {
    HEAD.contains(&name) && value.len() <= MAX_HEAD_BYTES
}

/// Writes the members of an answer that aren't in every chunk.
fn write_others(answer: &str, object: &mut ObjectWriter<'_>) {
    let [id, created, model, fingerprint, tier] = HEAD;
    write_without(answer, &[id, created, model, fingerprint, tier, "object", "choices", "usage"], object);
}

/// Writes the members of an object but these.
fn write_without(members: &str, names: &[&str], object: &mut ObjectWriter<'_>) {
    let others = json::members(members).filter(|(name, _)| !names.contains(&&**name));
    others.for_each(|(name, value)| object.raw(&name, value));
}

/// The members of a message that have no chunks of their own.
fn other_members(message: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    json::members(message)
        .filter(|(name, _)| !MESSAGE_PARTS.contains(&&**name) && !REASONING.contains(&&**name))
}

/// Writes `tool_calls` with one element, whose members behind `index` are written by `write`.
fn write_call(delta: &mut ObjectWriter<'_>, index: usize, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    let calls = delta.member("tool_calls");
    calls.push(b'[');
    let mut call = ObjectWriter::begin(calls);
    call.raw("index", &index.to_string());
    write(&mut call);
    call.end();
    calls.push(b']');
}

/// A value in pieces, as JSON: only a string has several.
fn json_pieces(value: &str) -> Vec<String> {
    match string(value) {
        Some(text) => pieces(&text).map(quote).collect(),
        None => vec![value.to_owned()],
    }
}

/// The chunks so far.
struct ChunkWriter<'a> {
    head: Vec<(Cow<'a, str>, &'a str)>,
    events: Vec<Bytes>,
}

impl ChunkWriter<'_> {
    /// Adds a chunk with the members of the head and those that `write` adds.
    fn chunk(&mut self, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        let mut json = Vec::new();
        let mut object = ObjectWriter::begin(&mut json);
        self.head.iter().for_each(|(name, value)| object.raw(name, value));
        object.raw("object", "\"chat.completion.chunk\"");
        write(&mut object);
        object.end();
        self.events.push(sse::event("", &json));
    }

    /// Adds the usage of an answer, and the end.
    fn end(mut self, answer: &str, shows_usage: bool) -> StreamEvents {
        if let Some(usage) = member(answer, "usage").filter(|_| shows_usage) {
            self.chunk(|object| {
                object.raw("choices", "[]");
                object.raw("usage", usage);
            });
        }
        StreamEvents { answer: self.events, end: vec![Bytes::from_static(DONE)] }
    }
}

/// Writes the chunks of one choice.
struct ChoiceWriter<'a, 'w> {
    writer: &'w mut ChunkWriter<'a>,
    index: usize,
    /// Until they are written.
    logprobs: Option<&'a str>,
}

impl ChoiceWriter<'_, '_> {
    /// Adds a chunk with one choice, whose `delta` and other members, and the other members of the answer, are
    /// written by these functions.
    fn chunk(
        &mut self,
        delta: impl FnOnce(&mut ObjectWriter<'_>),
        write: impl FnOnce(&mut ObjectWriter<'_>),
        last: impl FnOnce(&mut ObjectWriter<'_>),
    ) {
        let index = self.index.to_string();
        self.writer.chunk(|object| {
            let choices = object.member("choices");
            choices.push(b'[');
            let mut choice = ObjectWriter::begin(choices);
            choice.raw("index", &index);
            let mut content = ObjectWriter::begin(choice.member("delta"));
            delta(&mut content);
            content.end();
            write(&mut choice);
            choice.end();
            choices.push(b']');
            last(object);
        });
    }

    fn delta(&mut self, delta: impl FnOnce(&mut ObjectWriter<'_>)) {
        self.chunk(delta, |choice| choice.raw("finish_reason", "null"), |_| {});
    }

    /// Adds a chunk with a piece of what the model says, and with the first one the probabilities of all of them.
    fn text(&mut self, name: &str, piece: &str) {
        let logprobs = self.logprobs.take();
        let write = |choice: &mut ObjectWriter<'_>| {
            logprobs.iter().for_each(|logprobs| choice.raw("logprobs", logprobs));
            choice.raw("finish_reason", "null");
        };
        self.chunk(|delta| delta.raw(name, piece), write, |_| {});
    }

    /// Adds the chunk that a message begins with; with the members that have no chunks of their own, if they are known.
    fn role(&mut self, message: &str, with_others: bool) {
        self.delta(|delta| {
            delta.raw("role", member(message, "role").unwrap_or("\"assistant\""));
            if with_others {
                other_members(message).for_each(|(name, value)| delta.raw(&name, value));
            }
        });
    }

    /// Adds the members that have no chunks of their own, if there are any.
    fn other_members(&mut self, message: &str) {
        let others: Vec<_> = other_members(message).collect();
        if !others.is_empty() {
            self.delta(|delta| others.iter().for_each(|(name, value)| delta.raw(name, value)));
        }
    }

    /// Adds the reasoning behind what was sent of it.
    fn reasoning(&mut self, message: &str, sent: &[(&'static str, String)]) {
        for name in REASONING {
            let Some(value) = member(message, name) else { continue };
            let sent = sent.iter().find(|(known, _)| *known == name).map_or("", |(_, sent)| sent);
            match string(value) {
                Some(text) if !sent.is_empty() => {
                    // What plugins made of it later can't take anything back.
                    let rest = text.strip_prefix(sent).filter(|rest| !rest.is_empty());
                    let pieces = rest.into_iter().flat_map(pieces).map(quote);
                    pieces.for_each(|piece| self.delta(|delta| delta.raw(name, &piece)));
                }
                _ => {
                    let pieces = json_pieces(value);
                    pieces.iter().for_each(|piece| self.delta(|delta| delta.raw(name, piece)));
                }
            }
        }
    }

    /// Adds the texts; the first one without `sent`, with which it begins.
    fn texts(&mut self, message: &str, sent: &str) {
        let content = member(message, "content");
        if sent.is_empty() {
            content.into_iter().flat_map(json_pieces).for_each(|piece| self.text("content", &piece));
        } else {
            let text = content.and_then(string).unwrap_or_default();
            let rest = text.get(sent.len()..).filter(|rest| !rest.is_empty());
            let pieces = rest.into_iter().flat_map(pieces);
            pieces.for_each(|piece| self.text("content", &quote(piece)));
        }
        let refusal = member(message, "refusal").into_iter().flat_map(json_pieces);
        refusal.for_each(|piece| self.text("refusal", &piece));
    }

    fn calls(&mut self, message: &str) {
        let calls = member(message, "tool_calls").into_iter().flat_map(json::elements);
        calls.enumerate().for_each(|(index, call)| self.call(index, call));
        if let Some(function) = object_member(message, "function_call") {
            self.inputs(function, "arguments", |delta, write| {
                let mut object = ObjectWriter::begin(delta.member("function_call"));
                write(&mut object);
                object.end();
            });
        }
    }

    /// Adds the chunks of an element of `tool_calls`.
    fn call(&mut self, index: usize, call: &str) {
        let forms = [("function", "arguments"), ("custom", "input")];
        let form =
            forms.into_iter().find_map(|(name, input)| Some((name, input, object_member(call, name)?)));
        let Some((form, input, function)) = form else {
            // Only an answer that no plugin judges may have it.
            self.delta(|delta| write_call(delta, index, |object| write_without(call, &["index"], object)));
            return;
        };
        let mut is_first = true;
        self.inputs(function, input, |delta, write| {
            write_call(delta, index, |object| {
                if std::mem::take(&mut is_first) {
                    write_without(call, &["index", form], object);
                }
                let mut called = ObjectWriter::begin(object.member(form));
                write(&mut called);
                called.end();
            });
        });
    }

    /// Adds a chunk for each piece of the arguments of `function`, the first one with its other members. `wrap` writes
    /// what is around it.
    fn inputs(
        &mut self,
        function: &str,
        input: &str,
        mut wrap: impl FnMut(&mut ObjectWriter<'_>, &dyn Fn(&mut ObjectWriter<'_>)),
    ) {
        let pieces = json_pieces(member(function, input).unwrap_or("\"\""));
        for (place, piece) in pieces.iter().enumerate() {
            let write = |object: &mut ObjectWriter<'_>| {
                if place == 0 {
                    write_without(function, &[input], object);
                }
                object.raw(input, piece);
            };
            self.delta(|delta| wrap(delta, &write));
        }
    }

    /// Adds the chunk that ends the choice, with the members that no other chunk has; `last` adds those of the answer.
    fn finish(mut self, choice: &str, last: impl FnOnce(&mut ObjectWriter<'_>)) {
        let logprobs = self.logprobs.take();
        let write = |object: &mut ObjectWriter<'_>| {
            logprobs.iter().for_each(|logprobs| object.raw("logprobs", logprobs));
            object.raw("finish_reason", member(choice, "finish_reason").unwrap_or("null"));
            for (name, value) in json::members(choice) {
                // A `delta` beside ours would be text that no plugin saw. Some clients ignore the case of names.
                let is_delta = name.eq_ignore_ascii_case("delta");
                if !is_delta && !matches!(&*name, "index" | "message" | "finish_reason" | "logprobs") {
                    object.raw(&name, value);
                }
            }
        };
        self.chunk(|_| {}, write, last);
    }
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
