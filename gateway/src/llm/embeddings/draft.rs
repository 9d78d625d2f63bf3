//! [`EmbeddingsDraft`]: a request with the changes that plugins made.

use std::collections::BTreeMap;

use bytes::Bytes;
use hookgate_proto::types::v1::{AfterToolResultPayload, BeforeLlmRequestPayload};

use super::request::EmbeddingsRequest;
use crate::{
    core::error::Error,
    llm::{
        edits::{Edits, ObjectEdit},
        format::{FormatDraft, FormatRequest as _, PatchError},
        main_patch::{MemberChanges, shown},
        message_content::is_user_changed,
        tool_results::result_payload,
        unit::Unit,
        value::{quote, string},
    },
};

/// Members that plugins see elsewhere.
const NOT_IN_EXTRA: &[&str] = &["model", "input"];

/// A request and its changes. What nobody changes stays byte for byte.
#[derive(Debug)]
pub(crate) struct EmbeddingsDraft<'r> {
    request: &'r EmbeddingsRequest,
    /// Other texts, as JSON strings, by the index of the unit.
    edited: BTreeMap<usize, String>,
    members: MemberChanges,
    /// Another model, as a JSON string.
    model: Option<String>,
}

impl<'r> FormatDraft<'r> for EmbeddingsDraft<'r> {
    type Request = EmbeddingsRequest;

    fn new(request: &'r EmbeddingsRequest) -> Self {
        EmbeddingsDraft { request, edited: BTreeMap::new(), members: MemberChanges::default(), model: None }
    }

    fn set_model(&mut self, model: &str) {
        self.model = Some(model).filter(|model| *model != self.request.model()).map(quote);
    }

    /// The answer always has it.
    fn ask_for_usage(&mut self) {}

    /// A text has no parts.
    fn break_lines(&mut self) {}

    fn replace_unit(&mut self, unit: &Unit, json: &Bytes) {
        self.edited.insert(unit.message(), String::from_utf8_lossy(json).into_owned());
    }

    fn remove_content(&mut self, unit: &Unit, note: &str) {
        self.edited.insert(unit.message(), quote(note));
    }

    fn is_changed(&self) -> bool {
        !self.edited.is_empty() || !self.members.is_empty()
    }

    fn main_payload(&self) -> BeforeLlmRequestPayload {
        let payload = self.request.main_unit().map(|main| self.unit_payload(main)).unwrap_or_default();
        let members = shown(self.request.members(), NOT_IN_EXTRA);
        BeforeLlmRequestPayload { extra: format!(r#"{{"request":{members}}}"#).into(), ..payload }
    }

    fn unit_payload(&self, unit: &Unit) -> BeforeLlmRequestPayload {
        let json = self.text_json(unit);
        let text = str::from_utf8(&json).ok().and_then(string).unwrap_or_default().into_owned();
        BeforeLlmRequestPayload { text, ..BeforeLlmRequestPayload::default() }
    }

    fn result_payload(&self, unit: &Unit) -> Result<AfterToolResultPayload, Error> {
        result_payload("input", unit)
    }

    fn patched_unit(
        &self,
        unit: &Unit,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<Bytes, PatchError> {
        if (&before.images, &before.files) != (&after.images, &after.files) {
            return Err(PatchError::new("Embeddings have no media"));
        }
        if before.text == after.text {
            return Ok(self.text_json(unit));
        }
        Ok(quote(&after.text).into())
    }

    /// Without tools there are no results.
    fn patched_result(&self, unit: &Unit, _result: &Bytes) -> Bytes {
        self.text_json(unit)
    }

    fn apply_main(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError> {
        let absent = [
            ("system prompt", before.system_prompt != after.system_prompt),
            ("messages", before.messages != after.messages),
            ("tools", before.tools != after.tools),
        ];
        if let Some((what, _)) = absent.iter().find(|(_, is_changed)| *is_changed) {
            return Err(PatchError::new(format!("Embeddings have no {what}")));
        }
        if is_user_changed(before, after) {
            let Some(main) = self.request.main_unit() else {
                return Err(PatchError::new("`input` has no text that could be changed"));
            };
            let json = self.patched_unit(main, before, after)?;
            self.replace_unit(main, &json);
        }
        if before.extra != after.extra {
            self.members.apply_extra(&before.extra, &after.extra, NOT_IN_EXTRA)?;
        }
        Ok(())
    }

    fn render(&self) -> Bytes {
        let body = self.request.body();
        let text: &str = body;
        let mut edits = Edits::default();
        let mut object = ObjectEdit::new(text, text);
        if let Some(model) = &self.model {
            object.set("model", model.as_str());
        }
        self.members.apply(&mut object);
        object.finish(&mut edits);
        for unit in self.request.current_units() {
            if let (Some(span), Some(json)) = (self.request.text_span(unit), self.edited.get(&unit.message()))
            {
                edits.replace(span, json.as_str());
            }
        }
        edits.apply(body.as_bytes())
    }
}

impl EmbeddingsDraft<'_> {
    /// A text as it is now, as a JSON string.
    fn text_json(&self, unit: &Unit) -> Bytes {
        match self.edited.get(&unit.message()) {
            Some(edited) => edited.clone().into(),
            None => self.request.unit_json(unit),
        }
    }
}
