//! What the model says and thinks in an answer, in parts. Texts that a reader sees apart are parts of their own, so that no pattern of a
//! plugin crosses from one into another, and each takes back its own change ([0085](../../../docs/decisions/0085-parts-of-answers.md)).

use hookgate_proto::types::v1::BeforeResponsePayload;

/// Most texts, and most thoughts, of a choice. Plugins are asked about each.
pub(super) const MAX_ANSWER_PARTS: usize = 1024;

/// The texts and thoughts of one choice, in their order. None is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct AnswerParts {
    /// What the model says.
    pub(crate) texts: Vec<String>,
    /// What the model thought, as far as it is text.
    pub(crate) thoughts: Vec<String>,
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

    /// In how many parts plugins are shown the choice: at least one.
    pub(crate) fn count(&self) -> usize {
        self.texts.len().max(self.thoughts.len()).max(1)
    }

    /// What plugins are shown of a part: the text and the thought with this place.
    pub(super) fn payload(&self, part: usize) -> BeforeResponsePayload {
        BeforeResponsePayload {
            content: self.texts.get(part).cloned().unwrap_or_default(),
            reasoning: self.thoughts.get(part).cloned(),
            ..BeforeResponsePayload::default()
        }
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
    if text.is_empty() {
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
