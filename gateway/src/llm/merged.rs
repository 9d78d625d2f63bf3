//! JSON values that grow as the events of a stream are merged into them.

use std::{collections::HashMap, sync::Arc};

use super::format::AnswerError;
use crate::{
    json::{self, ValueKind},
    llm::value::{kind, member, quote, string, string_member},
};

/// What a member or an element takes beside its text, about, in bytes.
pub(super) const NODE_BYTES: usize = 64;

/// Up to this many members, comparing all names is cheaper than hashing.
const MAX_LINEAR_NAMES: usize = 16;

/// Members that are never text, so that they are repeated and not continued.
const REPEATED: [&str; 11] = [
    "id",
    "type",
    "role",
    "object",
    "model",
    "created",
    "format",
    "system_fingerprint",
    "service_tier",
    "finish_reason",
    "index",
];

/// The members of reasoning and of content parts that hold text, directly or in parts.
pub(super) const TEXT_MEMBERS: [&str; 8] =
    ["thinking", "reasoning", "reasoningText", "reasoning_text", "text", "refusal", "summary", "content"];

pub(super) type MergeResult = Result<(), AnswerError>;

/// The error for an answer that there is no room for.
pub(super) fn too_large() -> AnswerError {
    AnswerError::TooLarge("the answer is too large to be held".to_owned())
}

/// How many bytes are held, and may be.
#[derive(Debug)]
pub(super) struct Account {
    held: usize,
    limit: usize,
}

impl Account {
    pub(super) fn new(limit: usize) -> Self {
        Account { held: 0, limit }
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Called before anything is held.
    pub(super) fn charge(&mut self, bytes: usize) -> MergeResult {
        let held = self.held.saturating_add(bytes);
        if held > self.limit {
            return Err(too_large());
        }
        self.held = held;
        Ok(())
    }
}

/// How a value joins the one that is there. Objects join member by member, except in [`Rule::Whole`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Strings and lists go on. Other values count as in [`Rule::Replace`].
    Append,
    /// As [`Rule::Append`], for a list of texts that may be cut anywhere: the first element of a list goes on with the last one of the
    /// list before.
    AppendTexts,
    /// The last value counts.
    Replace,
    /// The last value counts, objects too.
    Whole,
}

/// A value so far.
#[derive(Debug)]
pub(super) enum MergedValue {
    /// A string that goes on, without quotes and escapes.
    Text(String),
    /// JSON text that is replaced as a whole.
    Raw(String),
    Object(Box<Members>),
    List(Box<List>),
}

impl MergedValue {
    pub(super) fn new(value: &str, rule: Rule, account: &mut Account) -> Result<MergedValue, AnswerError> {
        Ok(match (kind(value), rule) {
            (ValueKind::String, Rule::Append | Rule::AppendTexts) => {
                let text = json::unescape(value);
                account.charge(text.len())?;
                MergedValue::Text(text.into_owned())
            }
            (ValueKind::Array, Rule::Append | Rule::AppendTexts) => {
                let mut list = Box::<List>::default();
                list.append(value, rule, account)?;
                MergedValue::List(list)
            }
            (ValueKind::Object, Rule::Append | Rule::AppendTexts | Rule::Replace) => {
                let mut members = Box::<Members>::default();
                members.merge_all(value, rule, account)?;
                MergedValue::Object(members)
            }
            _ => {
                account.charge(value.len())?;
                MergedValue::Raw(value.to_owned())
            }
        })
    }

