//! Encodes the outcome of a call as an HTTP or a gRPC answer. The only place where a chain's outcome and an
//! [`Error`] meet (docs/protocol.md, section 4).

use std::{
    fmt::{self, Write},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use hookgate_proto::gateway::v1 as wire;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

mod over_grpc;
mod steps;

pub use self::over_grpc::{grpc_asked, grpc_end, grpc_events, grpc_refusal};
use self::{
    over_grpc::{grpc_error, grpc_message},
    steps::{behind, step_message},
};
use crate::{
    config::Detail,
    core::{
        block_status::BlockStatuses,
        error::{Code, Error},
    },
    edge::{admission::CallPermits, request_meta::RequestMeta},
    invoke::{AgentCall, Block, ChainDecision, ChainOutcome, PayloadChange, ResponseParts, StepReport},
    net::tracked_body,
    transcode::{CallAnswer, Changes, ProblemDetails, changes, encode, encode_block},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Media type of an error and of a block.
const PROBLEM_JSON: &str = "application/problem+json";
/// Longest `Server-Timing`, in bytes. The value of a long chain could exceed the header limits of clients and
/// proxies.
const MAX_SERVER_TIMING_BYTES: usize = 1 << 10;

const DECISION: HeaderName = HeaderName::from_static("hookgate-decision");

/// A finished call, with everything that its answer needs.
pub struct InvocationResult<P: AgentCall> {
    /// The metadata of the request.
    pub arrival: RequestMeta,
    /// The outcome of the chain, or an error if the chain wasn't run.
    pub result: Result<ChainOutcome<P>, Error>,
    /// The answer's level of detail.
    pub detail: Detail,
    /// The statuses of block codes when the call arrived.
    pub statuses: Arc<BlockStatuses>,
    /// The call's permits, kept until the answer is written.
    pub permits: CallPermits,
}

/// The HTTP answer to a call.
pub fn http<P: AgentCall>(finished: InvocationResult<P>) -> Response<Body>
where
    P::Payload: Changes,
    P::Response: CallAnswer,
{
    let headers = common_headers(&finished);
    let request_id = finished.arrival.request_id.to_string();
    let detail = finished.detail;
    let mut answer = match finished.result.map_err(FailedInvocation::from).and_then(DecidedInvocation::split)
    {
        Err(FailedInvocation { error, steps }) => http_error(&error, &steps, detail, &request_id),
        Ok(DecidedInvocation { decision: ChainDecision::Continue, ended }) => {
            let json = encode(&P::response(parts(ended, detail, request_id)));
            match P::point() {
                Some(_) => decided("continue", StatusCode::OK, "application/json", json),
                None => body(StatusCode::OK, "application/json", json),
            }
        }
        Ok(DecidedInvocation { decision: ChainDecision::Answer(answer), ended }) => {
            let parts = ResponseParts { result: Some(answer.result), ..parts(ended, detail, request_id) };
            decided("answer", StatusCode::OK, "application/json", encode(&P::response(parts)))
        }
        Ok(DecidedInvocation { decision: ChainDecision::Block(block), ended }) => {
            let status = finished.statuses.status(&block.plugin, &block.code);
            let parts = parts(ended, detail, request_id.clone());
            let response = P::response(ResponseParts { block: Some(block_message(&block, detail)), ..parts });
            let problem = ProblemDetails {
                r#type: &format!("urn:hookgate:block:{}", block.code),
                title: title(status),
                status: status.as_u16(),
                detail: &block.message,
                code: &block.code,
                step: None,
                steps: &[],
                request_id: &request_id,
                errors: &[],
            };
            let mut answer = decided("block", status, PROBLEM_JSON, encode_block(&problem, &response));
            if let Some(millis) = block.retry_after_ms {
                answer
                    .headers_mut()
                    .insert(header::RETRY_AFTER, whole_seconds(Duration::from_millis(millis)));
            }
            if status == StatusCode::UNAUTHORIZED {
                let challenge = format!("Hookgate code=\"{}\"", block.code);
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, ascii(&challenge));
            }
            answer
        }
    };
    answer.headers_mut().extend(headers);
    tracked_body::hold(&mut answer, finished.permits);
    answer
}

/// The HTTP answer to a request that isn't a call: an unknown path, a wrong method, a wrong content type.
pub fn http_refusal(arrival: &RequestMeta, error: &Error, detail: Detail) -> Response<Body> {
    let request_id = arrival.request_id.to_string();
    let mut answer = http_error(error, &[], detail, &request_id);
    answer.headers_mut().extend(timing_headers(arrival, &[], detail));
    answer
}

/// The HTTP answer to a request for information about the gateway.
pub fn http_json(arrival: &RequestMeta, json: Bytes) -> Response<Body> {
    let mut answer = body(StatusCode::OK, "application/json", json);
    answer.headers_mut().extend(timing_headers(arrival, &[], Detail::Full));
    answer
}

/// The HTTP answer to an authenticated request at a path that takes GET only. It must not be cached: it
/// changes at any moment, and parts of it are for its reader only.
pub fn http_question(arrival: &RequestMeta, asked: Result<Bytes, Error>, detail: Detail) -> Response<Body> {
    http_asked(arrival, asked.map(|json| (StatusCode::OK, json)), "GET", detail)
}

/// The HTTP answer to an authenticated request at a path that takes the methods `allow`.
pub fn http_asked(
    arrival: &RequestMeta,
    asked: Result<(StatusCode, Bytes), Error>,
    allow: &'static str,
    detail: Detail,
) -> Response<Body> {
    let mut answer = match asked {
        Ok((status, json)) => {
            let mut answer = http_json(arrival, json);
            *answer.status_mut() = status;
            answer
        }
        Err(error) => {
            let mut answer = http_refusal(arrival, &error, detail);
            if error.code == Code::MethodNotAllowed {
                answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
            }
            answer
        }
    };
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A streaming HTTP answer: server-sent events.
pub fn http_events(arrival: &RequestMeta, events: Body) -> Response<Body> {
    let mut answer = Response::new(events);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.extend(timing_headers(arrival, &[], Detail::Full));
    tracked_body::goes_on(&mut answer);
    answer
}

fn http_error(error: &Error, steps: &[StepReport], detail: Detail, request_id: &str) -> Response<Body> {
    let status = StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let (step, steps) = behind(error, steps, detail).unzip();
    let problem = ProblemDetails {
        r#type: &format!("urn:hookgate:error:{}", error.code),
        title: title(status),
        status: status.as_u16(),
        detail: sentence(error, detail),
        code: error.code.as_str(),
        step,
        steps: steps.as_deref().unwrap_or_default(),
        request_id,
        errors: &error.violations,
    };
    let mut answer = body(status, PROBLEM_JSON, problem.encode());
    if let Some(after) = error.retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, whole_seconds(after));
    }
    if let Some(challenge) = challenge(error.code) {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    answer
}

/// The gRPC answer to a call.
pub fn grpc<P: AgentCall>(finished: InvocationResult<P>) -> Response<Body>
where
    P::Payload: Changes,
{
    let headers = common_headers(&finished);
    let request_id = finished.arrival.request_id.to_string();
    let detail = finished.detail;
    let mut answer = match finished.result.map_err(FailedInvocation::from).and_then(DecidedInvocation::split)
    {
        Err(FailedInvocation { error, steps }) => grpc_error(&error, &steps, detail),
        Ok(DecidedInvocation { decision, ended }) => {
            let parts = parts(ended, detail, request_id);
            grpc_message(&P::response(match decision {
                ChainDecision::Continue => parts,
                ChainDecision::Answer(answer) => ResponseParts { result: Some(answer.result), ..parts },
                ChainDecision::Block(block) => {
                    ResponseParts { block: Some(block_message(&block, detail)), ..parts }
                }
            }))
        }
    };
    answer.headers_mut().extend(headers);
    tracked_body::hold(&mut answer, finished.permits);
    answer
}

/// Why there is no decision, and the steps of the chain if one ran.
struct FailedInvocation {
    error: Error,
    steps: Vec<StepReport>,
}

impl From<Error> for FailedInvocation {
    fn from(error: Error) -> Self {
        FailedInvocation { error, steps: Vec::new() }
    }
}

/// A chain that decided.
struct DecidedInvocation<P: AgentCall> {
    decision: ChainDecision,
    ended: ChainOutcome<P>,
}

impl<P: AgentCall> DecidedInvocation<P> {
    fn split(mut ended: ChainOutcome<P>) -> Result<Self, FailedInvocation> {
        match std::mem::replace(&mut ended.result, Ok(ChainDecision::Continue)) {
            Ok(decision) => Ok(DecidedInvocation { decision, ended }),
            Err(error) => Err(FailedInvocation { error, steps: ended.steps }),
        }
    }
}

/// The parts of an answer that continues.
fn parts<P: AgentCall>(
    ended: ChainOutcome<P>,
    detail: Detail,
    request_id: String,
) -> ResponseParts<P::Payload>
where
    P::Payload: Changes,
{
    let full = detail == Detail::Full;
    let mut steps: Vec<_> = ended.steps.iter().filter(|_| full).map(step_message).collect();
    for PayloadChange { step, before, after } in ended.changes {
        if let Some(step) = steps.get_mut(step) {
            step.changes = changes(&*before, &*after);
        }
    }
    let contributions = ended.contributions.into_iter().map(|contributed| wire::PluginContribution {
        plugin: full.then(|| contributed.plugin.to_string()),
        kind: contributed.contribution.kind,
        value: contributed.contribution.value,
    });
    let notices = ended.notices.into_iter().filter(|remark| full || !remark.by_gateway);
    let notices = notices.map(|remark| wire::PluginNotice {
        plugin: full.then(|| remark.plugin.to_string()),
        kind: remark.notice.kind,
        code: remark.notice.code,
        message: remark.notice.message,
        details: remark.notice.details,
    });
    ResponseParts {
        payload: ended.payload,
        modified: ended.modified,
        block: None,
        result: None,
        contributions: contributions.collect(),
        notices: notices.collect(),
        steps,
        plan_digest: ended.plan_digest.to_string(),
        revision: ended.revision,
        request_id,
    }
}

fn block_message(block: &Block, detail: Detail) -> wire::Block {
    let full = detail == Detail::Full;
    wire::Block {
        plugin: full.then(|| block.plugin.to_string()),
        binding: full.then(|| block.binding.to_string()),
        code: block.code.clone(),
        message: block.message.clone(),
        retry_after_ms: block.retry_after_ms,
        scope: block.scope.into(),
    }
}

/// The message for the caller. With `answer.detail: minimal`, only operators learn why a plugin failed.
pub(crate) fn sentence(error: &Error, detail: Detail) -> &str {
    match (detail, &error.step) {
        (Detail::Minimal, Some(_)) => error.code.meaning(),
        (Detail::Minimal | Detail::Full, _) => &error.detail,
    }
}

/// The challenge of the gateway's own 401 (RFC 6750, section 3). A block's challenge names another scheme.
pub(crate) const fn challenge(code: Code) -> Option<&'static str> {
    match code {
        Code::TokenMissing => Some("Bearer error=\"invalid_request\", error_description=\"no bearer token\""),
        Code::TokenInvalid => Some("Bearer error=\"invalid_token\""),
        Code::TokenExpired => {
            Some("Bearer error=\"invalid_token\", error_description=\"the token is expired\"")
        }
        Code::ScopeMissing => Some("Bearer error=\"insufficient_scope\""),
        _ => None,
    }
}

