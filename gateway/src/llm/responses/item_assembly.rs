//! One item of a streamed answer: how it begins, and what its deltas add until it is done.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    json::{self, ValueKind},
    llm::{
        answer_json::invalid,
        format::AnswerError,
        merged::{Account, MergeResult, NODE_BYTES, ObjectWriter},
        value::{kind, member, quote, string_member},
    },
};

use super::{
    answer::{first_text, is_of_model, output_text, parts},
    items::ItemKind,
};

/// A list of texts in an item.
#[derive(Debug)]
pub(super) struct ListForm {
    /// The type of the items that have it.
    pub(super) item: &'static str,
    /// The member of the item.
    pub(super) list: &'static str,
    /// The type of the events of its parts, without `.added` and `.done`.
    pub(super) event: &'static str,
    /// The member of events with the place of a part.
    pub(super) index: &'static str,
}

/// A text that comes in deltas.
#[derive(Debug)]
pub(super) struct TextForm {
    /// The type of its events, without `.delta` and `.done`.
    pub(super) event: &'static str,
    /// The type of the items that have it.
    pub(super) item: &'static str,
    /// The list and the type of the parts that have it. Without them it is a member of the item.
    pub(super) part: Option<(&'static ListForm, &'static str)>,
    /// The member with the text, also in the event that ends it.
    pub(super) member: &'static str,
}

pub(super) const MESSAGE: ListForm =
    ListForm { item: "message", list: "content", event: "response.content_part", index: "content_index" };
const SUMMARY: ListForm = ListForm {
    item: "reasoning",
    list: "summary",
    event: "response.reasoning_summary_part",
    index: "summary_index",
};
const THOUGHTS: ListForm =
    ListForm { item: "reasoning", list: "content", event: "response.content_part", index: "content_index" };

/// The lists that the SDKs of OpenAI join, in the order of their events.
pub(super) const LIST_FORMS: [&ListForm; 3] = [&MESSAGE, &SUMMARY, &THOUGHTS];

/// The text of a message.
pub(super) const OUTPUT_TEXT: TextForm = TextForm {
    event: "response.output_text",
    item: "message",
    part: Some((&MESSAGE, "output_text")),
    member: "text",
};

/// The texts that they join.
pub(super) const TEXT_FORMS: [TextForm; 6] = [
    OUTPUT_TEXT,
    TextForm {
        event: "response.refusal",
        item: "message",
        part: Some((&MESSAGE, "refusal")),
        member: "refusal",
    },
    TextForm {
        event: "response.reasoning_summary_text",
        item: "reasoning",
        part: Some((&SUMMARY, "summary_text")),
        member: "text",
    },
    TextForm {
        event: "response.reasoning_text",
        item: "reasoning",
        part: Some((&THOUGHTS, "reasoning_text")),
        member: "text",
    },
    TextForm {
        event: "response.function_call_arguments",
        item: "function_call",
        part: None,
        member: "arguments",
    },
    TextForm {
        event: "response.custom_tool_call_input",
        item: "custom_tool_call",
        part: None,
        member: "input",
    },
];

impl TextForm {
    /// The member of the item that the text is, or is a part of.
    fn item_member(&self) -> &'static str {
        self.part.map_or(self.member, |(list, _)| list.list)
    }
}

