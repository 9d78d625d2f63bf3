//! Decodes a request body into its message.

use bytes::Bytes;
use hookgate_proto::gateway::v1 as gateway;

use super::value::{JsonMessage, Value, read_object};
use crate::{
    core::error::Violation,
    json::{self, JsonErrorKind, pointer::JsonLocation},
    payload::{Findings, Validate, Validator, sentence},
};

/// The depth of JSON values within a request: members of `payload`.
const ENVELOPE_DEPTH: usize = 2;

/// A request message with an HTTP form.
pub trait HttpRequestMessage: JsonMessage + Validate {
    /// Takes the hook that the path names.
    fn set_hook(&mut self, _hook: &str) {}
}

impl HttpRequestMessage for gateway::BeforeLlmRequestRequest {}
impl HttpRequestMessage for gateway::BeforeToolCallRequest {}
impl HttpRequestMessage for gateway::AfterToolResultRequest {}
impl HttpRequestMessage for gateway::BeforeResponseRequest {}
impl HttpRequestMessage for gateway::RunHookRequest {
    fn set_hook(&mut self, hook: &str) {
        hook.clone_into(&mut self.hook);
    }
}

/// Reads `{"context": {...}?, "payload": {...}, "expect_plan_digest": "..."?}` and checks it like a message
/// from gRPC. The JSON values of the message share the body's memory.
///
/// `null` means absent, except for `args` and `result`, where it is a value.
///
/// # Errors
/// At least one violation, and at most [`crate::payload::MAX_VIOLATIONS`]. A body that is not JSON or too
/// deep is not checked further; all other violations are reported together.
pub fn decode<R: HttpRequestMessage>(body: &Bytes) -> Result<R, Vec<Violation>> {
    decode_at(body, None)
}

/// As [`decode`], for a request whose path names a `hook`; it has `body` instead of `payload`.
///
/// # Errors
/// As [`decode`].
pub fn decode_at<R: HttpRequestMessage>(body: &Bytes, hook: Option<&str>) -> Result<R, Vec<Violation>> {
    let mut findings = Findings::default();
    check_json(body, ENVELOPE_DEPTH, "The body", &mut findings)?;
    match read_object::<R>(root(body), &mut findings) {
        Some(mut request) => {
            if let Some(hook) = hook {
                request.set_hook(hook);
            }
            request.check(&mut Validator::for_scanned("", &mut findings));
            if findings.is_empty() { Ok(request) } else { Err(findings.into_violations()) }
        }
        None => Err(findings.into_violations()),
    }
}

/// Scans `text`, called `name` in messages, whose JSON values are at most `depth` deep in it. Keys that repeat are reported
/// only.
pub(super) fn check_json(
    text: &Bytes,
    depth: usize,
    name: &str,
    findings: &mut Findings,
) -> Result<(), Vec<Violation>> {
    let Err(flaws) = json::scan_all(text, depth + json::MAX_DEPTH) else { return Ok(()) };
    for flaw in &flaws {
        findings.add(&JsonLocation::Root(&flaw.pointer), sentence(flaw, text, name));
    }
    if flaws.iter().any(|flaw| flaw.kind != JsonErrorKind::DuplicateKey) {
        return Err(std::mem::take(findings).into_violations());
    }
    Ok(())
}

/// The value of a text that was scanned.
pub(super) fn root(text: &Bytes) -> Value<'_> {
    let value = str::from_utf8(text).expect("the scan checked it").trim_ascii();
    Value { text: value, body: text, place: &JsonLocation::Root("") }
}
