//! Validates payloads, patches and request contexts (docs/protocol.md, section 1) from HTTP, from gRPC and
//! from plugins alike. This module must not know how a message arrived, or what follows from a violation.

use hookgate_proto::types::v1::{self as types, media::Source};

use crate::core::error::Violation;

mod check;
mod context;
pub mod known_hooks;
#[cfg(test)]
mod tests;

pub(crate) use check::sentence;
pub use check::{Findings, MAX_VIOLATIONS, Validator};
pub use context::context_violations;

/// Longest `tool_name`, in bytes.
pub const MAX_TOOL_NAME: usize = 256;

/// A message with rules beyond its protobuf types.
///
/// For a patch, only the present fields are checked (empty bytes mean that a JSON value is absent). No rule
/// covers several fields, so a valid patch of a valid payload gives a valid one.
pub trait Validate {
    /// Reports violations.
    fn check(&self, check: &mut Validator<'_>);

    /// The violations in the message, which is at the pointer `at` of the request (`"/payload"`): at most
    /// [`MAX_VIOLATIONS`], and one for each member.
    fn violations(&self, at: &str) -> Vec<Violation> {
        let mut findings = Findings::default();
        self.check(&mut Validator::new(at, &mut findings));
        findings.into_violations()
    }
}

impl Validate for types::BeforeLlmRequestPayload {
    fn check(&self, check: &mut Validator<'_>) {
        check.media_list("images", &self.images);
        check.media_list("files", &self.files);
        check.array("messages", &self.messages);
        check.array("tools", &self.tools);
        check.object("extra", &self.extra);
    }
}

impl Validate for types::BeforeLlmRequestPatch {
    fn check(&self, check: &mut Validator<'_>) {
        check.media_list("images", self.images.as_ref().map_or(&[], |list| &list.items));
        check.media_list("files", self.files.as_ref().map_or(&[], |list| &list.items));
        check.array("messages", self.messages.as_deref().unwrap_or_default());
        check.array("tools", self.tools.as_deref().unwrap_or_default());
        check.object("extra", self.extra.as_deref().unwrap_or_default());
    }
}

impl Validate for types::BeforeToolCallPayload {
    fn check(&self, check: &mut Validator<'_>) {
        check.tool_name(&self.tool_name);
        check.required_json("args", &self.args);
        check.object("extra", &self.extra);
    }
}

impl Validate for types::BeforeToolCallPatch {
    fn check(&self, check: &mut Validator<'_>) {
        if let Some(name) = &self.tool_name {
            check.tool_name(name);
        }
        if let Some(args) = self.args.as_ref().filter(|json| !json.is_empty()) {
            check.required_json("args", args);
        }
        check.object("extra", self.extra.as_deref().unwrap_or_default());
    }
}

impl Validate for types::AfterToolResultPayload {
    fn check(&self, check: &mut Validator<'_>) {
        check.tool_name(&self.tool_name);
        check.required_json("result", &self.result);
        if self.success.is_none() {
            check.report("success", "`success` is required: true or false");
        }
        check.json("args", &self.args);
        check.object("extra", &self.extra);
    }
}

impl Validate for types::AfterToolResultPatch {
    fn check(&self, check: &mut Validator<'_>) {
        if let Some(result) = self.result.as_ref().filter(|json| !json.is_empty()) {
            check.required_json("result", result);
        }
        check.object("extra", self.extra.as_deref().unwrap_or_default());
    }
}

impl Validate for types::BeforeResponsePayload {
    fn check(&self, check: &mut Validator<'_>) {
        check.object("extra", &self.extra);
    }
}

impl Validate for types::BeforeResponsePatch {
    fn check(&self, check: &mut Validator<'_>) {
        check.object("extra", self.extra.as_deref().unwrap_or_default());
    }
}

impl Validate for types::Media {
    fn check(&self, check: &mut Validator<'_>) {
        match &self.source {
            None => check.report_here("One of `data` and `url` is required"),
            Some(Source::Url(url)) if url.is_empty() => check.report("url", "`url` must not be empty"),
            Some(Source::Url(_) | Source::Data(_)) => {}
        }
        if self.mime_type.is_empty() {
            check.report("mime_type", "`mime_type` is required, such as `image/png`");
        }
    }
}

/// Nothing can be patched at a hook.
impl Validate for () {
    fn check(&self, _: &mut Validator<'_>) {}
}

impl Validate for types::HookPayload {
    fn check(&self, check: &mut Validator<'_>) {
        check.hook(&self.hook, &self.body);
    }
}

impl Validate for hookgate_proto::gateway::v1::RunHookRequest {
    fn check(&self, check: &mut Validator<'_>) {
        if let Some(context) = &self.context {
            check.inside("context", |check| context::check(context, check));
        }
        check.hook(&self.hook, &self.body);
    }
}

macro_rules! checked_requests {
    ($($request:ident),+) => {$(
        impl Validate for hookgate_proto::gateway::v1::$request {
            fn check(&self, check: &mut Validator<'_>) {
                if let Some(context) = &self.context {
                    check.inside("context", |check| context::check(context, check));
                }
                match &self.payload {
                    Some(payload) => check.inside("payload", |check| payload.check(check)),
                    None => check.report("payload", "`payload` is required"),
                }
            }
        }
    )+};
}

checked_requests!(
    BeforeLlmRequestRequest,
    BeforeToolCallRequest,
    AfterToolResultRequest,
    BeforeResponseRequest
);
