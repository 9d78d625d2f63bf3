//! [`AnswerAssembly`]: the chunks of a streamed answer, merged into the bytes of a whole one.
//!
//! Text is joined only where the SDKs of OpenAI join it: in a choice's `delta`, and the lists of `logprobs`. Everything
//! else is repeated by some providers in each chunk (`provider`, `citations`, `content_filter_results`), so there the last
//! value counts. Null and empty values replace nothing.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use bytes::Bytes;

use super::answer_texts::REASONING;
use crate::{
    json::{self, MAX_DEPTH, ValueKind},
    llm::{
        answer_json::{check_event, invalid},
        format::{AnswerError, FormatAssembly, StreamProgress},
        merged::{Account, Members, MergeResult, MergedValue, NODE_BYTES, ObjectWriter, Rule, too_large},
        sse::SseEvent,
        value::{kind, member, object_member, quote, string, string_member},
    },
};

/// Most choices of an answer.
const MAX_CHOICES: u8 = 128;

/// Most tool calls of a choice.
const MAX_CALLS: usize = 1024;

/// Padding that hides the length of a token.
const PADDING: &str = "obfuscation";

fn is_truthy(value: &str) -> bool {
    match kind(value) {
        ValueKind::Null => false,
        ValueKind::Boolean => value == "true",
        ValueKind::Number => value.parse::<f64>().is_ok_and(|number| number != 0.0),
        ValueKind::String => value != "\"\"",
        ValueKind::Object | ValueKind::Array => true,
    }
}

/// What is known so far of a streamed answer.
#[derive(Debug)]
pub(crate) struct AnswerAssembly {
    account: Account,
    members: Members,
    choices: BTreeMap<u8, Choice>,
}

impl FormatAssembly for AnswerAssembly {
    fn new(limit: usize) -> Self {
        AnswerAssembly { account: Account::new(limit), members: Members::default(), choices: BTreeMap::new() }
    }

    /// Reads an event as the SDKs of OpenAI do.
    fn push(&mut self, event: &SseEvent) -> Result<StreamProgress, AnswerError> {
        let data = event.data.as_str();
        if data.trim() == "[DONE]" || data.starts_with("[DONE]") {
            return Ok(StreamProgress::Done);
        }
        let is_json = || json::scan(data.as_bytes(), MAX_DEPTH).is_ok();
        if event.name == "error" || (member(data, "error").is_some_and(is_truthy) && is_json()) {
            return Ok(StreamProgress::Failed);
        }
        self.push_chunk(data).map(|()| StreamProgress::GoesOn)
    }

    fn held(&self) -> usize {
        self.account.held()
    }

    fn has_choices(&self) -> bool {
        !self.choices.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.has_choices() && self.choices.values().all(Choice::is_finished)
    }

    fn drop_open_calls(&mut self) {
        for choice in self.choices.values_mut().filter(|choice| !choice.is_finished()) {
            choice.calls = Calls::default();
            choice.function_call = None;
        }
    }

    fn body(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.account.held());
        let mut object = ObjectWriter::begin(&mut out);
        self.members.write_only("id", &mut object);
        object.raw("object", "\"chat.completion\"");
        self.members.write_except(&["id", "usage"], &mut object);
        let list = object.member("choices");
        list.push(b'[');
        for (place, (index, choice)) in self.choices.iter().enumerate() {
            if place > 0 {
                list.push(b',');
            }
            choice.write(*index, list);
        }
        list.push(b']');
        self.members.write_only("usage", &mut object);
        object.end();
        out.into()
    }

    fn first_text(&self) -> Option<Cow<'_, str>> {
        let choice = self.choices.get(&0).filter(|_| self.choices.len() == 1)?;
        match choice.message.get("content") {
            Some(MergedValue::Text(text)) if !text.is_empty() => Some(Cow::Borrowed(text)),
            _ => None,
        }
    }
}

impl AnswerAssembly {
    /// Takes the data of an event.
    pub(super) fn push_chunk(&mut self, data: &str) -> MergeResult {
        check_event(data, "a chunk", MAX_DEPTH)?;
        for (name, value) in json::members(data) {
            match &*name {
                PADDING | "object" => {}
                "choices" => self.push_choices(value)?,
                _ => self.members.merge(&name, value, Rule::Replace, &mut self.account)?,
            }
        }
        Ok(())
    }

