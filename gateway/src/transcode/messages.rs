//! The members of each message over HTTP, with the names and order of the contract. A test compares them with
//! the descriptors.

use hookgate_proto::{
    gateway::v1 as gateway,
    types::v1::{self as types, media::Source},
};

use super::{
    value::{Field, JsonMessage, Parse, Value},
    writer::{Changes, ObjectWriter, PutField, WriteJson},
};
use crate::payload::Findings;

/// `members!(read Type { a, b = json })`: `null` means absent for `a`, and is a value of `b`. With `read
/// write` the same table also serves answers, entirely or by what changed.
macro_rules! members {
    (read write $type:path { $($member:ident $(= $json:ident)?),+ $(,)? }) => {
        members!(read $type { $($member $(= $json)?),+ });

        impl WriteJson for $type {
            fn put(&self, out: &mut Vec<u8>) {
                ObjectWriter::object(out, |object| {
                    $(self.$member.put_field(stringify!($member), object);)+
                });
            }
        }

        impl Changes for $type {
            fn put_changes(&self, before: &Self, object: &mut ObjectWriter<'_>) {
                $(if self.$member != before.$member {
                    self.$member.put_changed(stringify!($member), object);
                })+
            }
        }
    };
    (read $type:path { $($member:ident $(= $json:ident)?),+ $(,)? }) => {
        impl JsonMessage for $type {
            const MEMBERS: &'static [&'static str] = &[$(stringify!($member)),+];

            fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
                match name {
                    $(stringify!($member) => {
                        if !value.is_null() || members!(@null_is_a_value $($json)?) {
                            self.$member.read(value, findings);
                        }
                        true
                    })+
                    _ => false,
                }
            }
        }
    };
    (@null_is_a_value json) => { true };
    (@null_is_a_value) => { false };
}

members!(read gateway::BeforeLlmRequestRequest { context, payload, expect_plan_digest, trace });
members!(read gateway::BeforeToolCallRequest { context, payload, expect_plan_digest, trace, takes_results });
members!(read gateway::AfterToolResultRequest { context, payload, expect_plan_digest, trace });
members!(read gateway::BeforeResponseRequest { context, payload, expect_plan_digest, trace });

members!(read write types::HookPayload { hook, body });

/// Written by hand because the hook is in the path.
impl JsonMessage for gateway::RunHookRequest {
    const MEMBERS: &'static [&'static str] = &["context", "body", "expect_plan_digest"];

    fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
        match name {
            "context" | "body" | "expect_plan_digest" if value.is_null() => {}
            "context" => self.context.read(value, findings),
            "body" => self.body.read(value, findings),
            "expect_plan_digest" => self.expect_plan_digest.read(value, findings),
            _ => return false,
        }
        true
    }
}

members!(read gateway::RequestContext {
    session_id, run_id, parent_run_id, depth, agent_id, agent_path, project_id, user_id, provider, model, labels,
});

members!(read write types::BeforeLlmRequestPayload {
    text, images, files, system_prompt, messages, tools, extra,
});
members!(read write types::BeforeToolCallPayload { tool_name, args = json, call_id, extra });
members!(read write types::AfterToolResultPayload {
    tool_name, result = json, success, args = json, call_id, duration_ms, extra,
});
members!(read write types::BeforeResponsePayload {
    content, reasoning, provider, model, router, token_usage, stop_reason, extra,
});
members!(read write types::TokenUsage { input, output });

/// Written by hand because of the choice between `data` and `url`.
impl JsonMessage for types::Media {
    const MEMBERS: &'static [&'static str] = &["data", "url", "mime_type", "filename"];

    fn read_member(&mut self, name: &str, value: Value<'_>, findings: &mut Findings) -> bool {
        match name {
            "data" | "url" | "mime_type" | "filename" if value.is_null() => {}
            "data" | "url" if self.source.is_some() => {
                findings.add(value.place, "Only one of `data` and `url` may be given");
            }
            "data" => self.source = Parse::parse(value, findings).map(Source::Data),
            "url" => self.source = Parse::parse(value, findings).map(Source::Url),
            "mime_type" => self.mime_type.read(value, findings),
            "filename" => self.filename.read(value, findings),
            _ => return false,
        }
        true
    }
}

impl WriteJson for types::Media {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            match &self.source {
                Some(Source::Data(data)) => object.base64("data", data),
                Some(Source::Url(url)) => object.member("url", url),
                None => {}
            }
            self.mime_type.put_field("mime_type", object);
            self.filename.put_field("filename", object);
        });
    }
}
