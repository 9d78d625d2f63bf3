//! [`TokenCount`]: a view of the answer to a request to count the tokens of a request.

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeResponsePayload, BeforeToolCallPayload};

use super::withhold::withhold_in_count;
use crate::llm::{
    answer_json::scanned,
    answer_parts::AnswerParts,
    edits::{Edits, ObjectEdit},
    format::{AnswerError, ChoiceEdit, FormatAnswer, InvalidArguments, RenderedAnswer},
    value::member,
    withheld::WithheldMembers,
};

/// How many tokens a request has. The model said nothing, so there is no choice to judge.
#[derive(Debug)]
pub(crate) struct TokenCount {
    body: Bytes,
}

impl FormatAnswer for TokenCount {
    fn parse(body: Bytes, _choices: u32) -> Result<Self, AnswerError> {
        let text = scanned(&body).map_err(AnswerError::Invalid)?;
        let tokens = member(text, "input_tokens").and_then(|tokens| tokens.parse::<u64>().ok());
        if tokens.is_none() {
            return Err(AnswerError::Invalid("the answer has no integer `input_tokens`".to_owned()));
        }
        Ok(TokenCount { body })
    }

    fn choices(&self) -> usize {
        0
    }

    fn calls(&self, _choice: usize) -> usize {
        0
    }

    fn parts(&self, choice: usize) -> &AnswerParts {
        unreachable!("a count has no choice {choice}")
    }

    fn payload(&self, choice: usize) -> BeforeResponsePayload {
        unreachable!("a count has no choice {choice}")
    }

    fn call_payload(&self, choice: usize, call: usize) -> Result<BeforeToolCallPayload, InvalidArguments> {
        unreachable!("a count has no call {call} of a choice {choice}")
    }

    fn render(&self, _edits: &[ChoiceEdit], _expects_json: bool, is_guarded: bool) -> RenderedAnswer {
        let (mut edits, mut withheld) = (Edits::default(), WithheldMembers::default());
        if is_guarded {
            let text = str::from_utf8(&self.body).unwrap_or_default();
            let mut count = ObjectEdit::new(text, text);
            withhold_in_count(&mut count, &mut withheld);
            count.finish(&mut edits);
        }
        RenderedAnswer { body: edits.apply(&self.body), withheld: withheld.into_names() }
    }
}
