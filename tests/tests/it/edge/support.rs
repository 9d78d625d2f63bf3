//! Shared by the edge tests: a call, checks for errors, and gRPC as raw HTTP/2.

use std::{net::SocketAddr, time::Duration};

use futures::StreamExt;
use hookgate::core::error::Code;
use hookgate_proto::{
    gateway::v1::BeforeToolCallRequest,
    types::v1::{BeforeToolCallPayload, ExtensionPoint},
};
use hookgate_sdk::{Plugin, ServeError, Server};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer, path, reason},
    gateway::Gateway,
};
use http::HeaderMap;
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic_types::StatusExt as _;

pub(crate) const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

/// The gRPC path of [`POINT`].
pub(crate) const METHOD: &str = "/hookgate.gateway.v1.ExtensionPointService/BeforeToolCall";

pub(crate) fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": { "path": "/a" } })
}

pub(crate) fn request() -> BeforeToolCallRequest {
    let payload = BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: r#"{"path":"/a"}"#.into(),
        ..BeforeToolCallPayload::default()
    };
    BeforeToolCallRequest { payload: Some(payload), ..BeforeToolCallRequest::default() }
}

/// A gateway with the plugin `P` for the tenant `acme`, and the task of this process that serves the plugin.
pub(crate) async fn gateway_with<P: Plugin>() -> (Gateway, JoinHandle<Result<(), ServeError>>) {
    let server = Server::bind("http://127.0.0.1:0").await.expect("a port is free").with_plugin::<P>();
    let plugin = json!({ "name": P::NAME, "endpoint": server.address().to_string() });
    let serving = tokio::spawn(server.run(std::future::pending()));
    let gateway = Gateway::with().tenant("acme").set("/plugins", json!([plugin])).binding(P::NAME, 10);
    (gateway.start().await, serving)
}

/// A request to [`POINT`] with a good body, to be modified and sent.
pub(crate) fn good_request(agent: &HttpAgent) -> reqwest::RequestBuilder {
    let request = agent.request(http::Method::POST, path(POINT));
    request.header("content-type", "application/json").body(json!({ "payload": payload() }).to_string())
}

pub(crate) async fn send(request: reqwest::RequestBuilder) -> HttpAnswer {
    HttpAgent::send(request).await.expect("the gateway answers")
}

/// The code of an HTTP answer, block or error.
pub(crate) fn code(answer: &HttpAnswer) -> &str {
    answer.body["code"].as_str().unwrap_or_default()
}

/// Checks that an HTTP error has everything that section 4 requires, and no decision.
pub(crate) fn assert_http_error(answer: &HttpAnswer, expected: Code) {
    assert_eq!((answer.status, code(answer)), (expected.http(), expected.as_str()), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    assert!(!answer.headers.contains_key("hookgate-decision"), "an error isn't a decision: {answer:?}");
    let body = &answer.body;
    assert_eq!(body["type"], json!(format!("urn:hookgate:error:{expected}")), "{body}");
    assert_eq!(body["status"], json!(answer.status), "{body}");
    assert!(body["title"].as_str().is_some_and(|title| !title.is_empty()), "{body}");
    assert_sentence(body["detail"].as_str().unwrap_or_default());
    assert!(body["request_id"].is_string(), "{body}");
    assert_eq!(body["request_id"].as_str(), answer.header("x-request-id"), "{answer:?}");
    assert!(answer.header("server-timing").is_some_and(|timing| timing.starts_with("total;")), "{answer:?}");
    for member in ["decision", "payload", "block"] {
        assert!(body.get(member).is_none(), "`{member}` belongs to decisions: {body}");
    }
    let waits = answer.header("retry-after").map(|after| after.parse::<u64>());
    assert_eq!(waits.is_some(), has_retry(expected), "{answer:?}");
    assert!(!matches!(waits, Some(Ok(0) | Err(_))), "{answer:?}");
    let challenge = answer.header("www-authenticate");
    let challenges = answer.status == 401 || expected == Code::ScopeMissing;
    assert_eq!(challenge.is_some_and(|text| text.starts_with("Bearer error=")), challenges, "{answer:?}");
}

/// The same over gRPC.
pub(crate) fn assert_grpc_error(status: &Status, expected: Code) {
    // tools probe for UNIMPLEMENTED, so an unknown method answers that
    let code = if expected == Code::NotFound { tonic::Code::Unimplemented } else { expected.grpc() };
    assert_eq!(reason(status), (code, Some(expected.as_str().into())), "{status:?}");
    assert_sentence(status.message());
    let header = |name| status.metadata().get(name).and_then(|value| value.to_str().ok());
    assert!(header("x-request-id").is_some_and(|id| id.len() == 36), "{status:?}");
    assert!(header("server-timing").is_some_and(|timing| timing.starts_with("total;")), "{status:?}");
    assert_eq!(header("hookgate-decision"), None, "{status:?}");
    let waits = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert_eq!(waits.is_some_and(|delay| delay > Duration::ZERO), has_retry(expected), "{status:?}");
}

/// Checks that details begin in upper case or with a name in backticks, and end without a full stop.
pub(crate) fn assert_sentence(text: &str) {
    assert!(text.starts_with(|first: char| first.is_uppercase() || first == '`'), "{text:?}");
    assert!(!text.ends_with('.'), "{text:?}");
}

fn has_retry(code: Code) -> bool {
    matches!(
        code,
        Code::TenantLimited
            | Code::Overloaded
            | Code::Draining
            | Code::StoreUnavailable
            | Code::RecordUnavailable
    )
}

/// A gRPC answer as it is on the wire, without its trailers.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) http_status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: bytes::Bytes,
}

impl RawAnswer {
    /// The status of a trailers-only answer.
    pub(crate) fn status(&self) -> Status {
        assert_eq!(self.http_status, 200, "{self:?}");
        Status::from_header_map(&self.headers).unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}

/// A client that speaks only HTTP/2.
pub(crate) fn http2_client() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    client.timeout(Duration::from_secs(30)).build().expect("an HTTP client needs nothing from the machine")
}

/// A gRPC request with these bytes and the necessary headers.
pub(crate) fn grpc_request(
    address: SocketAddr,
    path: &str,
    token: &str,
    body: impl Into<reqwest::Body>,
) -> reqwest::RequestBuilder {
    let request = http2_client().post(format!("http://{address}{path}"));
    request.header("content-type", "application/grpc").header("te", "trailers").bearer_auth(token).body(body)
}

pub(crate) async fn send_grpc(request: reqwest::RequestBuilder) -> RawAnswer {
    let response = request.send().await.expect("the gateway answers");
    let (http_status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.bytes().await.expect("the answer is whole");
    RawAnswer { http_status, headers, body }
}

/// A message in its frame.
pub(crate) fn frame(message: &impl Message) -> Vec<u8> {
    frame_of(&message.encode_to_vec())
}

pub(crate) fn frame_of(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("tests send less than 4 GiB");
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// Checks that the gateway has not panicked.
pub(crate) fn assert_no_panic(gateway: &Gateway) {
    let log = gateway.log().to_string();
    assert!(!log.contains("panicked"), "{log}");
}

/// A body in these pieces, without a length.
pub(crate) fn in_pieces(
    pieces: impl futures::Stream<Item = Vec<u8>> + Send + Sync + 'static,
) -> reqwest::Body {
    let frames = pieces.map(|piece| Ok::<_, std::io::Error>(Frame::data(bytes::Bytes::from(piece))));
    reqwest::Body::wrap(StreamBody::new(frames))
}
