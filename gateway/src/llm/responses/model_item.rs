//! The model's own items in a request. They belong together, and providers seal thoughts. So plugins may change the texts in them and
//! the arguments of tool calls, and nothing else.

use std::{borrow::Cow, collections::HashMap};

use super::items::ItemKind;
use crate::{
    json::{self, ValueKind},
    llm::{
        edits::{Edits, span_in},
        same_value::is_same_value,
        value::{kind, member, string, string_member},
    },
};

/// Members that say what an item is and what it belongs to, beside ids. Another value would make it another item.
const FIXED: [&str; 7] = ["encrypted_content", "name", "namespace", "phase", "role", "status", "type"];

/// Members of a text that quote it. They go with it.
const QUOTES: [&str; 2] = ["annotations", "logprobs"];

/// Whether an item is the model's.
pub(super) fn is_model_item(item: &str) -> bool {
    match ItemKind::of(item) {
        ItemKind::Message => string_member(item, "role").is_some_and(|role| role == "assistant"),
        ItemKind::Result(_) => false,
        ItemKind::Reasoning | ItemKind::Call(_) | ItemKind::Other => true,
    }
}

/// The item with the texts and arguments of `changed`. Everything else stays byte for byte. `None` if something else was changed.
pub(super) fn with_changes_of(item: &str, changed: &str) -> Option<String> {
    let mut changes = Changes { root: item, edits: Edits::default() };
    match ItemKind::of(item) {
        ItemKind::Call(form) => changes.of_call(form.args_member(), changed)?,
        _ => drop(changes.of_value(item, changed)?),
    }
    Some(changes.edits.apply_to_str(item))
}

/// What is changed in an item.
struct Changes<'a> {
    root: &'a str,
    edits: Edits,
}

impl<'a> Changes<'a> {
    /// Takes the changes of a call with its arguments in the member `args`.
    fn of_call(&mut self, args: &str, new: &'a str) -> Option<()> {
        let (old_args, new_args) = (member(self.root, args), member(new, args));
        match (old_args, new_args) {
            (None, None) => {}
            (Some(old), Some(new)) if kind(old) == kind(new) => {
                if !is_same_value(old, new) {
                    self.edits.replace(span_in(self.root, old), new);
                }
            }
            _ => return None,
        }
        self.of_members(self.root, new, &[args]).map(drop)
    }

    /// Takes the texts of a value that has the same form. Says whether there are any. `None` if it has another form. Depth is bounded by
    /// the scan.
    fn of_value(&mut self, old: &'a str, new: &'a str) -> Option<bool> {
        if old == new {
            return Some(false);
        }
        match (kind(old), kind(new)) {
            (ValueKind::Object, ValueKind::Object) => self.of_object(old, new),
            (ValueKind::Array, ValueKind::Array) => {
                let (mut olds, mut news) = (json::elements(old), json::elements(new));
                let mut is_changed = false;
                loop {
                    match (olds.next(), news.next()) {
                        (None, None) => return Some(is_changed),
                        (Some(old), Some(new)) => is_changed |= self.of_value(old, new)?,
                        _ => return None,
                    }
                }
            }
            (ValueKind::String, ValueKind::String) if string(old) != string(new) => {
                self.edits.replace(span_in(self.root, old), new);
                Some(true)
            }
            _ => is_same_value(old, new).then_some(false),
        }
    }

