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
pub trait HttpRequestMessage: JsonMessage + Validate {}

impl HttpRequestMessage for gateway::BeforeLlmRequestRequest {}
impl HttpRequestMessage for gateway::BeforeToolCallRequest {}
impl HttpRequestMessage for gateway::AfterToolResultRequest {}
impl HttpRequestMessage for gateway::BeforeResponseRequest {}

/// Reads `{"context": {...}?, "payload": {...}, "expect_plan_digest": "..."?}` and checks it like a message
/// from gRPC. The JSON values of the message share the body's memory.
///
/// `null` means absent, except for `args` and `result`, where it is a value.
///
/// # Errors
/// At least one violation, and at most [`crate::payload::MAX_VIOLATIONS`]. A body that is not JSON or too
/// deep is not checked further; all other violations are reported together.
pub fn decode<R: HttpRequestMessage>(body: &Bytes) -> Result<R, Vec<Violation>> {
    let mut findings = Findings::default();
    if let Err(flaws) = json::scan_all(body, ENVELOPE_DEPTH + json::MAX_DEPTH) {
        for flaw in &flaws {
            findings.add(&JsonLocation::Root(&flaw.pointer), sentence(flaw, body, "The body"));
        }
        if flaws.iter().any(|flaw| flaw.kind != JsonErrorKind::DuplicateKey) {
            return Err(findings.into_violations());
        }
    }
    let text = str::from_utf8(body).expect("the scan checked it").trim_ascii();
    let root = Value { text, body, place: &JsonLocation::Root("") };
    match read_object::<R>(root, &mut findings) {
        Some(request) => {
            request.check(&mut Validator::for_scanned("", &mut findings));
            if findings.is_empty() { Ok(request) } else { Err(findings.into_violations()) }
        }
        None => Err(findings.into_violations()),
    }
}