/// An item so far.
#[derive(Debug)]
pub(super) struct ItemAssembly {
    /// Its JSON: as it began, or whole.
    json: String,
    /// Its type, if items of this type have deltas; otherwise empty.
    kind: &'static str,
    /// Whether it is what the model thought.
    is_thought: bool,
    is_done: bool,
    /// What deltas have added, by the member of the item and the place in it.
    texts: BTreeMap<(&'static str, u64), Text>,
    /// What the account was charged for it.
    charged: usize,
}

/// What deltas have added to a text.
#[derive(Debug)]
struct Text {
    form: &'static TextForm,
    text: String,
    /// It is all of the text. Otherwise it goes on behind what the item began with.
    is_whole: bool,
}

impl ItemAssembly {
    /// An item that begins with this object.
    pub(super) fn begin(item: &str, account: &mut Account) -> Result<Self, AnswerError> {
        account.charge(4 * NODE_BYTES + item.len())?;
        let kind = string_member(item, "type").unwrap_or_default();
        let known = TEXT_FORMS.iter().map(|form| form.item).find(|known| *known == kind);
        Ok(ItemAssembly {
            json: item.to_owned(),
            kind: known.unwrap_or_default(),
            is_thought: ItemKind::of(item) == ItemKind::Reasoning,
            is_done: false,
            texts: BTreeMap::new(),
            charged: item.len(),
        })
    }

    /// An item that is this object.
    pub(super) fn whole(item: &str, account: &mut Account) -> Result<Self, AnswerError> {
        let mut whole = ItemAssembly::begin(item, account)?;
        whole.is_done = true;
        Ok(whole)
    }

    /// Takes the item as it is in the end, which counts more than its deltas.
    pub(super) fn end(&mut self, item: &str, account: &mut Account) -> MergeResult {
        self.grow(item.len().saturating_sub(self.charged), account)?;
        self.texts.clear();
        item.clone_into(&mut self.json);
        self.is_thought = ItemKind::of(item) == ItemKind::Reasoning;
        self.is_done = true;
        Ok(())
    }

    /// Its JSON as it began, or whole if it is done.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether it is a call that may not be whole.
    pub(super) fn is_open_call(&self) -> bool {
        !self.is_done && matches!(ItemKind::of(&self.json), ItemKind::Call(_))
    }

    /// Whether it is what the model thought, and is done.
    pub(super) fn is_done_thought(&self) -> bool {
        self.is_thought && self.is_done
    }

    /// The text that a message of the model begins with, as far as it came. Text with which an open item began isn't known here until
    /// the item is done.
    pub(super) fn first_text(&self) -> Option<Cow<'_, str>> {
        if self.is_done {
            return first_text(&self.json).map(|(_, text)| text);
        }
        let is_empty = |part| output_text(part).is_some_and(|text| text.is_empty());
        if self.kind != MESSAGE.item || !is_of_model(&self.json) || !parts(&self.json).take(1).all(is_empty) {
            return None;
        }
        let text = self.texts.get(&(MESSAGE.list, 0))?;
        (text.form.event == OUTPUT_TEXT.event).then_some(Cow::Borrowed(&text.text))
    }

    /// Takes the event of a text. What the item has no place for is dropped, and so is what comes when it is done: the client
    /// gets what is held.
    ///
    /// # Errors
    /// It is none of a text, or there is no room for it.
    pub(super) fn merge(
        &mut self,
        form: &'static TextForm,
        is_end: bool,
        event: &str,
        account: &mut Account,
    ) -> MergeResult {
        let name = if is_end { form.member } else { "delta" };
        let Some(piece) = member(event, name) else { return Ok(()) };
        if self.is_done || self.kind != form.item {
            return Ok(());
        }
        if kind(piece) != ValueKind::String {
            return invalid(format!("`{name}` of a `{}` event is {}", form.event, kind(piece)));
        }
        let index = match form.part {
            Some((list, _)) => place(event, list.index)?.unwrap_or(0),
            None => 0,
        };
        let piece = json::unescape(piece);
        let key = (form.item_member(), index);
        if !self.texts.contains_key(&key) {
            self.grow(2 * NODE_BYTES, account)?;
        }
        let text = self.texts.entry(key).or_insert(Text { form, text: String::new(), is_whole: false });
        if text.form.event != form.event {
            return Ok(());
        }
        let held = if is_end { text.text.len() } else { 0 };
        let added = piece.len().saturating_sub(held);
        account.charge(added)?;
        self.charged += added;
        if is_end {
            text.text.clear();
            text.is_whole = true;
        }
        text.text.push_str(&piece);
        Ok(())
    }

