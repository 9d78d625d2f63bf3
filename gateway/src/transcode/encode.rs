//! Encodes an answer or a problem as a body.

use bytes::Bytes;
use hookgate_proto::{
    gateway::v1 as gateway,
    types::v1::{CancelScope, ToolAnnotations},
};

use super::writer::{Changes, ObjectWriter, WriteJson};
use crate::core::error::{FailedStep, Violation};

/// An answer to a call.
pub trait CallAnswer {
    /// Writes the answer's members, in the order of the contract, to an object that may have others.
    fn members(&self, object: &mut ObjectWriter<'_>);
}

macro_rules! answers {
    ($($answer:ident $(+ $result:ident)?),+) => {$(
        impl CallAnswer for gateway::$answer {
            fn members(&self, object: &mut ObjectWriter<'_>) {
                object.optional("decision", name_of(self.decision().as_str_name(), "DECISION_").as_ref());
                object.optional("payload", self.payload.as_ref());
                object.member("modified", &self.modified);
                object.optional("block", self.block.as_ref());
                object.member("notices", self.notices.as_slice());
                object.member("steps", self.steps.as_slice());
                object.member("plan_digest", &self.plan_digest);
                object.member("revision", &self.revision);
                object.member("request_id", &self.request_id);
                $(object.json(stringify!($result), &self.$result);)?
            }
        }
    )+};
}

answers!(
    BeforeLlmRequestResponse,
    BeforeToolCallResponse + result,
    AfterToolResultResponse,
    BeforeResponseResponse
);

/// Written by hand because a hook has no decision.
impl CallAnswer for gateway::RunHookResponse {
    fn members(&self, object: &mut ObjectWriter<'_>) {
        object.member("contributions", self.contributions.as_slice());
        object.member("notices", self.notices.as_slice());
        object.member("steps", self.steps.as_slice());
        object.member("plan_digest", &self.plan_digest);
        object.member("revision", &self.revision);
        object.member("request_id", &self.request_id);
    }
}

/// Written by hand because a list has no decision.
impl CallAnswer for gateway::ListToolsResponse {
    fn members(&self, object: &mut ObjectWriter<'_>) {
        object.member("tools", self.tools.as_slice());
        object.member("plan_digest", &self.plan_digest);
        object.member("revision", &self.revision);
    }
}

impl WriteJson for gateway::ListedTool {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.member("name", &self.name);
            object.member("description", &self.description);
            object.json("input_schema", &self.input_schema);
            object.optional("annotations", self.annotations.as_ref());
            object.optional("plugin", self.plugin.as_ref());
            object.optional("binding", self.binding.as_ref());
        });
    }
}

impl WriteJson for ToolAnnotations {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.optional("title", self.title.as_ref());
            object.optional("read_only_hint", self.read_only_hint.as_ref());
            object.optional("destructive_hint", self.destructive_hint.as_ref());
            object.optional("idempotent_hint", self.idempotent_hint.as_ref());
            object.optional("open_world_hint", self.open_world_hint.as_ref());
        });
    }
}

impl WriteJson for gateway::PluginContribution {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.optional("plugin", self.plugin.as_ref());
            object.member("kind", &self.kind);
            object.json("value", &self.value);
        });
    }
}

/// The body of an answer. Its JSON values must have been scanned, because they are copied unchanged.
pub fn encode<A: CallAnswer>(answer: &A) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    ObjectWriter::object(&mut out, |object| answer.members(object));
    out.into()
}

/// The body of a block: the members of a problem together with those of the answer. `request_id` is written
/// once.
pub fn encode_block<A: CallAnswer>(problem: &ProblemDetails<'_>, answer: &A) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    ObjectWriter::object(&mut out, |object| {
        problem.head(object);
        answer.members(object);
    });
    out.into()
}

/// An object with the members of `after` that differ from `before`; empty bytes if there are none.
pub fn changes<M: Changes>(before: &M, after: &M) -> Bytes {
    let mut out = Vec::new();
    ObjectWriter::object(&mut out, |object| after.put_changes(before, object));
    if out == b"{}" { Bytes::new() } else { out.into() }
}

/// The members of `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, Copy)]
pub struct ProblemDetails<'a> {
    /// A URI reference for the type of problem.
    pub r#type: &'a str,
    /// The meaning of the status.
    pub title: &'a str,
    pub status: u16,
    /// What happened, for people.
    pub detail: &'a str,
    /// The code that decided the status.
    pub code: &'a str,
    /// The step that ended the chain. Omitted if none did, or if the caller may not know it.
    pub step: Option<&'a FailedStep>,
    /// The results of the chain's steps.
    pub steps: &'a [gateway::Step],
    /// The gateway's id of the call.
    pub request_id: &'a str,
    /// The violations in the request; omitted if empty.
    pub errors: &'a [Violation],
}

impl ProblemDetails<'_> {
    /// The body of an error.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(512);
        ObjectWriter::object(&mut out, |object| {
            self.head(object);
            if let Some(step) = self.step {
                object.member("plugin", &*step.plugin);
                object.member("binding", &*step.binding);
                let member = if step.site.hook().is_some() { "hook" } else { "point" };
                object.member(member, step.site.as_str());
                object.member("reason", step.reason.as_str());
                object.member("steps", self.steps);
            }
            object.member("request_id", self.request_id);
            if !self.errors.is_empty() {
                object.member("errors", self.errors);
            }
        });
        out.into()
    }

    /// The members that answers don't have.
    fn head(&self, object: &mut ObjectWriter<'_>) {
        object.member("type", self.r#type);
        object.member("title", self.title);
        object.member("status", &u64::from(self.status));
        object.member("detail", self.detail);
        object.member("code", self.code);
    }
}

impl WriteJson for Violation {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.member("pointer", &self.pointer);
            object.member("message", &self.message);
        });
    }
}

impl WriteJson for gateway::Block {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.optional("plugin", self.plugin.as_ref());
            object.optional("binding", self.binding.as_ref());
            object.member("code", &self.code);
            object.member("message", &self.message);
            object.optional("retry_after_ms", self.retry_after_ms.as_ref());
            let scope = match self.scope() {
                CancelScope::Unspecified => CancelScope::Step, // they mean the same
                said => said,
            };
            object.optional("scope", name_of(scope.as_str_name(), "CANCEL_SCOPE_").as_ref());
        });
    }
}

impl WriteJson for gateway::PluginNotice {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.optional("plugin", self.plugin.as_ref());
            object.optional("kind", name_of(self.kind().as_str_name(), "NOTICE_KIND_").as_ref());
            object.optional("code", self.code.as_ref());
            object.member("message", &self.message);
            object.json("details", &self.details);
        });
    }
}

impl WriteJson for gateway::Step {
    fn put(&self, out: &mut Vec<u8>) {
        ObjectWriter::object(out, |object| {
            object.member("plugin", &self.plugin);
            object.member("binding", &self.binding);
            object.optional("outcome", name_of(self.outcome().as_str_name(), "STEP_OUTCOME_").as_ref());
            object.optional("reason", name_of(self.reason().as_str_name(), "STEP_REASON_").as_ref());
            object.member("duration_us", &self.duration_us);
            object.json("changes", &self.changes);
            object.optional("code", self.code.as_ref());
        });
    }
}

/// An enum value's name over HTTP: lower case, without the prefix. Returns `None` for the unspecified value.
pub(super) fn name_of(proto_name: &str, prefix: &str) -> Option<String> {
    let name = proto_name.strip_prefix(prefix).unwrap_or(proto_name);
    (name != "UNSPECIFIED").then(|| name.to_ascii_lowercase())
}