fn title(status: StatusCode) -> &'static str {
    // 499 is the only status used here that no registry names.
    status.canonical_reason().unwrap_or("Client Closed Request")
}

fn body(status: StatusCode, content_type: &'static str, json: Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::from(json));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn decided(
    decision: &'static str,
    status: StatusCode,
    content_type: &'static str,
    json: Bytes,
) -> Response<Body> {
    let mut answer = body(status, content_type, json);
    answer.headers_mut().insert(DECISION, HeaderValue::from_static(decision));
    answer
}

/// Whole seconds, rounded up (RFC 9110, section 10.2.3).
pub(crate) fn whole_seconds(after: Duration) -> HeaderValue {
    HeaderValue::from(after.as_secs() + u64::from(after.subsec_nanos() > 0))
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("Hookgate"))
}

fn common_headers<P: AgentCall>(finished: &InvocationResult<P>) -> [(HeaderName, HeaderValue); 2] {
    let steps = finished.result.as_ref().map_or(&[][..], |ended| &ended.steps);
    timing_headers(&finished.arrival, steps, finished.detail)
}

/// The gateway's id of the call, and its time per step, in milliseconds (W3C Server Timing).
fn timing_headers(
    arrival: &RequestMeta,
    steps: &[StepReport],
    detail: Detail,
) -> [(HeaderName, HeaderValue); 2] {
    let queue: Duration = steps.iter().map(|step| step.queue).sum();
    let mut timing = format!("total;dur={}, queue;dur={}", Millis(arrival.received.elapsed()), Millis(queue));
    if detail == Detail::Full {
        for step in steps.iter().filter(|step| !step.duration.is_zero()) {
            let whole = timing.len();
            // Writing to a string cannot fail.
            let _ = write!(timing, ", plugin-{};dur={}", step.plugin, Millis(step.duration));
            if timing.len() > MAX_SERVER_TIMING_BYTES {
                timing.truncate(whole);
                break;
            }
        }
    }
    let request_id = arrival.request_id.to_string();
    [(REQUEST_ID, ascii(&request_id)), (SERVER_TIMING, ascii(&timing))]
}

/// Milliseconds with three decimals. Integers are written in a fraction of the time of a float.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
