//! The content blocks of a message.

use std::borrow::Cow;

use crate::{
    json,
    llm::{
        edits::{ArrayEdit, Edits, edit_object},
        value::{member, string, string_member},
    },
};

/// The content blocks of a message; none if its content is a string.
pub(super) fn blocks(message: &str) -> impl Iterator<Item = &str> {
    json::elements(member(message, "content").unwrap_or_default())
}

/// Whether a content block is the result of a tool.
pub(super) fn is_result(block: &str) -> bool {
    string_member(block, "type").is_some_and(|kind| kind == "tool_result")
}

/// A message without the results of tools. Everything else stays byte for byte.
pub(super) fn without_results(message: &str) -> String {
    let mut edits = Edits::default();
    if let Some(content) = member(message, "content") {
        let mut others = ArrayEdit::new(message, content);
        let results = blocks(message).enumerate().filter(|(_, block)| is_result(block));
        results.for_each(|(index, _)| others.remove(index));
        others.finish(&mut edits);
    }
    edits.apply_to_str(message)
}

/// A message or the result of a tool without marks for the provider's cache.
pub(super) fn unmarked(json: &str) -> Cow<'_, str> {
    if !is_result(json) {
        return edit_object(json, |message| message.set("content", without_cache_marks(json))).into();
    }
    match member(json, "cache_control") {
        Some(_) => edit_object(json, |block| block.remove("cache_control")).into(),
        None => json.into(),
    }
}

/// The content of a message as an array of blocks without marks for the provider's cache. Some clients move these marks
/// along with the end of the conversation, and turn a string into a block to put one there, so what they sent once
/// looks different later.
pub(super) fn without_cache_marks(message: &str) -> Cow<'_, str> {
    let content = member(message, "content").unwrap_or_default();
    if let Some(text) = string(content) {
        // Plugins may have emptied it, and providers refuse a text block without text.
        if text.is_empty() {
            return "[]".to_owned().into();
        }
        return format!(r#"[{{"type":"text","text":{content}}}]"#).into();
    }
    let mut unmarked = ArrayEdit::new(content, content);
    for (index, block) in blocks(message).enumerate() {
        if member(block, "cache_control").is_some() {
            unmarked.replace(index, edit_object(block, |block| block.remove("cache_control")));
        }
    }
    let mut edits = Edits::default();
    unmarked.finish(&mut edits);
    if edits.is_empty() { content.into() } else { edits.apply_to_str(content).into() }
}

/// `json`, with the last mark for the provider's cache that `marked` has; unless it has one itself. Both are a message, or the result
/// of a tool.
pub(super) fn with_marks_of(marked: &str, json: &str) -> String {
    let mark_of = |block| member(block, "cache_control");
    if is_result(json) {
        let mark = mark_of(marked).filter(|_| mark_of(json).is_none());
        return mark.map_or_else(|| json.to_owned(), |mark| with_mark(json, mark));
    }
    let mark = blocks(marked).filter_map(mark_of).last();
    match (mark, blocks(json).enumerate().last()) {
        (Some(mark), Some((last, block))) if !blocks(json).any(|block| mark_of(block).is_some()) => {
            let content = member(json, "content").unwrap_or_default();
            let (mut edits, mut list) = (Edits::default(), ArrayEdit::new(json, content));
            list.replace(last, with_mark(block, mark));
            list.finish(&mut edits);
            edits.apply_to_str(json)
        }
        _ => json.to_owned(),
    }
}

fn with_mark(block: &str, mark: &str) -> String {
    edit_object(block, |block| block.set("cache_control", mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_same_wherever_the_marks_are() {
        let plain = r#"{"role":"user","content":"a"}"#;
        let block = r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#;
        let marked =
            r#"{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}"#;
        for message in [plain, block, marked] {
            assert_eq!(unmarked(message), block, "{message}");
        }
        let result = r#"{"type":"tool_result","tool_use_id":"t","content":"a"}"#;
        assert_eq!(unmarked(result), result);
        assert_eq!(unmarked(&with_mark(result, "{}")), result);
    }

    #[test]
    fn what_replaces_a_unit_has_its_mark() {
        let marked = r#"{"role":"user","content":[{"type":"text","text":"a","cache_control":{"n":1}},{"type":"image"},{"type":"text","text":"b","cache_control":{"n":2}}]}"#;
        for (json, with_mark) in [
            (
                r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"image"}]}"#,
                r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","cache_control":{"n":2}}]}"#,
            ),
            (r#"{"content":[{"cache_control":{}},{}]}"#, r#"{"content":[{"cache_control":{}},{}]}"#),
            (r#"{"content":"x"}"#, r#"{"content":"x"}"#),
            (r#"{"content":[]}"#, r#"{"content":[]}"#),
        ] {
            assert_eq!(with_marks_of(marked, json), with_mark);
        }
        assert_eq!(with_marks_of(r#"{"content":"a"}"#, r#"{"content":[{}]}"#), r#"{"content":[{}]}"#);
        let result = r#"{"type":"tool_result","cache_control":{"n":1}}"#;
        assert_eq!(with_marks_of(result, r#"{"type":"tool_result"}"#), result);
        assert_eq!(with_marks_of(r#"{"type":"tool_result","cache_control":{"n":2}}"#, result), result);
    }
}
