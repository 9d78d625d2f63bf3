//! What a client gets: the model's answer, or an error in the form that its SDK reads ([`super::error_body`]).
//!
//! A block is HTTP 400 with `x-should-retry: false`: SDKs ask again after 408, 409, 429 and 5xx, and some clients take 401 and 403
//! for a login.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use uuid::Uuid;

use crate::{
    config::Detail,
    core::{
        api_format::ApiFormat,
        error::{Code, Error},
    },
    dataplane::llm::{
        error_body::{block_body, error_body},
        exchange::{ExchangeEnd, ProviderAnswer},
    },
    edge::{
        request_meta::RequestMeta,
        response::{challenge, whole_seconds},
    },
    invoke::Block,
    llm::upstream::UpstreamAnswer,
};

const DECISION: HeaderName = HeaderName::from_static("hookgate-decision");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("hookgate-upstream-request-id");
/// Where the SDKs of Anthropic read the id.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Blocks with one of these codes ask to be asked again.
pub(super) const RETRIED_BLOCKS: [&str; 2] = ["RATE_LIMITED", "QUOTA_EXCEEDED"];
/// SDKs wait at most this long by themselves.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Who asks, as far as it counts for the form of an answer.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) api: ApiFormat,
    pub(super) meta: &'a RequestMeta,
}

/// The answer to a request to a model.
pub(super) fn of_exchange(
    client: Client<'_>,
    result: Result<ExchangeEnd, Error>,
    detail: Detail,
) -> Response<Body> {
    match result {
        Ok(ExchangeEnd::Answer(answer)) => of_provider(client, answer),
        // The client has it.
        Ok(ExchangeEnd::Streamed { .. }) => Response::default(),
        Ok(ExchangeEnd::Block(block)) => of_block(client, &block, detail),
        Err(error) => of_error(client, &error, detail),
    }
}

/// The answer to a question about models.
pub(super) fn of_question(client: Client<'_>, asked: Result<Bytes, Error>, detail: Detail) -> Response<Body> {
    match asked {
        Ok(json) => {
            let mut answer = with_json(client, StatusCode::OK, json);
            answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            answer
        }
        Err(error) => of_error(client, &error, detail),
    }
}

/// The answer to a request that has none of the model's.
pub(super) fn of_error(client: Client<'_>, error: &Error, detail: Detail) -> Response<Body> {
    let status = StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = with_json(client, status, error_body(client, error, detail));
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

/// The headers of a streamed answer. What was decided about it isn't known when it begins.
pub(super) fn stream_headers(api: ApiFormat, exchange: Uuid, answer: &UpstreamAnswer) -> HeaderMap {
    let mut headers = answer.passed_headers();
    set_request_id(&mut headers, api, exchange);
    headers.extend(answer.request_id().map(|id| (UPSTREAM_REQUEST_ID, id)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Otherwise nginx holds the stream back.
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers
}

fn of_provider(client: Client<'_>, answer: ProviderAnswer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    *headers = answer.headers;
    set_request_id(headers, client.api, client.meta.request_id);
    if let Some(id) = answer.request_id {
        headers.insert(UPSTREAM_REQUEST_ID, id);
    }
    if answer.status == StatusCode::OK {
        let decision = if answer.is_blocked { "block" } else { "continue" };
        headers.insert(DECISION, HeaderValue::from_static(decision));
    }
    response
}

fn of_block(client: Client<'_>, block: &Block, detail: Detail) -> Response<Body> {
    let after = block.retry_after_ms.map(Duration::from_millis);
    let retry =
        after.filter(|after| RETRIED_BLOCKS.contains(&block.code.as_str()) && *after <= MAX_RETRY_AFTER);
    let status = if retry.is_some() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::BAD_REQUEST };
    let mut answer = with_json(client, status, block_body(client, status, block, detail));
    let headers = answer.headers_mut();
    headers.insert(DECISION, HeaderValue::from_static("block"));
    match retry {
        Some(after) => headers.insert(header::RETRY_AFTER, whole_seconds(after)),
        None => headers.insert(SHOULD_RETRY, HeaderValue::from_static("false")),
    };
    answer
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

fn with_json(client: Client<'_>, status: StatusCode, json: Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::from(json));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    set_request_id(headers, client.api, client.meta.request_id);
    answer
}

fn set_request_id(headers: &mut HeaderMap, api: ApiFormat, id: Uuid) {
    let id = HeaderValue::from_str(&id.to_string()).expect("a UUID is a header's value");
    if api == ApiFormat::Anthropic {
        headers.insert(ANTHROPIC_REQUEST_ID, id.clone());
    }
    headers.insert(REQUEST_ID, id);
}
