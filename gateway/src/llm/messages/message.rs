//! One message of a request: its content blocks, and the message with others.

use std::{borrow::Cow, collections::BTreeMap};

use hookgate_proto::types::v1::Media;

use super::{
    Messages,
    blocks::{blocks, is_result},
    media::{medium_of, new_block, replace_medium},
};
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::{ArrayEdit, Edits, edit_object},
        format::PatchError,
        message_content::{ContentFormat, break_texts, finished, text_part, text_parts},
        value::{kind, member, quote, string, string_member},
    },
};

impl ContentFormat for Messages {
    fn medium_of(block: &str) -> Option<Media> {
        medium_of(block)
    }

    fn new_part(media: &Media) -> Result<String, PatchError> {
        new_block(media)
    }

    fn replace_medium(block: &str, media: &Media) -> Result<String, PatchError> {
        replace_medium(block, media)
    }

    /// The first text block takes the whole text; the others go. A mark for the provider's cache stays.
    fn set_text(blocks: &mut ArrayEdit<'_>, text: &str) {
        let texts = text_parts(blocks);
        let (first, others) = match texts.split_first() {
            Some(split) if !text.is_empty() => split,
            // Providers refuse a text block without text.
            Some(_) => return texts.iter().for_each(|(index, _)| blocks.remove(*index)),
            None if !text.is_empty() => return blocks.push_front(text_part::<Self>(text)),
            None => return,
        };
        let mark = others.iter().rev().find_map(|(_, block)| member(block, "cache_control"));
        let changed = edit_object(first.1, |block| {
            block.set("text", quote(text));
            // They quote what the text was taken from.
            block.remove("citations");
            if let Some(mark) = mark.filter(|_| member(first.1, "cache_control").is_none()) {
                block.set("cache_control", mark);
            }
        });
        blocks.replace(first.0, changed);
        others.iter().for_each(|(index, _)| blocks.remove(*index));
    }
}

/// Puts a line break between text blocks of `message`, a slice of `root`, where none is. Plugins see each block on
/// a line of its own, and some servers put them together without anything. What the model or a tool said stays.
pub(super) fn break_lines(root: &str, message: &str, edits: &mut Edits) {
    let role = string_member(message, "role");
    if role.is_some_and(|role| role == "user" || role == "system") {
        break_texts(root, member(message, "content").unwrap_or_default(), edits);
    }
}

/// A user or system message with a note in place of its text and media. It has no results.
pub(super) fn with_note(message: &str, note: &str) -> String {
    let is_list = kind(member(message, "content").unwrap_or_default()) == ValueKind::Array;
    let content = if is_list { format!("[{}]", text_part::<Messages>(note)) } else { quote(note) };
    edit_object(message, |message| message.set("content", content))
}

/// A JSON string in place of a text of which a plugin left nothing.
pub(super) const REMOVED: &str = "\"[removed]\"";

/// A message with the changes of its parts: `unit` is the message without results as plugins left it, and `results` are
/// result blocks as they left them, by their places.
pub(super) fn with_parts(
    message: &str,
    unit: Option<&str>,
    results: Option<&BTreeMap<usize, String>>,
) -> String {
    let content = member(message, "content").unwrap_or_default();
    let mut array = ArrayEdit::new(content, content);
    let others: Vec<usize> = other_places(&array);
    if let Some(unit) = unit.filter(|_| others.len() == array.elements().len()) {
        // Providers refuse a message without content.
        let was_empty = content_blocks(message).is_empty();
        return match content_blocks(unit).is_empty() && !was_empty {
            true => edit_object(unit, |unit| unit.set("content", REMOVED)),
            false => unit.to_owned(),
        };
    }
    if let Some(unit) = unit {
        place_blocks(&mut array, &others, &content_blocks(unit));
    }
    for (place, block) in results.into_iter().flatten() {
        array.replace(*place, block.as_str());
    }
    let content = finished(content, array);
    edit_object(message, |message| message.set("content", content))
}

/// A message without everything but results; `None` if it has none.
pub(super) fn only_results(message: &str) -> Option<String> {
    let content = member(message, "content").unwrap_or_default();
    let mut array = ArrayEdit::new(content, content);
    let others = other_places(&array);
    if others.len() == array.elements().len() {
        return None;
    }
    others.into_iter().for_each(|place| array.remove(place));
    let content = finished(content, array);
    Some(edit_object(message, |message| message.set("content", content)))
}

/// A message of results that also has the other blocks of `message`; `None` if it is no message of nothing but results.
pub(super) fn with_others(results: &str, message: &str) -> Option<String> {
    let content = member(results, "content").filter(|content| kind(content) == ValueKind::Array)?;
    let is_user = string_member(results, "role").is_some_and(|role| role == "user");
    if !is_user || !json::elements(content).all(is_result) {
        return None;
    }
    let mut array = ArrayEdit::new(content, content);
    let others = blocks(message).filter(|block| !is_result(block));
    others.for_each(|block| array.push_back(block.to_owned()));
    let content = finished(content, array);
    Some(edit_object(results, |results| results.set("content", content)))
}

fn other_places(blocks: &ArrayEdit<'_>) -> Vec<usize> {
    let others = blocks.elements().iter().enumerate().filter(|(_, block)| !is_result(block));
    others.map(|(place, _)| place).collect()
}

/// The content of a message as blocks.
fn content_blocks(message: &str) -> Vec<Cow<'_, str>> {
    match string(member(message, "content").unwrap_or_default()) {
        // Providers refuse a text block without text.
        Some(text) if text.is_empty() => Vec::new(),
        Some(text) => vec![text_part::<Messages>(&text).into()],
        None => blocks(message).map(Cow::Borrowed).collect(),
    }
}

/// Puts `new` blocks in place of those at `places`. What is the same at both ends stays where it is.
fn place_blocks(array: &mut ArrayEdit<'_>, places: &[usize], new: &[Cow<'_, str>]) {
    let old: Vec<&str> = places.iter().map(|place| array.elements()[*place]).collect();
    let start = old.iter().zip(new).take_while(|(old, new)| **old == new.as_ref()).count();
    let (rest, new) = (&old[start..], &new[start..]);
    let end = rest.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| **old == new.as_ref()).count();
    let (changed, added) = (&places[start..places.len() - end], &new[..new.len() - end]);
    if let Some((last, first)) = changed.split_last() {
        let one_by_one = first.len().min(added.len());
        first.iter().zip(added).for_each(|(place, block)| array.replace(*place, block.as_ref()));
        first[one_by_one..].iter().for_each(|place| array.remove(*place));
        match &added[one_by_one..] {
            [] => array.remove(*last),
            added => array.replace(*last, added.join(",")),
        }
    } else if !added.is_empty() {
        let added = added.join(",");
        match (start.checked_sub(1).map(|before| (places[before], old[before])), places.first()) {
            (Some((place, block)), _) => array.replace(place, format!("{block},{added}")),
            (None, Some(place)) => array.replace(*place, format!("{added},{}", old[0])),
            (None, None) => array.push_back(added),
        }
    }
}