    fn grow(&mut self, bytes: usize, account: &mut Account) -> MergeResult {
        account.charge(bytes)?;
        self.charged += bytes;
        Ok(())
    }

    /// Writes its JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut members: Vec<_> = self.texts.keys().map(|(name, _)| *name).collect();
        members.dedup();
        let mut object = ObjectWriter::begin(out);
        for (name, value) in json::members(&self.json) {
            match members.iter().position(|member| *member == name) {
                Some(place) => self.write_member(members.remove(place), value, object.member(&name)),
                None => object.raw(&name, value),
            }
        }
        for name in members {
            self.write_member(name, "null", object.member(name));
        }
        object.end();
    }

    /// Writes a member that deltas have changed, and that began as `start`.
    fn write_member(&self, name: &'static str, start: &str, out: &mut Vec<u8>) {
        let mut texts = self.texts.range((name, 0)..=(name, u64::MAX)).peekable();
        if let Some((_, text)) = texts.next_if(|(_, text)| text.form.part.is_none()) {
            text.write(start, out);
            return;
        }
        let is_list = kind(start) == ValueKind::Array;
        let mut starts = (0..).zip(json::elements(if is_list { start } else { "[]" })).peekable();
        let mut separator: &[u8] = b"";
        out.push(b'[');
        // An index that nothing has is left out: it may be any number.
        loop {
            let next = starts.peek().map(|(index, _)| *index);
            let text = texts.next_if(|((_, index), _)| next.is_none_or(|next| *index <= next));
            let start = starts.next_if(|(index, _)| text.is_none_or(|((_, place), _)| place == index));
            if text.is_none() && start.is_none() {
                break;
            }
            out.extend_from_slice(separator);
            separator = b",";
            let start = start.map(|(_, start)| start);
            match text {
                Some((_, text)) => text.write_part(start, out),
                None => out.extend_from_slice(start.unwrap_or("null").as_bytes()),
            }
        }
        out.push(b']');
    }
}

impl Text {
    /// Writes it as a string that began as `start`.
    fn write(&self, start: &str, out: &mut Vec<u8>) {
        let before = if self.is_whole || kind(start) != ValueKind::String { "\"\"" } else { start };
        // Strings are joined at their quotes.
        out.extend_from_slice(&before.as_bytes()[..before.len() - 1]);
        out.extend_from_slice(&quote(&self.text).as_bytes()[1..]);
    }

    /// Writes it as a part that began as `start`. A part of another type stays as it is.
    fn write_part(&self, start: Option<&str>, out: &mut Vec<u8>) {
        let Some((_, part)) = self.form.part else { return };
        let Some(start) = start else {
            let mut object = ObjectWriter::begin(out);
            object.raw("type", &quote(part));
            self.write("\"\"", object.member(self.form.member));
            if part == "output_text" {
                object.raw("annotations", "[]");
            }
            object.end();
            return;
        };
        if kind(start) != ValueKind::Object || string_member(start, "type").is_none_or(|kind| kind != part) {
            out.extend_from_slice(start.as_bytes());
            return;
        }
        let mut has_text = false;
        let mut object = ObjectWriter::begin(out);
        for (name, value) in json::members(start) {
            if name == self.form.member {
                has_text = true;
                self.write(value, object.member(&name));
            } else {
                object.raw(&name, value);
            }
        }
        if !has_text {
            self.write("\"\"", object.member(self.form.member));
        }
        object.end();
    }
}

/// A member of an event that is a place in a list.
///
/// # Errors
/// It is another value than an integer from 0.
pub(super) fn place(event: &str, name: &str) -> Result<Option<u64>, AnswerError> {
    match member(event, name).map(str::parse) {
        None => Ok(None),
        Some(Ok(place)) => Ok(Some(place)),
        Some(Err(_)) => invalid(format!("`{name}` of an event is not an integer from 0")),
    }
}