    /// Merges the next value. If it is of another kind, it replaces the one that is there.
    pub(super) fn merge(&mut self, value: &str, rule: Rule, account: &mut Account) -> MergeResult {
        if value == "null" || (is_empty(value) && !self.is_null()) {
            return Ok(());
        }
        match (&mut *self, kind(value), rule) {
            (MergedValue::Text(known), ValueKind::String, Rule::Append | Rule::AppendTexts) => {
                let text = json::unescape(value);
                account.charge(text.len())?;
                known.push_str(&text);
            }
            (MergedValue::List(known), ValueKind::Array, Rule::Append | Rule::AppendTexts) => {
                known.append(value, rule, account)?;
            }
            (
                MergedValue::Object(known),
                ValueKind::Object,
                Rule::Append | Rule::AppendTexts | Rule::Replace,
            ) => {
                known.merge_all(value, rule, account)?;
            }
            (MergedValue::Raw(known), ValueKind::Number | ValueKind::Boolean, _)
            | (MergedValue::Raw(known), ValueKind::String | ValueKind::Array, Rule::Replace)
            | (MergedValue::Raw(known), _, Rule::Whole) => {
                // A value that comes in each chunk must not be charged each time, so its memory is used again.
                account.charge(value.len().saturating_sub(known.capacity()))?;
                known.clear();
                known.reserve_exact(value.len());
                known.push_str(value);
            }
            (known, ..) => *known = MergedValue::new(value, rule, account)?,
        }
        Ok(())
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, MergedValue::Raw(raw) if raw == "null")
    }

    /// Whether one of two contents is text and the other a list, and both have something in them.
    pub(super) fn clashes_with(&self, value: &str) -> bool {
        let is_other = match self {
            MergedValue::Text(text) => !text.is_empty() && kind(value) == ValueKind::Array,
            MergedValue::List(list) => !list.elements.is_empty() && kind(value) == ValueKind::String,
            MergedValue::Raw(_) | MergedValue::Object(_) => false,
        };
        is_other && !is_empty(value)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            MergedValue::Text(text) => out.extend_from_slice(quote(text).as_bytes()),
            MergedValue::Raw(raw) => out.extend_from_slice(raw.as_bytes()),
            MergedValue::Object(members) => {
                let mut object = ObjectWriter::begin(out);
                members.write_except(&[], &mut object);
                object.end();
            }
            MergedValue::List(list) => {
                out.push(b'[');
                for (place, element) in list.elements.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
        }
    }
}

fn is_empty(value: &str) -> bool {
    match kind(value) {
        ValueKind::String => value == "\"\"",
        ValueKind::Array => json::elements(value).next().is_none(),
        _ => false,
    }
}

/// The elements of a list so far.
#[derive(Debug, Default)]
pub(super) struct List {
    elements: Vec<MergedValue>,
    /// The latest element of each `index`.
    by_index: HashMap<i64, usize>,
}

impl List {
    fn append(&mut self, list: &str, rule: Rule, account: &mut Account) -> MergeResult {
        for (place, element) in json::elements(list).enumerate() {
            let is_object = kind(element) == ValueKind::Object;
            let index = member(element, "index").filter(|_| is_object).and_then(|index| index.parse().ok());
            let Some(index) = index else {
                let last = self.elements.last_mut().filter(|_| place == 0 && rule == Rule::AppendTexts);
                match last.filter(|last| is_rest_of(last, element)) {
                    Some(last) => last.merge(element, rule, account)?,
                    None => {
                        account.charge(NODE_BYTES)?;
                        let rule = if rule == Rule::AppendTexts { rule } else { Rule::Whole };
                        self.elements.push(MergedValue::new(element, rule, account)?);
                    }
                }
                continue;
            };
            match self
                .by_index
                .get(&index)
                .filter(|place| !is_of_other_type(&self.elements[**place], element))
            {
                Some(place) => self.elements[*place].merge(element, rule, account)?,
                None => {
                    account.charge(NODE_BYTES)?;
                    let element = MergedValue::new(element, rule, account)?;
                    self.by_index.insert(index, self.elements.len());
                    self.elements.push(element);
                }
            }
        }
        Ok(())
    }
}

/// Whether `element` is the rest of a text that the stream was cut in: both are strings, or objects with text that are of one type and
/// not told apart by an index or an id. A thought of Mistral's is `closed` at its end.
fn is_rest_of(last: &MergedValue, element: &str) -> bool {
    let MergedValue::Object(members) = last else {
        return matches!(last, MergedValue::Text(_)) && kind(element) == ValueKind::String;
    };
    let has_text = TEXT_MEMBERS.iter().any(|name| member(element, name).is_some());
    let is_closed = matches!(members.get("closed"), Some(MergedValue::Raw(closed)) if closed == "true");
    let known_id = members.get("id").filter(|id| !id.is_null());
    let is_same_id = |id: &MergedValue| match (id, member(element, "id")) {
        (MergedValue::Raw(known), Some(id)) => known == id || id == "null",
        (_, id) => id.is_none(),
    };
    has_text
        && !is_closed
        && members.get("index").is_none()
        && known_id.is_none_or(is_same_id)
        && (members.get("type").is_some() || member(element, "type").is_none())
        && !is_of_other_type(last, element)
}

