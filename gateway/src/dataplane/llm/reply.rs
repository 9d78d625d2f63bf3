//! What a client of OpenAI's API gets: the model's answer, or an error in the form that its SDK reads.
//!
//! A block is HTTP 400 with `x-should-retry: false`: SDKs ask again after 408, 409, 429 and 5xx, and some clients take 401 and 403
//! for a login.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hookgate_proto::types::v1::CancelScope;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    config::Detail,
    core::error::{Code, Error, Party},
    dataplane::llm::exchange::{ExchangeEnd, ProviderAnswer},
    edge::{
        request_meta::RequestMeta,
        response::{challenge, sentence, whole_seconds},
    },
    invoke::Block,
    llm::upstream::UpstreamAnswer,
};

const DECISION: HeaderName = HeaderName::from_static("hookgate-decision");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("hookgate-upstream-request-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Blocks with one of these codes ask to be asked again.
pub(super) const RETRIED_BLOCKS: [&str; 2] = ["RATE_LIMITED", "QUOTA_EXCEEDED"];
/// SDKs wait at most this long by themselves.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

/// All four members of OpenAI's error, and `hookgate`.
#[derive(Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'a str,
    hookgate: ErrorOrigin<'a>,
}

/// Who decided, or who failed. Members are absent where the tenant's `answer.detail` is `minimal`.
#[derive(Serialize)]
struct ErrorOrigin<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    point: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    request_id: String,
}

/// The answer to a request to a model.
pub(super) fn of_exchange(
    meta: &RequestMeta,
    result: Result<ExchangeEnd, Error>,
    detail: Detail,
) -> Response<Body> {
    match result {
        Ok(ExchangeEnd::Answer(answer)) => of_provider(meta, answer),
        // The client has it.
        Ok(ExchangeEnd::Streamed { .. }) => Response::default(),
        Ok(ExchangeEnd::Block(block)) => of_block(meta, &block, detail),
        Err(error) => of_error(meta, &error, detail),
    }
}

/// The answer to a question about models.
pub(super) fn of_question(meta: &RequestMeta, asked: Result<Bytes, Error>, detail: Detail) -> Response<Body> {
    match asked {
        Ok(json) => {
            let mut answer = with_json(meta, StatusCode::OK, json);
            answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            answer
        }
        Err(error) => of_error(meta, &error, detail),
    }
}

/// The answer to a request that has none of the model's.
pub(super) fn of_error(meta: &RequestMeta, error: &Error, detail: Detail) -> Response<Body> {
    let status = StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = with_json(meta, status, error_body(meta, error, detail));
    let headers = answer.headers_mut();
    if !is_retried(error.code) {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(after) = error.retry_after {
        headers.insert(header::RETRY_AFTER, whole_seconds(after));
    }
    if let Some(challenge) = challenge(error.code) {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    answer
}

/// The JSON of an error.
pub(super) fn error_body(meta: &RequestMeta, error: &Error, detail: Detail) -> Bytes {
    let step = error.step.as_ref().filter(|_| detail == Detail::Full);
    // OpenAI's parameters are names, not pointers.
    let param = error.violations.first().map(|violation| violation.pointer.trim_start_matches('/'));
    let message = error.violations.first().map_or(sentence(error, detail), |violation| &violation.message);
    let code = match error.code {
        // The name by which SDKs and agents know it.
        Code::ModelUnknown => "model_not_found",
        code => code.as_str(),
    };
    let origin = ErrorOrigin {
        decision: "none",
        plugin: step.map(|step| &*step.plugin),
        binding: step.map(|step| &*step.binding),
        point: step.map(|step| step.site.to_string()),
        scope: None,
        request_id: meta.request_id.to_string(),
    };
    json(&ErrorBody {
        error: ErrorObject { message, r#type: kind(error.code), param, code, hookgate: origin },
    })
}

/// The headers of a streamed answer. What was decided about it isn't known when it begins.
pub(super) fn stream_headers(exchange: Uuid, answer: &UpstreamAnswer) -> HeaderMap {
    let mut headers = answer.passed_headers();
    headers.insert(REQUEST_ID, request_id(exchange));
    headers.extend(answer.request_id().map(|id| (UPSTREAM_REQUEST_ID, id)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Otherwise nginx holds the stream back.
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers
}

fn of_provider(meta: &RequestMeta, answer: ProviderAnswer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    *headers = answer.headers;
    headers.insert(REQUEST_ID, request_id(meta.request_id));
    if let Some(id) = answer.request_id {
        headers.insert(UPSTREAM_REQUEST_ID, id);
    }
    if answer.status == StatusCode::OK {
        let decision = if answer.is_blocked { "block" } else { "continue" };
        headers.insert(DECISION, HeaderValue::from_static(decision));
    }
    response
}

fn of_block(meta: &RequestMeta, block: &Block, detail: Detail) -> Response<Body> {
    let after = block.retry_after_ms.map(Duration::from_millis);
    let retry =
        after.filter(|after| RETRIED_BLOCKS.contains(&block.code.as_str()) && *after <= MAX_RETRY_AFTER);
    let (status, kind) = match retry {
        Some(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
        None => (StatusCode::BAD_REQUEST, "invalid_request_error"),
    };
    let is_full = detail == Detail::Full;
    let origin = ErrorOrigin {
        decision: "block",
        plugin: is_full.then_some(&*block.plugin),
        binding: is_full.then_some(&*block.binding),
        point: None,
        scope: Some(if block.scope == CancelScope::Run { "run" } else { "step" }),
        request_id: meta.request_id.to_string(),
    };
    let error = ErrorObject {
        message: &block.message,
        r#type: kind,
        param: None,
        code: &block.code,
        hookgate: origin,
    };
    let mut answer = with_json(meta, status, json(&ErrorBody { error }));
    let headers = answer.headers_mut();
    headers.insert(DECISION, HeaderValue::from_static("block"));
    match retry {
        Some(after) => headers.insert(header::RETRY_AFTER, whole_seconds(after)),
        None => headers.insert(SHOULD_RETRY, HeaderValue::from_static("false")),
    };
    answer
}

/// OpenAI's name for the kind of an error.
const fn kind(code: Code) -> &'static str {
    match (code.party(), code.http()) {
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 404) => "not_found_error",
        (_, 429) => "rate_limit_error",
        (Party::Caller, _) => "invalid_request_error",
        (Party::Plugin | Party::Gateway | Party::Provider, _) => "server_error",
    }
}

/// Whether another try may end otherwise. Of the rest SDKs would also retry 409 and 5xx.
const fn is_retried(code: Code) -> bool {
    match code {
        Code::PluginError
        | Code::PluginBadReply
        | Code::Internal
        | Code::StepsRequired
        | Code::UpstreamCredential
        // The provider may have done all the work.
        | Code::UpstreamTimeout
        | Code::UpstreamBadAnswer
        | Code::AnswerTooLarge => false,
        _ => matches!(code.http(), 429 | 500..),
    }
}

fn with_json(meta: &RequestMeta, status: StatusCode, json: Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::from(json));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(REQUEST_ID, request_id(meta.request_id));
    answer
}

fn request_id(id: Uuid) -> HeaderValue {
    HeaderValue::from_str(&id.to_string()).expect("a UUID is a header's value")
}

fn json(body: &ErrorBody<'_>) -> Bytes {
    serde_json::to_vec(body).expect("texts are JSON").into()
}
