//! The JSON form of the plugin contract's calls and replies, for programs that speak JSON lines
//! (docs/writing-a-plugin-shell.md).

use std::collections::BTreeMap;

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1 as plugin,
    types::v1::{self as types, CancelScope, NoticeKind},
};

use super::{
    decode::{check_json, root},
    encode::name_of,
    value::{Field, JsonMessage, Parse, Value, read_object},
    writer::{ObjectWriter, PutField, WriteJson},
};
use crate::{core::error::Violation, json::pointer::JsonLocation, payload::Findings};

/// The depth of JSON values within a reply: members of `modify`, `details` of a notice, and `value` of a
/// contribution.
const REPLY_DEPTH: usize = 4;

impl WriteJson for plugin::CallContext {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.member("tenant", &self.tenant);
            object.member("operator", &self.operator);
            object.member("request_id", &self.request_id);
            self.correlation_id.put_field("correlation_id", object);
            object.member("labels", &self.labels);
            self.session_id.put_field("session_id", object);
            self.run_id.put_field("run_id", object);
            self.parent_run_id.put_field("parent_run_id", object);
            self.depth.map(u64::from).put_field("depth", object);
            self.agent_id.put_field("agent_id", object);
            self.agent_path.put_field("agent_path", object);
            self.project_id.put_field("project_id", object);
            self.user_id.put_field("user_id", object);
            self.provider.put_field("provider", object);
            self.model.put_field("model", object);
            self.exchange_id.put_field("exchange_id", object);
            if self.replay {
                object.member("replay", &true);
            }
            if self.part {
                object.member("part", &true);
            }
        });
    }
}

impl WriteJson for BTreeMap<String, String> {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            self.iter().for_each(|(name, value)| object.member(name, value));
        });
    }
}

impl WriteJson for plugin::ChainResult {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.optional("decision", name_of(self.decision().as_str_name(), "DECISION_").as_ref());
            self.plugin.put_field("plugin", object);
            self.code.put_field("code", object);
        });
    }
}

/// A reply of the plugin contract.
pub trait ReplyMessage: JsonMessage {
    /// Its members in a program's reply.
    const REPLY_MEMBERS: &'static [&'static str];

    /// Whether it has the verdict that it must have.
    fn has_verdict(&self) -> bool;
}

/// A program's reply.
#[derive(Debug, Default)]
pub struct DecodedReply<R> {
    /// The reply of the contract.
    pub message: R,
    /// The call that the program says it replies to.
    pub request_id: Option<String>,
}

/// Reads `{"continue": {}}` or `{"cancel": {...}}`, either with `modify`, `notices` and `request_id`; at a hook, `contributions`
/// with `notices` and `request_id`. `null` means absent, except for `args` and `result` of `modify`, and the value of a
/// contribution. The rules of values are not checked: the gateway does that.
///
/// # Errors
/// At least one violation. A text that isn't JSON or nests too deep is not checked further.
pub fn decode_reply<R: ReplyMessage>(text: &Bytes) -> Result<DecodedReply<R>, Vec<Violation>> {
    let mut findings = Findings::default();
    check_json(text, REPLY_DEPTH, "The reply", &mut findings)?;
    let reply: Option<DecodedReply<R>> = read_object(root(text), &mut findings);
    match reply {
        Some(reply) if findings.is_empty() => {
            if !reply.message.has_verdict() {
                findings.add(&JsonLocation::Root(""), "Either `continue` or `cancel` is required");
                return Err(findings.into_violations());
            }
            Ok(reply)
        }
        _ => Err(findings.into_violations()),
    }
}

impl<R: ReplyMessage> JsonMessage for DecodedReply<R> {
    const MEMBERS: &'static [&'static str] = R::REPLY_MEMBERS;

    fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
        match name {
            "request_id" if value.is_null() => true,
            "request_id" => {
                self.request_id = Parse::parse(value, findings);
                true
            }
            _ => self.message.read_member(name, value, findings),
        }
    }
}

macro_rules! replies {
    ($($reply:ident $verdict:ident),+ $(,)?) => {$(
        impl JsonMessage for plugin::$reply {
            const MEMBERS: &'static [&'static str] = &["continue", "cancel", "modify", "notices"];

            fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
                use plugin::$verdict::Verdict;
                match name {
                    "continue" | "cancel" | "modify" | "notices" if value.is_null() => {}
                    "continue" | "cancel" if self.verdict.is_some() => {
                        findings.add(value.place, "Only one of `continue` and `cancel` may be given");
                    }
                    "continue" => self.verdict = Parse::parse(value, findings).map(Verdict::Continue),
                    "cancel" => self.verdict = Parse::parse(value, findings).map(Verdict::Cancel),
                    "modify" => self.modify.read(value, findings),
                    "notices" => self.notices.read(value, findings),
                    _ => return false,
                }
                true
            }
        }

        impl ReplyMessage for plugin::$reply {
            const REPLY_MEMBERS: &'static [&'static str] =
                &["continue", "cancel", "modify", "notices", "request_id"];

            fn has_verdict(&self) -> bool {
                self.verdict.is_some()
            }
        }
    )+};
}

