//! The calls that the checks make: payloads that an agent may send, as each point and hook carries them.

use std::sync::Arc;

use bytes::Bytes;
use hookgate_proto::{
    HookName, PayloadFields, SelectFields as _,
    plugin::v1::Call,
    types::v1::{
        AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
        HookPayload,
    },
};
use prost::{
    Message,
    encoding::{self, WireType},
};
use serde_json::json;

use hookgate::{
    config,
    core::{call_site::CallSite, manifest::Access, point::Point},
    invoke::{
        AfterToolResult, AgentCall, BeforeLlmRequest, BeforeResponse, BeforeToolCall, Hook, ReplyLimits,
        reply::{self, Grant},
    },
    payload::Validate as _,
    transcode::ObjectWriter,
};

/// Field numbers that no message of the contract has.
const UNKNOWN_NUMBER_FIELD: u32 = 1000;
const UNKNOWN_TEXT_FIELD: u32 = 1001;

/// What a payload holds, whichever point or hook carries it.
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

/// Encodes a payload with these of its large fields, or with all.
type PayloadEncoder = dyn Fn(Option<PayloadFields>) -> Vec<u8> + Send + Sync;

/// A call at a point or a hook.
pub(super) struct SampleCall {
    pub(super) site: CallSite,
    /// Encodes the payload.
    payload: Box<PayloadEncoder>,
    check: Box<ReplyCheck>,
}

impl SampleCall {
    /// A call as agents make it every day: at a hook, with no member that the hook doesn't require.
    pub(super) fn new(site: &CallSite, content: &SampleContent) -> Self {
        match site {
            CallSite::Point(point) => SampleCall::at_point(*point, content),
            CallSite::Hook(hook) => SampleCall::at_hook(hook, hook_body(hook, content, false)),
        }
    }

    /// As [`Self::new`], but all content is part of the payload at a hook too, in members that the hook leaves open.
    pub(super) fn with_all(site: &CallSite, content: &SampleContent) -> Self {
        match site {
            CallSite::Point(point) => SampleCall::at_point(*point, content),
            CallSite::Hook(hook) => SampleCall::at_hook(hook, hook_body(hook, content, true)),
        }
    }

    fn at_hook(hook: &HookName, body: Bytes) -> Self {
        SampleCall::with_payload::<Hook>(HookPayload { hook: hook.as_str().to_owned(), body })
    }

