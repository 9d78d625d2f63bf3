//! Edits of answers, for tests.

use crate::llm::format::{CallEdit, ChoiceEdit};

pub(super) fn note(text: &str) -> CallEdit {
    CallEdit::Note(text.to_owned())
}

pub(super) fn call_edits(calls: Vec<CallEdit>) -> ChoiceEdit {
    ChoiceEdit { calls, ..ChoiceEdit::default() }
}

pub(super) fn text(text: &str) -> ChoiceEdit {
    ChoiceEdit { texts: vec![Some(text.to_owned())], ..ChoiceEdit::default() }
}

pub(super) fn reasoning(text: &str) -> ChoiceEdit {
    ChoiceEdit { thoughts: vec![Some(text.to_owned())], ..ChoiceEdit::default() }
}
