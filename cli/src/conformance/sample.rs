//! The calls that the checks make: payloads that an agent may send, as each point carries them.

use std::sync::Arc;

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::Call,
    types::v1::{
        AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
    },
};
use prost::{
    Message,
    encoding::{self, WireType},
};

use hookgate::{
    config,
    core::{manifest::Access, point::Point},
    invoke::{
        AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, ExtensionPoint, ReplyLimits,
        reply::{self, Grant},
    },
    payload::Validate as _,
};

/// Field numbers that no message of the contract has.
const UNKNOWN_NUMBER_FIELD: u32 = 1000;
const UNKNOWN_TEXT_FIELD: u32 = 1001;

/// What a payload holds, whichever point carries it.
pub(super) struct SampleContent {
    /// The text of a prompt or an answer.
    pub(super) text: String,
    /// The tool's name.
    pub(super) tool: String,
    /// Arguments or a result: JSON text.
    pub(super) value: String,
}

impl SampleContent {
    /// What agents send every day.
    pub(super) fn ordinary() -> Self {
        SampleContent::numbered(0)
    }

    /// Ordinary content that differs by `number`.
    pub(super) fn numbered(number: usize) -> Self {
        SampleContent {
            text: format!("Is file {number} on this machine?"),
            tool: format!("fs.read_{number}"),
            value: format!(r#"{{"path":"/tmp/file-{number}","lines":{number}}}"#),
        }
    }

    /// Ordinary content but for the JSON value.
    pub(super) fn with_value(value: impl Into<String>) -> Self {
        SampleContent { value: value.into(), ..SampleContent::ordinary() }
    }
}

/// Checks the reply to a call: its verdict, patch, notices and sizes.
type ReplyCheck = dyn Fn(Bytes, Access) -> Result<(), String> + Send + Sync;

/// A call at a point.
pub(super) struct SampleCall {
    pub(super) point: Point,
    /// The encoded payload.
    payload: Vec<u8>,
    check: Box<ReplyCheck>,
}

impl SampleCall {
    pub(super) fn new(point: Point, content: &SampleContent) -> Self {
        let SampleContent { text, tool, value } = content;
        let (text, tool_name) = (text.clone(), tool.clone());
        let (json, extra) = (Bytes::from(value.clone()), Bytes::from(format!(r#"{{"sample":{value}}}"#)));
        match point {
            Point::BeforeLlmRequest => SampleCall::at::<BeforeLlmRequest>(BeforeLlmRequestPayload {
                text,
                extra,
                ..Default::default()
            }),
            Point::BeforeToolCall => SampleCall::at::<BeforeToolCall>(BeforeToolCallPayload {
                tool_name,
                args: json,
                call_id: Some("call-1".into()),
                extra,
            }),
            Point::AfterToolResult => SampleCall::at::<AfterToolResult>(AfterToolResultPayload {
                tool_name,
                result: json,
                success: Some(true),
                extra,
                ..Default::default()
            }),
            Point::BeforeResponse => SampleCall::at::<BeforeResponse>(BeforeResponsePayload {
                content: text,
                extra,
                ..Default::default()
            }),
        }
    }

    fn at<P: ExtensionPoint>(payload: P::Payload) -> Self {
        debug_assert!(payload.violations("/payload").is_empty(), "an agent may send it at {}", P::POINT);
        let payload = Arc::new(payload);
        let encoded = payload.encode_to_vec();
        let check = move |reply, access| {
            let grant = Grant { access, writable: None };
            let read = reply::read::<P>(
                reply,
                &P::POINT.into(),
                &payload,
                grant,
                &ReplyLimits::from_limits(&limits()),
            );
            match read {
                Ok(verified) if verified.sanitised > 0 => {
                    Err("a cancel with an invalid code, message, patch or notice, which a gateway drops"
                        .into())
                }
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{}: {}", error.reason.as_str(), error.detail)),
            }
        };
        SampleCall { point: P::POINT, payload: encoded, check: Box::new(check) }
    }

    /// The request message.
    pub(super) fn request(&self, call: &Call) -> Vec<u8> {
        self.message(&call.encode_to_vec(), &self.payload)
    }

    /// The same with fields that the contract doesn't have, in each of its messages.
    pub(super) fn request_with_unknown_fields(&self, call: &Call) -> Vec<u8> {
        let (mut call, mut payload) = (call.encode_to_vec(), self.payload.clone());
        add_unknown_fields(&mut call);
        add_unknown_fields(&mut payload);
        let mut message = self.message(&call, &payload);
        add_unknown_fields(&mut message);
        message
    }

    /// `call = 1` and `payload = 2`, which all four requests have.
    fn message(&self, call: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(call.len() + payload.len() + 16);
        for (field, part) in [(1, call), (2, payload)] {
            encoding::encode_key(field, WireType::LengthDelimited, &mut message);
            encoding::encode_varint(part.len() as u64, &mut message);
            message.extend_from_slice(part);
        }
        message
    }

    /// Checks a reply to this call. `access` is that of the manifest.
    pub(super) fn check(&self, reply: Bytes, access: Access) -> Result<(), String> {
        (self.check)(reply, access)
    }
}

/// Appends fields of a later version.
pub(super) fn add_unknown_fields(message: &mut Vec<u8>) {
    encoding::uint64::encode(UNKNOWN_NUMBER_FIELD, &7, message);
    encoding::string::encode(UNKNOWN_TEXT_FIELD, &"a field of a later version".to_owned(), message);
}

/// The limits of a gateway that accepts the largest requests.
pub(super) fn limits() -> config::Limits {
    config::Limits { request: config::Size(16 << 20), ..config::Limits::default() }
}