    fn of_object(&mut self, old: &'a str, new: &'a str) -> Option<bool> {
        let is_text = string_member(old, "type").is_some_and(|kind| kind == "output_text");
        if !is_text {
            return self.of_members(old, new, &[]);
        }
        let is_kept = |name: &&str| match (member(old, name), member(new, name)) {
            (Some(old), Some(new)) => is_same_value(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        let keeps_quotes = QUOTES.iter().all(is_kept);
        let is_changed = self.of_members(old, new, &QUOTES)? || !keeps_quotes;
        if is_changed {
            let quotes = QUOTES.iter().filter_map(|name| member(old, name));
            let full = quotes.filter(|list| json::elements(list).next().is_some());
            full.for_each(|list| self.edits.replace(span_in(self.root, list), "[]"));
        }
        Some(is_changed)
    }

    /// Takes the texts of all members but those with the names `others`.
    fn of_members(&mut self, old: &'a str, new: &'a str, others: &[&str]) -> Option<bool> {
        let members = |object| json::members(object).filter(|(name, _)| !others.contains(&name.as_ref()));
        let news: HashMap<Cow<'_, str>, &'a str> = members(new).collect();
        if members(old).count() != news.len() {
            return None;
        }
        let mut is_changed = false;
        for (name, old) in members(old) {
            let new = news.get(&name)?;
            match is_fixed(&name) {
                true if !is_same_value(old, new) => return None,
                true => {}
                false => is_changed |= self.of_value(old, new)?,
            }
        }
        Some(is_changed)
    }
}

fn is_fixed(name: &str) -> bool {
    name == "id" || name.ends_with("_id") || FIXED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{ "type":"message", "id":"msg_1", "role":"assistant", "status":"completed", "phase":"commentary", "content": [ {"type":"output_text", "text":"a", "annotations":[], "logprobs": [] }, {"type":"refusal","refusal":"b"} ] }"#;
    const CALL: &str = r#"{ "type":"function_call", "id":"fc_1", "call_id":"c", "name":"n", "namespace":"s", "arguments": "{\"a\": 1}" }"#;
    const THOUGHTS: &str = r#"{ "type":"reasoning", "id":"rs_1", "summary": [ {"type":"summary_text", "text":"a"} ], "content": [ {"type":"reasoning_text", "text":"b"} ], "encrypted_content":"c2VhbGVk" }"#;
    const SHELL: &str = r#"{ "type":"shell_call", "call_id":"c", "environment": {"type":"local", "skills":[{"name":"k","path":"p"}]}, "action": {"commands": ["a", "b"], "timeout_ms": null} }"#;

    fn compact(json: &str) -> String {
        json.replace(' ', "")
    }

    #[test]
    fn texts_and_arguments_change_and_the_rest_keeps_its_bytes() {
        for (item, what, by) in [
            (MESSAGE, r#""text":"a""#, r#""text":"x""#),
            (MESSAGE, r#""refusal":"b""#, r#""refusal":"""#),
            (r#"{ "role":"assistant", "content": "a" }"#, r#""a""#, r#""x""#),
            (THOUGHTS, r#""text":"a""#, r#""text":"x""#),
            (THOUGHTS, r#""text":"b""#, r#""text":"x""#),
            (CALL, r#""{\"a\": 1}""#, r#""{}""#),
            (r#"{"type":"custom_tool_call", "call_id":"c","name":"n","input":"a"}"#, r#""a""#, r#""x""#),
            (SHELL, r#"["a", "b"]"#, r#"["a"]"#),
            (SHELL, r#""path":"p""#, r#""path":"x""#),
            (r#"{"type":"web_search_call", "id":"w", "action":{"query":"a"}}"#, r#""a""#, r#""x""#),
        ] {
            let changed = item.replace(what, by);
            assert_ne!(changed, item);
            let left = with_changes_of(item, &changed);
            assert_eq!(left.as_deref(), Some(changed.as_str()));
            let (compact_item, compact_change) = (compact(item), compact(&changed));
            assert_eq!(with_changes_of(item, &compact_item).map(|left| compact(&left)), Some(compact_item));
            assert_eq!(
                with_changes_of(item, &compact_change).map(|left| compact(&left)),
                Some(compact_change)
            );
        }
        assert_eq!(with_changes_of(MESSAGE, &compact(MESSAGE)).as_deref(), Some(MESSAGE));
    }

    #[test]
    fn what_quotes_a_text_goes_with_it() {
        let with = |members: &str| {
            format!(r#"{{"role":"assistant","content":[{{"type":"output_text",{members}}}]}}"#)
        };
        let cited = with(r#""annotations":[{"url":"u","title":"t"}],"text":"a","logprobs":[{"token":"a"}]"#);
        let left = |text: &str| with(&format!(r#""annotations":[],"text":"{text}","logprobs":[]"#));
        for (new, text) in [
            (with(r#""annotations":[{"url":"u","title":"t"}],"text":"b","logprobs":[{"token":"a"}]"#), "b"),
            (with(r#""annotations":[{"url":"u","title":"x"}],"text":"a","logprobs":[{"token":"a"}]"#), "a"),
            (with(r#""annotations":[{"url":"u","title":"t"}],"text":"a","logprobs":[{"token":"x"}]"#), "a"),
            (with(r#""text":"b""#), "b"),
            (with(r#""text":"a","logprobs":null"#), "a"),
        ] {
            assert_eq!(with_changes_of(&cited, &new).as_deref(), Some(left(text).as_str()), "{new}");
        }
        assert_eq!(with_changes_of(&cited, &cited).as_deref(), Some(cited.as_str()));
        let plain = with(r#""text":"a","logprobs":null"#);
        let other = with(r#""text":"b","logprobs":null"#);
        assert_eq!(with_changes_of(&plain, &other), Some(other));
    }

    #[test]
    fn other_changes_are_refused() {
        for (item, what, by) in [
            (MESSAGE, r#""role":"assistant""#, r#""role":"user""#),
            (MESSAGE, r#""role":"assistant""#, r#""role":"assistant","x":1"#),
            (MESSAGE, r#""id":"msg_1", "#, ""),
            (MESSAGE, r#""id":"msg_1""#, r#""id":"msg_2""#),
            (MESSAGE, r#""status":"completed""#, r#""status":"x""#),
            (MESSAGE, r#""phase":"commentary""#, r#""phase":"x""#),
            (MESSAGE, r#""type":"refusal""#, r#""type":"output_text""#),
            (MESSAGE, r#""text":"a""#, r#""text":["a"]"#),
            (MESSAGE, r#", {"type":"refusal","refusal":"b"}"#, ""),
            (MESSAGE, r#"{"type":"refusal","refusal":"b"}"#, r#"{"type":"refusal","refusal":"b"},{}"#),
            (THOUGHTS, "c2VhbGVk", "c2VhbGVx"),
            (THOUGHTS, r#""summary": [ {"type":"summary_text", "text":"a"} ]"#, r#""summary":[]"#),
            (THOUGHTS, r#""id":"rs_1""#, r#""id":"rs_2""#),
            (CALL, r#""call_id":"c""#, r#""call_id":"d""#),
            (CALL, r#""name":"n""#, r#""name":"m""#),
            (CALL, r#""namespace":"s""#, r#""namespace":"t""#),
            (CALL, r#", "arguments": "{\"a\": 1}""#, ""),
            (CALL, r#""{\"a\": 1}""#, r#"{"a":1}"#),
            (CALL, r#""type":"function_call""#, r#""type":"custom_tool_call""#),
            (SHELL, r#"{"name":"k","path":"p"}"#, ""),
        ] {
            let changed = item.replace(what, by);
            assert_ne!(changed, item);
            assert_eq!(with_changes_of(item, &changed), None, "{what} {by}");
        }
        assert_eq!(with_changes_of(MESSAGE, r#"{"role":"assistant","content":"b"}"#), None);
        assert_eq!(with_changes_of(r#"{"type":"x","n":1}"#, r#"{"type":"x","n":2}"#), None);
    }

    #[test]
    fn everything_but_results_and_what_others_say_is_the_models() {
        for (item, is_models) in [
            (MESSAGE, true),
            (CALL, true),
            (THOUGHTS, true),
            (r#"{"id":"item"}"#, true),
            (r#"{"role":"user","content":"a"}"#, false),
            (r#"{"type":"message","role":"developer","content":"a"}"#, false),
            (r#"{"type":"shell_call_output","call_id":"c","output":[]}"#, false),
        ] {
            assert_eq!(is_model_item(item), is_models, "{item}");
        }
    }
}
