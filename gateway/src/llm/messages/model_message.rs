//! The model's own messages in a request. Providers sign thoughts and refuse a request in which they, or their place, are another. So
//! plugins may change the texts and the arguments of tool calls, and nothing else.

use super::{blocks::blocks, message::REMOVED};
use crate::{
    json::ValueKind,
    llm::{
        edits::{ArrayEdit, Edits, edit_object},
        same_value::{is_same_but, is_same_value},
        value::{kind, member, string, string_member},
    },
};

/// The message with the texts and arguments of `changed`. Everything else stays byte for byte. `None` if something else was changed.
pub(super) fn with_changes_of(message: &str, changed: &str) -> Option<String> {
    if is_same_value(message, changed) {
        return Some(message.to_owned());
    }
    let (content, new_content) = (member(message, "content")?, member(changed, "content")?);
    if kind(content) != kind(new_content) || !is_same_but(message, changed, &["content"]) {
        return None;
    }
    if kind(content) == ValueKind::String {
        return Some(edit_object(message, |message| message.set("content", text_left(new_content))));
    }
    if blocks(message).count() != blocks(changed).count() {
        return None;
    }
    let (mut edits, mut list) = (Edits::default(), ArrayEdit::new(message, content));
    for (index, (block, new_block)) in blocks(message).zip(blocks(changed)).enumerate() {
        if is_same_value(block, new_block) {
            continue;
        }
        list.replace(index, changed_block(block, new_block)?);
    }
    list.finish(&mut edits);
    Some(edits.apply_to_str(message))
}

/// A text that a plugin left, or arguments. Providers refuse an empty text.
fn text_left(value: &str) -> &str {
    if string(value).is_some_and(|text| text.is_empty()) { REMOVED } else { value }
}

/// A block with the text or the arguments of `new`, which has another value.
fn changed_block(block: &str, new: &str) -> Option<String> {
    let changeable: &[&str] = match string_member(block, "type")?.as_ref() {
        // Citations quote the text, so they go with it.
        "text" => &["text", "citations"],
        "tool_use" => &["input"],
        _ => return None,
    };
    let (name, dependent) = changeable.split_first()?;
    let (old_value, value) = (member(block, name)?, member(new, name)?);
    if kind(old_value) != kind(value)
        || is_same_value(old_value, value)
        || !is_same_but(block, new, changeable)
    {
        return None;
    }
    Some(edit_object(block, |block| {
        block.set(name, text_left(value));
        dependent.iter().for_each(|name| block.remove(name));
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{ "role":"assistant", "content": [ {"type":"thinking","thinking":"a","signature":"s"}, {"type":"text", "text":"b"}, {"type":"tool_use","id":"t","name":"n","input":{"a": 1}} ] }"#;

    #[test]
    fn texts_and_arguments_change_and_the_rest_keeps_its_bytes() {
        let changed = MESSAGE.replace(r#""b""#, r#""c""#).replace(r#"{"a": 1}"#, r#"{"x":2}"#);
        let compact = changed.replace(' ', "");
        assert_eq!(with_changes_of(MESSAGE, &compact).as_deref(), Some(changed.as_str()));
        assert_eq!(with_changes_of(MESSAGE, &MESSAGE.replace(' ', "")).as_deref(), Some(MESSAGE));
        let text = r#"{"role":"assistant","content":"a"}"#;
        let changed = r#"{"role":"assistant","content":"b"}"#;
        assert_eq!(with_changes_of(text, changed).as_deref(), Some(changed));
    }

    #[test]
    fn citations_go_with_the_text_that_they_quote() {
        let with = |block: &str| format!(r#"{{"role":"assistant","content":[{block}]}}"#);
        let cited = with(r#"{"type":"text","citations":[{"cited_text":"a"}],"text":"a"}"#);
        let changed = with(r#"{"type":"text","text":"b"}"#);
        for new in [
            &changed,
            &with(r#"{"type":"text","citations":[{"cited_text":"a"}],"text":"b"}"#),
            &with(r#"{"type":"text","citations":[{"cited_text":"x"}],"text":"b"}"#),
        ] {
            assert_eq!(with_changes_of(&cited, new).as_deref(), Some(changed.as_str()), "{new}");
        }
        for new in [
            r#"{"type":"text","text":"a"}"#,
            r#"{"type":"text","citations":[],"text":"a"}"#,
            r#"{"type":"text","citations":[{"cited_text":"a"}],"text":"b","x":1}"#,
        ] {
            assert_eq!(with_changes_of(&cited, &with(new)), None, "{new}");
        }
    }

    #[test]
    fn an_emptied_text_is_one_that_providers_take() {
        for (message, left) in [
            (r#"{"role":"assistant","content":"a"}"#, r#"{"role":"assistant","content":"[removed]"}"#),
            (
                r#"{"role":"assistant","content":[{"type":"text","text":"a"}]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"[removed]"}]}"#,
            ),
        ] {
            let emptied = message.replace(r#""a""#, r#""""#);
            assert_eq!(with_changes_of(message, &emptied).as_deref(), Some(left));
        }
    }

    #[test]
    fn other_changes_are_refused() {
        for (what, by) in [
            (r#""thinking":"a""#, r#""thinking":"b""#),
            (r#""signature":"s""#, r#""signature":"x""#),
            (r#""signature":"s""#, r#""x":"s""#),
            (r#""id":"t""#, r#""id":"u""#),
            (r#""name":"n""#, r#""name":"m""#),
            (r#""input":{"a": 1}"#, r#""input":"a""#),
            (r#""input":{"a": 1}"#, r#""x":1"#),
            (r#""text":"b""#, r#""text":{}"#),
            (r#""type":"text""#, r#""type":"x""#),
            (r#"{"type":"text", "text":"b"}, "#, ""),
            (r#"{"type":"text", "text":"b"}, "#, r#"{"type":"text","text":"b"},{"type":"text","text":"b"},"#),
            (r#""role":"assistant""#, r#""role":"user""#),
            (r#""role":"assistant""#, r#""role":"assistant","x":1"#),
        ] {
            let changed = MESSAGE.replace(what, by);
            assert_ne!(changed, MESSAGE);
            assert_eq!(with_changes_of(MESSAGE, &changed), None, "{what} {by}");
        }
        assert_eq!(with_changes_of(MESSAGE, r#"{"role":"assistant","content":"b"}"#), None);
    }
}