replies! {
    BeforeLlmRequestResponse before_llm_request_response,
    BeforeToolCallResponse before_tool_call_response,
    AfterToolResultResponse after_tool_result_response,
    BeforeResponseResponse before_response_response,
}

impl JsonMessage for plugin::OnHookResponse {
    const MEMBERS: &'static [&'static str] = &["contributions", "notices"];

    fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
        match name {
            "contributions" | "notices" if value.is_null() => {}
            "contributions" => self.contributions.read(value, findings),
            "notices" => self.notices.read(value, findings),
            _ => return false,
        }
        true
    }
}

impl ReplyMessage for plugin::OnHookResponse {
    const REPLY_MEMBERS: &'static [&'static str] = &["contributions", "notices", "request_id"];

    /// A hook decides nothing.
    fn has_verdict(&self) -> bool {
        true
    }
}

impl JsonMessage for plugin::Continue {
    const MEMBERS: &'static [&'static str] = &[];

    fn read_member(&mut self, _: &str, _: Value<'_>, _: &mut Findings) -> bool {
        false
    }
}

/// `messages!(Type { a: kind })`. A `text`, `number`, `tree` or `media` that is `null` is absent; for `json`, `null` is a
/// value.
macro_rules! messages {
    ($($type:path { $($member:ident: $kind:ident),+ $(,)? })+) => {$(
        impl JsonMessage for $type {
            const MEMBERS: &'static [&'static str] = &[$(stringify!($member)),+];

            fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
                match name {
                    $(stringify!($member) => {
                        if !value.is_null() || messages!(@null_is_a_value $kind) {
                            messages!(@$kind self.$member, value, findings);
                        }
                        true
                    })+
                    _ => false,
                }
            }
        }
    )+};
    (@null_is_a_value json) => { true };
    (@null_is_a_value $other:ident) => { false };
    (@text $slot:expr, $value:ident, $findings:ident) => { $slot.read($value, $findings) };
    (@tree $slot:expr, $value:ident, $findings:ident) => { messages!(@json $slot, $value, $findings) };
    (@json $slot:expr, $value:ident, $findings:ident) => {{
        let _: &mut Findings = $findings;
        $slot = $value.raw().into();
    }};
    (@media $slot:expr, $value:ident, $findings:ident) => {{
        let mut items = Vec::new();
        items.read($value, $findings);
        $slot = Some(types::MediaList { items });
    }};
    (@scope $slot:expr, $value:ident, $findings:ident) => {
        $slot = named($value, "CANCEL_SCOPE_", &["step", "run"], CancelScope::from_str_name, $findings)
    };
    (@kind $slot:expr, $value:ident, $findings:ident) => {
        $slot = named($value, "NOTICE_KIND_", &["allow", "block", "warn", "info"], NoticeKind::from_str_name, $findings)
    };
}

messages! {
    plugin::Cancel { code: text, message: text, retry_after_ms: text, scope: scope, result: json }
    types::Notice { kind: kind, code: text, message: text, details: tree }
    types::Contribution { kind: text, value: json }
    types::BeforeLlmRequestPatch {
        text: text, images: media, files: media, system_prompt: text, messages: tree, tools: tree, extra: tree,
    }
    types::BeforeToolCallPatch { tool_name: text, args: json, extra: tree }
    types::AfterToolResultPatch { result: json, extra: tree }
    types::BeforeResponsePatch { content: text, reasoning: text, extra: tree }
}

/// The number of an enum's value, by its name in lower case without the prefix. 0 if it was reported.
fn named<E: Into<i32>>(
    value: Value<'_>,
    prefix: &str,
    names: &[&str],
    parse: impl Fn(&str) -> Option<E>,
    findings: &mut Findings,
) -> i32 {
    let Some(name) = value.string(findings) else { return 0 };
    let known = names.contains(&&*name).then(|| format!("{prefix}{}", name.to_ascii_uppercase()));
    let Some(number) = known.and_then(|name| parse(&name)) else {
        findings.add(value.place, format!("{} must be one of {}", value.place.name(), names.join(", ")));
        return 0;
    };
    number.into()
}
