//! Edits of a text: spans and their replacements, applied in one pass. [`ObjectEdit`] and [`ArrayEdit`] change parts
//! of JSON text, which may lie anywhere in it. Everything outside the spans stays byte for byte.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use bytes::Bytes;

use super::value::quote;
use crate::json;

/// Spans of a text that don't overlap, and what replaces them.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    list: Vec<(Range<usize>, String)>,
}

impl Edits {
    /// Replaces a span. An empty span is an insertion in front of what begins there.
    pub(crate) fn replace(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.list.push((span, text.into()));
    }

    /// Whether nothing is changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The edited text. Without edits it shares the memory of the old one.
    pub(crate) fn apply(self, text: &Bytes) -> Bytes {
        if self.list.is_empty() { text.clone() } else { self.splice(text).into() }
    }

    /// The edited text.
    pub(crate) fn apply_to_str(self, text: &str) -> String {
        String::from_utf8(self.splice(text.as_bytes())).expect("JSON tokens begin and end at characters")
    }

    fn splice(mut self, text: &[u8]) -> Vec<u8> {
        // The sort is stable: insertions at one place keep their order, and come before what is removed there.
        self.list.sort_by_key(|(span, _)| (span.start, span.end));
        let added: usize = self.list.iter().map(|(_, text)| text.len()).sum();
        let mut edited = Vec::with_capacity(text.len() + added);
        let mut at = 0;
        for (span, replacement) in self.list {
            debug_assert!(at <= span.start, "edits overlap at byte {at}");
            edited.extend_from_slice(text.get(at..span.start).unwrap_or_default());
            edited.extend_from_slice(replacement.as_bytes());
            at = at.max(span.end);
        }
        edited.extend_from_slice(text.get(at..).unwrap_or_default());
        edited
    }
}

/// Where `part`, a slice of `root`, is in it.
pub(crate) fn span_in(root: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(root.as_ptr().addr());
    start..start + part.len()
}

/// An object's text with some members changed.
pub(crate) fn edit_object(object: &str, change: impl FnOnce(&mut ObjectEdit<'_>)) -> String {
    let mut edits = Edits::default();
    let mut edit = ObjectEdit::new(object, object);
    change(&mut edit);
    edit.finish(&mut edits);
    edits.apply_to_str(object)
}

/// What happens to a member or an element.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Keep,
    Replace(String),
    Remove,
}

/// Changes of the members of one object.
#[derive(Debug)]
pub(crate) struct ObjectEdit<'a> {
    keys: Vec<Cow<'a, str>>,
    /// The place of each key. A body may have very many.
    places: HashMap<Cow<'a, str>, usize>,
    items: Items<'a>,
}

impl<'a> ObjectEdit<'a> {
    /// Changes `object`, a slice of `root`.
    pub(crate) fn new(root: &'a str, object: &'a str) -> Self {
        // What is changed begins behind the bracket, so white space in front of it doesn't belong to the object.
        let object = object.trim_ascii();
        debug_assert!(object.starts_with('{'), "only objects have members to change");
        let (keys, values): (Vec<_>, _) = json::members(object).unzip();
        let places = keys.iter().cloned().enumerate().map(|(place, key)| (key, place)).collect();
        ObjectEdit { keys, places, items: Items::new(root, object, values) }
    }

    /// The old value of a member.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.position(name).map(|index| self.items.values[index])
    }

    /// Removes the old members that `is_kept` doesn't take by name and value, and returns their names. Those with a new
    /// value stay.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let mut removed = Vec::new();
        for (index, key) in self.keys.iter().enumerate() {
            let is_replaced = matches!(self.items.changes[index], Change::Replace(_));
            if !is_replaced && !is_kept(key, self.items.values[index]) {
                self.items.changes[index] = Change::Remove;
                removed.push(key.clone().into_owned());
            }
        }
        removed
    }

    /// Gives a member this value, in its old place if it has one. At most once for each member.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        match self.position(name) {
            Some(index) => self.items.changes[index] = Change::Replace(value.into()),
            None => self.items.last.push(format!("{}:{}", quote(name), value.into())),
        }
    }

    /// Like [`Self::set`], for a member that is there.
    pub(crate) fn set_existing(&mut self, name: &str, value: impl Into<String>) {
        if self.position(name).is_some() {
            self.set(name, value);
        }
    }

    /// Removes a member, if it is there.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(index) = self.position(name) {
            self.items.changes[index] = Change::Remove;
        }
    }

    /// Adds the changes to `edits` of the root.
    pub(crate) fn finish(self, edits: &mut Edits) {
        self.items.finish(edits);
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }
}