/// Whether two elements have types, and not the same: OpenRouter gives a summary and a signature the same index.
fn is_of_other_type(known: &MergedValue, element: &str) -> bool {
    let MergedValue::Object(members) = known else { return true };
    let known = match members.get("type") {
        Some(MergedValue::Raw(raw)) => string(raw),
        _ => None,
    };
    let is_set = |text: &std::borrow::Cow<'_, str>| !text.is_empty();
    match (known.filter(is_set), string_member(element, "type").filter(is_set)) {
        (Some(known), Some(next)) => known != next,
        _ => false,
    }
}

/// The members of an object so far, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Members {
    list: Vec<(Arc<str>, MergedValue)>,
    /// Where each member is, if there are many.
    places: HashMap<Arc<str>, usize>,
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&MergedValue> {
        self.place(name).map(|place| &self.list[place].1)
    }

    /// Merges the next value of a member.
    pub(super) fn merge(
        &mut self,
        name: &str,
        value: &str,
        rule: Rule,
        account: &mut Account,
    ) -> MergeResult {
        let is_appended = matches!(rule, Rule::Append | Rule::AppendTexts);
        let rule = if is_appended && REPEATED.contains(&name) { Rule::Replace } else { rule };
        if let Some(place) = self.place(name) {
            return self.list[place].1.merge(value, rule, account);
        }
        account.charge(NODE_BYTES + name.len())?;
        let value = MergedValue::new(value, rule, account)?;
        self.list.push((name.into(), value));
        let indexed = self.places.len();
        if self.list.len() > MAX_LINEAR_NAMES {
            let unindexed = self.list.iter().enumerate().skip(indexed);
            self.places.extend(unindexed.map(|(place, (name, _))| (Arc::clone(name), place)));
        }
        Ok(())
    }

    fn merge_all(&mut self, object: &str, rule: Rule, account: &mut Account) -> MergeResult {
        json::members(object).try_for_each(|(name, value)| self.merge(&name, value, rule, account))
    }

    fn place(&self, name: &str) -> Option<usize> {
        if self.list.len() > MAX_LINEAR_NAMES {
            return self.places.get(name).copied();
        }
        self.list.iter().position(|(known, _)| &**known == name)
    }

    /// Writes one member, if it is there.
    pub(super) fn write_only(&self, name: &str, object: &mut ObjectWriter<'_>) {
        if let Some(value) = self.get(name) {
            value.write(object.member(name));
        }
    }

    /// Writes one member; if it isn't there, or null, with this JSON.
    pub(super) fn write_or(&self, name: &str, default: &str, object: &mut ObjectWriter<'_>) {
        match self.get(name).filter(|value| !value.is_null()) {
            Some(value) => value.write(object.member(name)),
            None => object.member(name).extend_from_slice(default.as_bytes()),
        }
    }

    /// Writes all members but these.
    pub(super) fn write_except(&self, names: &[&str], object: &mut ObjectWriter<'_>) {
        for (name, value) in self.list.iter().filter(|(name, _)| !names.contains(&&**name)) {
            value.write(object.member(name));
        }
    }
}

/// Writes the JSON of an object.
pub(super) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> ObjectWriter<'a> {
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        ObjectWriter { out, is_empty: true }
    }

    /// Begins a member. Its value is to be written next.
    pub(super) fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out.extend_from_slice(quote(name).as_bytes());
        self.out.push(b':');
        self.out
    }

    /// Writes a member whose value is JSON already.
    pub(super) fn raw(&mut self, name: &str, json: &str) {
        self.member(name).extend_from_slice(json.as_bytes());
    }

    pub(super) fn end(self) {
        self.out.push(b'}');
    }
}
