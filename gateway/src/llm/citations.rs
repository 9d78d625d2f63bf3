//! Citations and annotations of an answer's texts. Plugins are asked about each text in them, and a citation passes only with texts
//! that they left as they are ([0090](../../../docs/decisions/0090-citations-are-judged.md)).

use std::borrow::Cow;

use super::{
    edits::{ArrayEdit, Edits, ObjectEdit},
    value::{is_text, kind, may_carry_text, string},
    withheld::{MAX_UNJUDGED_BYTES, WithheldMembers, keep_members},
};
use crate::json::{self, ValueKind};

/// Longest text of a citation, and longest id of reasoning, in bytes.
pub(super) const MAX_CITATION_TEXT: usize = 2 << 10;

/// Most different texts of citations in a choice that plugins are asked about. Citations with others don't pass.
const MAX_CITED_TEXTS: usize = 256;

/// Members with kinds and ids. They are texts only if they are long.
const KINDS_AND_IDS: [&str; 3] = ["type", "file_id", "container_id"];

/// What Anthropic's web search encrypts, and wants back as it is.
const ENCRYPTED: &str = "encrypted_index";

/// The texts of all citations of a choice, each once.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct CitedTexts {
    texts: Vec<String>,
    bytes: usize,
}

impl CitedTexts {
    /// Adds the texts that a citation has in these members. Those that are too long, or too many, are left out.
    pub(super) fn add(&mut self, citation: &str, members: &[&str]) {
        for text in cited_texts(citation, members) {
            let has_room =
                self.bytes + text.len() <= MAX_UNJUDGED_BYTES && self.texts.len() < MAX_CITED_TEXTS;
            if text.len() <= MAX_CITATION_TEXT && has_room && !self.texts.iter().any(|known| *known == text) {
                self.bytes += text.len();
                self.texts.push(text.into_owned());
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }
}

/// The texts of a citation, an object, that have these members and aren't empty.
pub(super) fn cited_texts<'a>(citation: &'a str, members: &[&str]) -> impl Iterator<Item = Cow<'a, str>> {
    let is_kind = |name: &str, value: &str| KINDS_AND_IDS.contains(&name) && !may_carry_text(name, value);
    let is_cited = move |(name, value): &(Cow<'_, str>, &str)| {
        members.contains(&name.as_ref()) && *name != ENCRYPTED && !is_kind(name, value)
    };
    json::members(citation)
        .filter(is_cited)
        .filter_map(|(_, value)| string(value))
        .filter(|text| !text.is_empty())
}

/// Withholds what no plugin saw in a list of citations, given with its name and a slice of `root`: members that aren't `known`, and
/// citations with long texts, or with texts that plugins didn't let pass. A citation without one of its members fails in clients that
/// check answers, so it stays or goes as a whole.
pub(super) fn withhold_in_flat_citations(
    root: &str,
    (name, citations): (&str, &str),
    known: &[&str],
    edits: &mut Edits,
    withheld: &mut WithheldMembers,
) {
    if kind(citations) != ValueKind::Array {
        return;
    }
    let mut list = ArrayEdit::new(root, citations);
    for (index, citation) in list.elements().to_vec().into_iter().enumerate() {
        let texts = cited_texts(citation, known);
        if !is_short_citation(citation, known) || !withheld.pass_citation(citation.len(), texts) {
            list.remove(index);
            withheld.names.push(name.to_owned());
            continue;
        }
        let mut citation = ObjectEdit::new(root, citation);
        keep_members(&mut citation, |name, _| known.contains(&name), withheld);
        citation.finish(edits);
    }
    list.finish(edits);
}