    fn push_choices(&mut self, choices: &str) -> MergeResult {
        match kind(choices) {
            ValueKind::Array => {}
            ValueKind::Null => return Ok(()),
            other => return invalid(format!("`choices` of a chunk is {other}")),
        }
        for choice in json::elements(choices) {
            if kind(choice) != ValueKind::Object {
                return invalid(format!("a choice in a chunk is {}", kind(choice)));
            }
            let index = member(choice, "index").unwrap_or("0");
            let Some(index) = index.parse().ok().filter(|index: &u8| *index < MAX_CHOICES) else {
                return invalid("a choice in a chunk has an `index` that is not an integer from 0 to 127");
            };
            if !self.choices.contains_key(&index) {
                self.account.charge(4 * NODE_BYTES)?;
            }
            self.choices.entry(index).or_default().merge(choice, &mut self.account)?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Choice {
    message: Members,
    calls: Calls,
    function_call: Option<Function>,
    members: Members,
}

impl Choice {
    fn is_finished(&self) -> bool {
        self.members.get("finish_reason").is_some_and(|reason| !reason.is_null())
    }

    fn merge(&mut self, choice: &str, account: &mut Account) -> MergeResult {
        for (name, value) in json::members(choice) {
            match (&*name, value) {
                ("delta", _) => self.merge_delta(value, account)?,
                // Some servers end with the whole message: it repeats the deltas.
                (PADDING | "index" | "message", _) => {}
                // Some servers write an empty reason as long as there is none.
                ("finish_reason", "\"\"") => {}
                ("logprobs", _) => self.members.merge(&name, value, Rule::Append, account)?,
                _ => self.members.merge(&name, value, Rule::Replace, account)?,
            }
        }
        Ok(())
    }

    fn merge_delta(&mut self, delta: &str, account: &mut Account) -> MergeResult {
        match kind(delta) {
            ValueKind::Object => {}
            ValueKind::Null => return Ok(()),
            other => return invalid(format!("a `delta` is {other}")),
        }
        for (name, value) in json::members(delta) {
            match (&*name, kind(value)) {
                (PADDING, _) | ("tool_calls" | "function_call", ValueKind::Null) => {}
                ("tool_calls", ValueKind::Array) => {
                    json::elements(value).try_for_each(|call| self.calls.merge(call, account))?;
                }
                ("function_call", ValueKind::Object) => {
                    self.function_call.get_or_insert_default().merge(value, "arguments", account)?;
                }
                ("tool_calls" | "function_call", other) => {
                    return invalid(format!("`{name}` of a delta is {other}"));
                }
                ("content", _)
                    if self.message.get("content").is_some_and(|known| known.clashes_with(value)) =>
                {
                    return invalid("`content` is a text in one chunk and a list in another");
                }
                _ if name == "content" || REASONING.contains(&&*name) => {
                    self.message.merge(&name, value, Rule::AppendTexts, account)?;
                }
                _ => self.message.merge(&name, value, Rule::Append, account)?,
            }
        }
        Ok(())
    }

    fn write(&self, index: u8, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        object.raw("index", &index.to_string());
        let mut message = ObjectWriter::begin(object.member("message"));
        self.message.write_or("role", "\"assistant\"", &mut message);
        self.message.write_or("content", "null", &mut message);
        self.message.write_except(&["role", "content"], &mut message);
        self.calls.write(&mut message);
        if let Some(call) = &self.function_call {
            call.write("arguments", message.member("function_call"));
        }
        message.end();
        self.members.write_only("logprobs", &mut object);
        self.members.write_or("finish_reason", "null", &mut object);
        self.members.write_except(&["logprobs", "finish_reason"], &mut object);
        object.end();
    }
}

/// The tool calls of a choice, in the order in which they began.
#[derive(Debug, Default)]
struct Calls {
    list: Vec<Call>,
    /// The latest call of each `index`.
    by_index: HashMap<u64, usize>,
    /// The call that the last element belongs to.
    last: Option<usize>,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    function: Option<Function>,
    custom: Option<Function>,
    members: Members,
}

impl Calls {
    fn merge(&mut self, part: &str, account: &mut Account) -> MergeResult {
        if kind(part) != ValueKind::Object {
            return invalid(format!("an element of `tool_calls` is {}", kind(part)));
        }
        let id = member(part, "id").unwrap_or("\"\"");
        let Some(id) = string(id) else { return invalid(format!("the `id` of a tool call is {}", kind(id))) };
        let index = match member(part, "index").map(str::parse) {
            Some(Err(_)) => return invalid("the `index` of a tool call is not an integer from 0"),
            Some(Ok(index)) => Some(index),
            None => None,
        };
        let continued = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.last.filter(|_| !has_name(part)),
        };
        let is_same = |place: &usize| {
            let known = &self.list[*place].id;
            id.is_empty() || *known == id || (known.is_empty() && index.is_some())
        };
        let place = match continued.filter(is_same) {
            Some(place) => place,
            None => self.begin(index, account)?,
        };
        self.last = Some(place);
        let call = &mut self.list[place];
        if call.id.is_empty() {
            account.charge(id.len())?;
            call.id.push_str(&id);
        }
        call.merge(part, account)
    }

    fn begin(&mut self, index: Option<u64>, account: &mut Account) -> Result<usize, AnswerError> {
        if self.list.len() == MAX_CALLS {
            return Err(too_large());
        }
        account.charge(4 * NODE_BYTES)?;
        let place = self.list.len();
        self.list.push(Call::default());
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
        Ok(place)
    }

    fn write(&self, message: &mut ObjectWriter<'_>) {
        if self.list.is_empty() {
            return;
        }
        let out = message.member("tool_calls");
        for (place, call) in self.list.iter().enumerate() {
            out.push(if place == 0 { b'[' } else { b',' });
            let mut object = ObjectWriter::begin(out);
            if !call.id.is_empty() {
                object.raw("id", &quote(&call.id));
            }
            call.members.write_except(&[], &mut object);
            if let Some(function) = &call.function {
                function.write("arguments", object.member("function"));
            }
            if let Some(custom) = &call.custom {
                custom.write("input", object.member("custom"));
            }
            object.end();
        }
        out.push(b']');
    }
}

fn has_name(call: &str) -> bool {
    let called = object_member(call, "function").or_else(|| object_member(call, "custom"));
    called.and_then(|called| string_member(called, "name")).is_some_and(|name| !name.is_empty())
}

impl Call {
    fn merge(&mut self, part: &str, account: &mut Account) -> MergeResult {
        for (name, value) in json::members(part) {
            match (&*name, kind(value)) {
                ("id" | "index", _) | ("function" | "custom", ValueKind::Null) => {}
                ("function", ValueKind::Object) => {
                    self.function.get_or_insert_default().merge(value, "arguments", account)?;
                }
                ("custom", ValueKind::Object) => {
                    self.custom.get_or_insert_default().merge(value, "input", account)?;
                }
                ("function" | "custom", other) => {
                    return invalid(format!("`{name}` of a tool call is {other}"));
                }
                _ => self.members.merge(&name, value, Rule::Append, account)?,
            }
        }
        Ok(())
    }
}

/// What is called, and with what.
#[derive(Debug, Default)]
struct Function {
    name: String,
    /// `arguments` or `input`: text, or an object of some servers.
    input: Option<MergedValue>,
    members: Members,
}

impl Function {
    /// Merges the next part, with the arguments in its member `input`.
    fn merge(&mut self, part: &str, input: &str, account: &mut Account) -> MergeResult {
        for (name, value) in json::members(part) {
            if name == "name" {
                self.merge_name(value, account)?;
            } else if name == input {
                // An object is kept as it is. Only text goes on in the next part.
                let rule = if kind(value) == ValueKind::String { Rule::Append } else { Rule::Whole };
                match &mut self.input {
                    Some(known) => known.merge(value, rule, account)?,
                    None => self.input = Some(MergedValue::new(value, rule, account)?),
                }
            } else {
                self.members.merge(&name, value, Rule::Append, account)?;
            }
        }
        Ok(())
    }

    fn merge_name(&mut self, value: &str, account: &mut Account) -> MergeResult {
        match (kind(value), string(value)) {
            (ValueKind::Null, _) => Ok(()),
            // Some servers repeat the name in each part.
            (_, Some(name)) if name == self.name => Ok(()),
            (_, Some(name)) => {
                account.charge(name.len())?;
                self.name.push_str(&name);
                Ok(())
            }
            (other, None) => invalid(format!("the `name` of a tool call is {other}")),
        }
    }

    fn write(&self, input: &str, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        object.raw("name", &quote(&self.name));
        let out = object.member(input);
        match &self.input {
            Some(known) if !known.is_null() => known.write(out),
            _ => out.extend_from_slice(b"\"\""),
        }
        self.members.write_except(&[], &mut object);
        object.end();
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
