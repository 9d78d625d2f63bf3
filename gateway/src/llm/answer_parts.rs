//! What the model says and thinks in an answer, in parts. Texts that a reader sees apart are parts of their own, so that no pattern of a
//! plugin crosses from one into another, and each takes back its own change ([0085](../../../docs/decisions/0085-parts-of-answers.md)).

use hookgate_proto::types::v1::BeforeResponsePayload;

use super::{
    answer_json::check_counts,
    citations::CitedTexts,
    format::{AnswerError, ChoiceEdit},
};

/// Most texts, and most thoughts, of a choice that plugins are asked about.
const MAX_ANSWER_PARTS: usize = 1024;

/// The texts and thoughts of one choice, in their order. None is empty. Of more than plugins are asked about, the rest is left out.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct AnswerParts {
    /// What the model says.
    pub(crate) texts: Vec<String>,
    /// What the model thought, as far as it is text.
    pub(crate) thoughts: Vec<String>,
    /// What citations say.
    pub(super) cited: CitedTexts,
}

/// A text and a thought with the same place, or a text of citations: plugins are asked about it in one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerPart {
    /// The place among the texts and thoughts; `None` of a text of citations.
    pub(crate) place: Option<usize>,
    /// Empty if there is none.
    pub(crate) text: String,
    pub(crate) thought: Option<String>,
}

/// A string of an answer: a text or a thought, or one of the pieces into which the provider has cut it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The place of the text among the texts, or of the thought among the thoughts.
    place: usize,
    /// The first piece takes a changed text, and the others become empty.
    is_first: bool,
}

impl AnswerParts {
    /// Adds a string that the model says; `goes_on` if it is the next piece of the last text. `None` if it is empty.
    pub(super) fn push_text(&mut self, text: &str, goes_on: bool) -> Option<Piece> {
        push(&mut self.texts, text, goes_on)
    }

    /// Adds a string that the model thought. `None` if it is empty.
    pub(super) fn push_thought(&mut self, thought: &str) -> Option<Piece> {
        push(&mut self.thoughts, thought, false)
    }

    /// The parts that plugins are asked about: at least one. Those of citations are the last ones.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn to_judge(&self) -> Result<Vec<AnswerPart>, AnswerError> {
        let count = self.texts.len().max(self.thoughts.len()).max(1);
        check_counts(&[(count, MAX_ANSWER_PARTS, "texts or thoughts")])?;
        let part = |place| AnswerPart {
            place: Some(place),
            text: self.texts.get(place).cloned().unwrap_or_default(),
            thought: self.thoughts.get(place).cloned(),
        };
        let cited =
            self.cited.iter().map(|text| AnswerPart { place: None, text: text.to_owned(), thought: None });
        Ok((0..count).map(part).chain(cited).collect())
    }

    /// Whether an edit changes or adds a text or a thought.
    pub(super) fn are_changed_by(&self, edit: &ChoiceEdit) -> bool {
        let differ = |parts: &[String], edits: &[Option<String>]| {
            parts.iter().zip(edits).any(|(part, edit)| edit.as_ref().is_some_and(|edit| edit != part))
        };
        differ(&self.texts, &edit.texts)
            || differ(&self.thoughts, &edit.thoughts)
            || self.added_text(&edit.texts).is_some()
            || self.added_thought(&edit.thoughts).is_some()
    }

    /// The text that plugins added to a choice without any.
    pub(super) fn added_text<'e>(&self, edits: &'e [Option<String>]) -> Option<&'e str> {
        added(&self.texts, edits)
    }

    /// The thought that plugins added to a choice without any.
    pub(super) fn added_thought<'e>(&self, edits: &'e [Option<String>]) -> Option<&'e str> {
        added(&self.thoughts, edits)
    }
}

impl AnswerPart {
    /// Whether it stands for the answer as a whole. A text or a thought that plugins add counts in this part only.
    pub(crate) fn is_main(&self) -> bool {
        self.place == Some(0)
    }

    /// What plugins are shown of the part. `choice` is what they see beside texts and thoughts; its usage is that of the first part, so
    /// that plugins count it once.
    pub(crate) fn payload(self, choice: &BeforeResponsePayload) -> BeforeResponsePayload {
        BeforeResponsePayload {
            token_usage: choice.token_usage.filter(|_| self.is_main()),
            content: self.text,
            reasoning: self.thought,
            ..choice.clone()
        }
    }
}

impl ChoiceEdit {
    /// Takes what plugins left of a part. Its thought goes on behind what they left of the beginning before.
    pub(crate) fn add_part(&mut self, part: AnswerPart) {
        let AnswerPart { place, text, thought } = part;
        let Some(place) = place else {
            self.cited_texts.get_or_insert_default().insert(text);
            return;
        };
        self.texts.resize(self.texts.len().max(place + 1), None);
        self.texts[place] = Some(text);
        if let Some(thought) = thought {
            self.thoughts.resize(self.thoughts.len().max(place + 1), None);
            self.thoughts[place].get_or_insert_default().push_str(&thought);
        }
    }
}

impl Piece {
    /// Another place of a text or a thought that is already known. It takes a changed one too.
    pub(super) fn copy_of(place: usize) -> Self {
        Piece { place, is_first: true }
    }

    /// What it becomes, if `edits` change the text or thought `parts` that it belongs to.
    pub(super) fn changed<'e>(self, parts: &[String], edits: &'e [Option<String>]) -> Option<&'e str> {
        let changed = edits.get(self.place)?.as_deref()?;
        let is_changed = parts.get(self.place).is_none_or(|old| old != changed);
        is_changed.then_some(if self.is_first { changed } else { "" })
    }
}

fn push(parts: &mut Vec<String>, text: &str, goes_on: bool) -> Option<Piece> {
    if text.is_empty() || parts.len() > MAX_ANSWER_PARTS {
        return None;
    }
    let is_first = match parts.last_mut().filter(|_| goes_on) {
        Some(last) => {
            last.push_str(text);
            false
        }
        None => {
            parts.push(text.to_owned());
            true
        }
    };
    Some(Piece { place: parts.len() - 1, is_first })
}

fn added<'e>(parts: &[String], edits: &'e [Option<String>]) -> Option<&'e str> {
    let added = edits.first()?.as_deref()?;
    (parts.is_empty() && !added.is_empty()).then_some(added)
}

/// What plugins are shown of a part of a choice, for tests.
#[cfg(test)]
pub(super) fn part_payload(
    answer: &impl super::format::FormatAnswer,
    choice: usize,
    part: usize,
) -> BeforeResponsePayload {
    let parts = answer.parts(choice).to_judge().expect("not too many");
    parts[part].clone().payload(&answer.payload(choice))
}

/// The parts that are left of these after an edit, for tests.
#[cfg(test)]
pub(super) fn edited(parts: &[String], edits: &[Option<String>]) -> Vec<String> {
    let changed = |(place, old): (usize, &String)| edits.get(place).cloned().flatten().unwrap_or(old.clone());
    let changed = parts.iter().enumerate().map(changed);
    let added = added(parts, edits).map(str::to_owned);
    added.into_iter().chain(changed).filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
#[path = "answer_parts_tests.rs"]
mod tests;