/// Changes of the elements of one array.
#[derive(Debug)]
pub(crate) struct ArrayEdit<'a> {
    items: Items<'a>,
}

impl<'a> ArrayEdit<'a> {
    /// Changes `array`, a slice of `root`.
    pub(crate) fn new(root: &'a str, array: &'a str) -> Self {
        let array = array.trim_ascii();
        ArrayEdit { items: Items::new(root, array, json::elements(array).collect()) }
    }

    /// The old elements.
    pub(crate) fn elements(&self) -> &[&'a str] {
        &self.items.values
    }

    /// Replaces an element.
    pub(crate) fn replace(&mut self, index: usize, value: impl Into<String>) {
        self.items.changes[index] = Change::Replace(value.into());
    }

    /// Removes an element.
    pub(crate) fn remove(&mut self, index: usize) {
        self.items.changes[index] = Change::Remove;
    }

    /// Adds an element in front of the old ones.
    pub(crate) fn push_front(&mut self, value: String) {
        self.items.first.insert(0, value);
    }

    /// Adds an element behind all others.
    pub(crate) fn push_back(&mut self, value: String) {
        self.items.last.push(value);
    }

    /// Whether no element will be left.
    pub(crate) fn is_emptied(&self) -> bool {
        !self.items.keeps_any() && self.items.first.is_empty() && self.items.last.is_empty()
    }

    /// Adds the changes to `edits` of the root.
    pub(crate) fn finish(self, edits: &mut Edits) {
        self.items.finish(edits);
    }
}

/// What objects and arrays have in common: values between brackets, with commas between them.
#[derive(Debug)]
struct Items<'a> {
    root: &'a str,
    container: &'a str,
    values: Vec<&'a str>,
    changes: Vec<Change>,
    first: Vec<String>,
    last: Vec<String>,
}

impl<'a> Items<'a> {
    fn new(root: &'a str, container: &'a str, values: Vec<&'a str>) -> Self {
        let changes = vec![Change::Keep; values.len()];
        Items { root, container, values, changes, first: Vec::new(), last: Vec::new() }
    }

    fn keeps_any(&self) -> bool {
        self.changes.iter().any(|change| *change != Change::Remove)
    }

    fn finish(self, edits: &mut Edits) {
        let keeps_any = self.keeps_any();
        let container = span_in(self.root, self.container);
        let (open, close) = (container.start + 1, container.end.saturating_sub(1));
        let ends: Vec<usize> = self.values.iter().map(|value| span_in(self.root, value).end).collect();
        if !self.first.is_empty() {
            let comma = if keeps_any || !self.last.is_empty() { "," } else { "" };
            edits.replace(open..open, self.first.join(",") + comma);
        }
        // The removed values at the beginning go with the comma behind them, any others with that in front of them.
        let leading = self.changes.iter().take_while(|change| **change == Change::Remove).count();
        if leading > 0 {
            let end = if keeps_any { after_comma(self.root, ends[leading - 1]) } else { close };
            edits.replace(open..end, "");
        }
        for (index, change) in self.changes.into_iter().enumerate().skip(leading) {
            match change {
                Change::Keep => {}
                Change::Replace(text) => edits.replace(span_in(self.root, self.values[index]), text),
                Change::Remove => edits.replace(ends[index - 1]..ends[index], ""),
            }
        }
        if !self.last.is_empty() {
            let last = self.last.join(",");
            match ends.last().filter(|_| keeps_any) {
                Some(end) => edits.replace(*end..*end, format!(",{last}")),
                None => edits.replace(close..close, last),
            }
        }
    }
}

/// The place behind the next comma at or after `at`.
fn after_comma(root: &str, at: usize) -> usize {
    root.get(at..).and_then(|rest| rest.find(',')).map_or(at, |comma| at + comma + 1)
}

#[cfg(test)]
#[path = "edits_tests.rs"]
mod tests;