    fn at_point(point: Point, content: &SampleContent) -> Self {
        let SampleContent { text, tool, value } = content;
        let (text, tool_name) = (text.clone(), tool.clone());
        let (json, extra) = (Bytes::from(value.clone()), Bytes::from(format!(r#"{{"sample":{value}}}"#)));
        match point {
            Point::BeforeLlmRequest => {
                SampleCall::with_payload::<BeforeLlmRequest>(BeforeLlmRequestPayload {
                    text,
                    extra,
                    ..Default::default()
                })
            }
            Point::BeforeToolCall => SampleCall::with_payload::<BeforeToolCall>(BeforeToolCallPayload {
                tool_name,
                args: json,
                call_id: Some("call-1".into()),
                extra,
            }),
            Point::AfterToolResult => SampleCall::with_payload::<AfterToolResult>(AfterToolResultPayload {
                tool_name,
                result: json,
                success: Some(true),
                extra,
                ..Default::default()
            }),
            Point::BeforeResponse => SampleCall::with_payload::<BeforeResponse>(BeforeResponsePayload {
                content: text,
                extra,
                ..Default::default()
            }),
        }
    }

    /// A call with this payload, which an agent may send.
    pub(super) fn with_payload<P: AgentCall>(payload: P::Payload) -> Self {
        let site = P::site(&payload).expect("a hook's payload was made with its name");
        debug_assert!(payload.violations("/payload").is_empty(), "an agent may send it at {site}");
        let payload = Arc::new(payload);
        let whole = Arc::clone(&payload);
        let encode = move |fields: Option<PayloadFields>| match fields {
            Some(fields) => whole.select_fields(fields).encode_to_vec(),
            None => whole.encode_to_vec(),
        };
        let called = site.clone();
        let check = move |reply, access| {
            let grant = Grant { access, writable: None };
            let limits = ReplyLimits::from_limits(&limits());
            match reply::read::<P>(reply, &called, &payload, grant, &limits) {
                Ok(verified) if verified.sanitised > 0 => {
                    Err("a cancel with an invalid code, message, patch or notice, which a gateway drops"
                        .into())
                }
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{}: {}", error.reason.as_str(), error.detail)),
            }
        };
        SampleCall { site, payload: Box::new(encode), check: Box::new(check) }
    }

    /// The request message, with these of the payload's large fields, or with all.
    pub(super) fn request(&self, call: &Call, reads: Option<PayloadFields>) -> Vec<u8> {
        self.message(&call.encode_to_vec(), &(self.payload)(reads))
    }

    /// The same with fields that the contract doesn't have, in each of its messages.
    pub(super) fn request_with_unknown_fields(&self, call: &Call, reads: Option<PayloadFields>) -> Vec<u8> {
        let (mut call, mut payload) = (call.encode_to_vec(), (self.payload)(reads));
        add_unknown_fields(&mut call);
        add_unknown_fields(&mut payload);
        let mut message = self.message(&call, &payload);
        add_unknown_fields(&mut message);
        message
    }

    /// `call = 1` and `payload = 2`, which the requests at all points and hooks have.
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

/// A body that agents may send at `hook`. With `all`, it holds all of the content, else only what a known
/// hook requires; a plugin may be strict about the bodies of its own hooks.
fn hook_body(hook: &HookName, content: &SampleContent, all: bool) -> Bytes {
    let SampleContent { text, value, .. } = content;
    let mut body = Vec::new();
    ObjectWriter::object(&mut body, |object| {
        let mut holds_text = false;
        match hook.as_str() {
            "recall" => {
                object.member("message", text);
                holds_text = true;
            }
            "turn_end" | "before_compact" | "after_compact" | "assemble" => {
                let messages = json!([{ "role": "user", "content": text }]).to_string();
                object.json("messages", messages.as_bytes());
                holds_text = true;
            }
            "subagent_start" | "subagent_end" => object.member("child", &"child-1".to_owned()),
            "event" => object.member("kind", &"sample".to_owned()),
            _ => {}
        }
        if all && !holds_text {
            object.member("text", text);
        }
        if all {
            object.json("sample", value.as_bytes());
        }
    });
    body.into()
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

#[cfg(test)]
mod tests {
    use super::*;
    use hookgate::payload::known_hooks::KNOWN_HOOKS;
    use hookgate_proto::plugin::v1::BeforeToolCallRequest;

    #[test]
    fn agents_may_send_the_body_at_every_known_hook() {
        for hook in &KNOWN_HOOKS {
            let hook = HookName::new(hook.name).expect("it is the name of a hook");
            for all in [false, true] {
                let body = hook_body(&hook, &SampleContent::ordinary(), all);
                let payload = HookPayload { hook: hook.as_str().into(), body };
                assert_eq!(payload.violations(""), vec![], "{hook}: add what it requires");
            }
        }
    }

    #[test]
    fn a_hook_of_ones_own_gets_an_empty_body() {
        let hook = HookName::new("my_hook").expect("it is the name of a hook");
        assert_eq!(hook_body(&hook, &SampleContent::ordinary(), false), "{}");
        let body =
            hook_body(&hook, &SampleContent { text: "t".into(), ..SampleContent::with_value("1.10") }, true);
        assert_eq!(body, r#"{"text":"t","sample":1.10}"#);
    }

    #[test]
    fn a_call_has_only_the_large_fields_that_the_plugin_reads() {
        let sample = SampleCall::new(&CallSite::Point(Point::BeforeToolCall), &SampleContent::ordinary());
        let sent = |reads| {
            let message = sample.request(&Call::default(), reads);
            BeforeToolCallRequest::decode(&*message).expect("a request").payload.expect("it has a payload")
        };
        let (whole, nothing) = (sent(None), Some(PayloadFields::default()));
        assert!(!whole.args.is_empty() && !whole.extra.is_empty());
        assert_eq!(sent(nothing), whole.select_fields(PayloadFields::default()));
    }
}
