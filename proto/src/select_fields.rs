//! Payloads without the fields that a plugin doesn't read, as a gateway sends them.

use crate::{
    PayloadField, PayloadFields,
    types::v1::{
        AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
        HookPayload,
    },
};

/// A payload whose large fields can be left out.
pub trait SelectFields {
    /// The payload with only these of its large fields; the others are empty. Fields that are left out are not copied.
    #[must_use]
    fn select_fields(&self, fields: PayloadFields) -> Self;
}

/// The value, or an empty one if the plugin doesn't read the field.
fn selected<T: Clone + Default>(fields: PayloadFields, field: PayloadField, value: &T) -> T {
    if fields.contains(field) { value.clone() } else { T::default() }
}

impl SelectFields for BeforeLlmRequestPayload {
    fn select_fields(&self, fields: PayloadFields) -> Self {
        BeforeLlmRequestPayload {
            text: selected(fields, PayloadField::Text, &self.text),
            images: selected(fields, PayloadField::Images, &self.images),
            files: selected(fields, PayloadField::Files, &self.files),
            system_prompt: selected(fields, PayloadField::SystemPrompt, &self.system_prompt),
            messages: selected(fields, PayloadField::Messages, &self.messages),
            tools: selected(fields, PayloadField::Tools, &self.tools),
            extra: selected(fields, PayloadField::Extra, &self.extra),
        }
    }
}

impl SelectFields for BeforeToolCallPayload {
    fn select_fields(&self, fields: PayloadFields) -> Self {
        BeforeToolCallPayload {
            tool_name: self.tool_name.clone(),
            args: selected(fields, PayloadField::Args, &self.args),
            call_id: self.call_id.clone(),
            extra: selected(fields, PayloadField::Extra, &self.extra),
        }
    }
}

impl SelectFields for AfterToolResultPayload {
    fn select_fields(&self, fields: PayloadFields) -> Self {
        AfterToolResultPayload {
            tool_name: self.tool_name.clone(),
            result: selected(fields, PayloadField::Result, &self.result),
            success: self.success,
            args: selected(fields, PayloadField::Args, &self.args),
            call_id: self.call_id.clone(),
            duration_ms: self.duration_ms,
            extra: selected(fields, PayloadField::Extra, &self.extra),
        }
    }
}

impl SelectFields for BeforeResponsePayload {
    fn select_fields(&self, fields: PayloadFields) -> Self {
        BeforeResponsePayload {
            content: selected(fields, PayloadField::Content, &self.content),
            reasoning: selected(fields, PayloadField::Reasoning, &self.reasoning),
            provider: self.provider.clone(),
            model: self.model.clone(),
            router: self.router.clone(),
            token_usage: self.token_usage,
            stop_reason: self.stop_reason.clone(),
            extra: selected(fields, PayloadField::Extra, &self.extra),
        }
    }
}

impl SelectFields for HookPayload {
    /// The whole payload: a hook's offer names no fields.
    fn select_fields(&self, _: PayloadFields) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use crate::{
        Point,
        types::v1::{Media, TokenUsage},
    };

    /// Checks `full`, in which each field has a value, with each of its large fields alone.
    fn check<P: SelectFields + Default + PartialEq + fmt::Debug>(
        point: Point,
        full: &P,
        clear: impl Fn(&mut P, PayloadField),
    ) {
        let fields = PayloadFields::of(point);
        assert_eq!(&full.select_fields(fields), full);
        for kept in fields.iter() {
            let mut expected = full.select_fields(fields);
            fields.iter().filter(|field| *field != kept).for_each(|field| clear(&mut expected, field));
            assert_eq!(full.select_fields(PayloadFields::new(&[kept])), expected, "{kept}");
        }
    }

    #[test]
    fn only_fields_that_are_read_are_in_a_conversation() {
        let media = vec![Media { mime_type: "image/png".into(), ..Default::default() }];
        let full = BeforeLlmRequestPayload {
            text: "hello".into(),
            images: media.clone(),
            files: media,
            system_prompt: Some("be brief".into()),
            messages: b"[1]".as_slice().into(),
            tools: b"[2]".as_slice().into(),
            extra: b"{}".as_slice().into(),
        };
        check(Point::BeforeLlmRequest, &full, |payload, field| match field {
            PayloadField::Text => payload.text.clear(),
            PayloadField::Images => payload.images.clear(),
            PayloadField::Files => payload.files.clear(),
            PayloadField::SystemPrompt => payload.system_prompt = None,
            PayloadField::Messages => payload.messages.clear(),
            PayloadField::Tools => payload.tools.clear(),
            PayloadField::Extra => payload.extra.clear(),
            other => panic!("{other}"),
        });
    }

    #[test]
    fn small_fields_are_always_in_a_tool_call_and_its_result() {
        let call = BeforeToolCallPayload {
            tool_name: "fs.read".into(),
            args: b"{}".as_slice().into(),
            call_id: Some("1".into()),
            extra: b"{}".as_slice().into(),
        };
        check(Point::BeforeToolCall, &call, |payload, field| match field {
            PayloadField::Args => payload.args.clear(),
            PayloadField::Extra => payload.extra.clear(),
            other => panic!("{other}"),
        });
        let result = AfterToolResultPayload {
            tool_name: "fs.read".into(),
            result: b"1".as_slice().into(),
            success: Some(true),
            args: b"{}".as_slice().into(),
            call_id: Some("1".into()),
            duration_ms: Some(5),
            extra: b"{}".as_slice().into(),
        };
        check(Point::AfterToolResult, &result, |payload, field| match field {
            PayloadField::Result => payload.result.clear(),
            PayloadField::Args => payload.args.clear(),
            PayloadField::Extra => payload.extra.clear(),
            other => panic!("{other}"),
        });
    }

    #[test]
    fn small_fields_are_always_in_an_answer() {
        let answer = BeforeResponsePayload {
            content: "done".into(),
            reasoning: Some("because".into()),
            provider: Some("p".into()),
            model: Some("m".into()),
            router: Some("r".into()),
            token_usage: Some(TokenUsage { input: 1, output: 2 }),
            stop_reason: Some("end".into()),
            extra: b"{}".as_slice().into(),
        };
        check(Point::BeforeResponse, &answer, |payload, field| match field {
            PayloadField::Content => payload.content.clear(),
            PayloadField::Reasoning => payload.reasoning = None,
            PayloadField::Extra => payload.extra.clear(),
            other => panic!("{other}"),
        });
    }
}