/// Whether a value is a citation whose known members are short texts and settings.
fn is_short_citation(citation: &str, known: &[&str]) -> bool {
    let is_short = |value| string(value).map_or(!is_text(value), |text| text.len() <= MAX_CITATION_TEXT);
    kind(citation) == ValueKind::Object
        && json::members(citation)
            .filter(|(name, _)| known.contains(&name.as_ref()))
            .all(|(_, value)| is_short(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::format::ChoiceEdit;

    const MEMBERS: &[&str] = &["type", "title", "url", "file_id", ENCRYPTED];

    fn texts_of(citations: &[Value]) -> CitedTexts {
        let mut texts = CitedTexts::default();
        citations.iter().for_each(|citation| texts.add(&citation.to_string(), MEMBERS));
        texts
    }

    /// What is left of citations if plugins let these texts pass.
    fn left(citations: &[Value], passed: &[&str]) -> Vec<Value> {
        let cited_texts = Some(passed.iter().map(|text| (*text).to_owned()).collect());
        let mut withheld = WithheldMembers::of_choice(&ChoiceEdit { cited_texts, ..ChoiceEdit::default() });
        let (json, mut edits) = (json!(citations).to_string(), Edits::default());
        withhold_in_flat_citations(&json, ("citations", &json), MEMBERS, &mut edits, &mut withheld);
        serde_json::from_str(&edits.apply_to_str(&json)).expect("a list")
    }

    #[test]
    fn kinds_and_ids_are_texts_if_they_are_long() {
        let long = "x".repeat(65);
        let citations = [
            json!({ "type": "t", "file_id": "f", "title": "", "url": 7, "encrypted_index": "e" }),
            json!({ "type": long, "title": "T", "more": "m" }),
        ];
        assert_eq!(texts_of(&citations).iter().collect::<Vec<_>>(), ["T", &long]);
        let shown = json!({ "type": long, "title": "T" });
        assert_eq!(left(&citations, &["T", &long]), [citations[0].clone(), shown]);
        assert_eq!(left(&citations, &["T"]), [citations[0].clone()]);
    }

    #[test]
    fn plugins_are_asked_about_so_many_texts_and_citations_with_others_do_not_pass() {
        let citations: Vec<_> =
            (0..MAX_CITED_TEXTS + 9).map(|number| json!({ "title": number.to_string() })).collect();
        let texts = texts_of(&citations);
        let texts: Vec<_> = texts.iter().collect();
        assert_eq!(texts.len(), MAX_CITED_TEXTS);
        assert_eq!(left(&citations, &texts), citations[..MAX_CITED_TEXTS]);
        let long = [
            json!({ "title": "x".repeat(MAX_CITATION_TEXT + 1) }),
            json!({ "title": "x".repeat(MAX_CITATION_TEXT) }),
        ];
        assert_eq!(texts_of(&long).iter().count(), 1);
        let many: Vec<_> = (0..20).map(|number| json!({ "title": format!("{number:2000}") })).collect();
        assert_eq!(texts_of(&many).iter().count(), MAX_UNJUDGED_BYTES / 2000);
        // What plugins were asked about doesn't count again.
        let long: Vec<_> = (0..100).map(|number| json!({ "title": format!("{number:0150}") })).collect();
        let texts = texts_of(&long);
        assert_eq!(left(&long, &texts.iter().collect::<Vec<_>>()), long);
    }

    fn citation() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["[a-d]", "[a-d]{65}", Just("\u{e9}\n".to_owned())].prop_map(Value::from);
        let value =
            prop_oneof![4 => text, 1 => Just(json!(1)), 1 => Just(json!(["a"])), 1 => Just(json!(null))];
        let name = prop::sample::select([MEMBERS, &["cited_text", "Title"]].concat());
        prop::collection::btree_map(name, value, 0..4).prop_map(|members| json!(members))
    }

    proptest! {
        #[test]
        fn a_citation_passes_only_with_texts_that_plugins_let_pass(
            citations in prop::collection::vec(citation(), 0..6),
            passed in prop::collection::vec(any::<bool>(), 24),
        ) {
            let texts = texts_of(&citations);
            let passed: Vec<_> =
                texts.iter().zip(passed).filter(|(_, passes)| *passes).map(|(text, _)| text).collect();
            let left = left(&citations, &passed);
            for (name, value) in left.iter().flat_map(|citation| citation.as_object().expect("an object")) {
                let text = value.as_str().unwrap_or_default();
                let is_setting = KINDS_AND_IDS.contains(&name.as_str()) && text.len() <= 64;
                prop_assert!(text.is_empty() || is_setting || name == ENCRYPTED || passed.contains(&text), "{name} {text}");
            }
            if passed.len() == texts.iter().count() {
                let has_no_list = |citation: &&Value| {
                    citation.as_object().expect("an object").iter().all(|(name, value)| !value.is_array() || !MEMBERS.contains(&name.as_str()))
                };
                prop_assert_eq!(left.len(), citations.iter().filter(has_no_list).count());
            }
        }
    }
}
