//! The plugin against real HTTP servers.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response},
};
use hookgate_sdk::{
    CallContext, Media, Status, StatusCode as GrpcCode, TokenUsage, Verdict,
    harness::TestPlugin,
    proto::{
        plugin::v1::ChainResult,
        types::v1::{Decision, media::Source},
    },
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::net::TcpListener;

use super::*;
use crate::signature::SigningKeys;

mod refusals;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const PREVIOUS: &str = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

/// A request as the service got it.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    headers: HeaderMap,
    body: Bytes,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Responder = Arc<dyn Fn() -> Response<Body> + Send + Sync>;

/// An HTTP service that keeps what it gets, and always answers the same.
struct TestService {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl TestService {
    async fn start(respond: impl Fn() -> Response<Body> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let respond: Responder = Arc::new(respond);
        let handler = async |State((requests, respond)): State<(Arc<Mutex<Vec<_>>>, Responder)>,
                             headers: HeaderMap,
                             body: Bytes| {
            requests.lock().unwrap().push(ReceivedRequest { headers, body });
            respond()
        };
        let app = Router::new().fallback(handler).with_state((Arc::clone(&requests), respond));
        tokio::spawn(async move { axum::serve(listener, app).await });
        TestService { address, requests }
    }

    /// It answers with this status and body.
    async fn answering(status: u16, body: &'static str) -> Self {
        Self::start(move || response(status, body)).await
    }

    fn config(&self) -> Value {
        json!({
            "url": format!("http://{}/hook?token=QUERY", self.address), "allow_http": true, "secret": SECRET,
            "egress": { "cidrs": ["127.0.0.0/8"] },
        })
    }

    async fn plugin(&self, more: Value) -> TestPlugin<Webhook> {
        let mut config = self.config();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        TestPlugin::start(&config).await.unwrap()
    }

    fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn response(status: u16, body: &'static str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body)).unwrap()
}

fn tool_call() -> BeforeToolCallPayload {
    BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: r#"{"z": 9007199254740993, "a": "CANARY"}"#.into(),
        ..Default::default()
    }
}

/// The error of a call at `before_tool_call`.
async fn failure(plugin: &TestPlugin<Webhook>) -> Status {
    plugin.before_tool_call(tool_call()).await.expect_err("the step fails")
}

#[tokio::test]
async fn a_request_is_signed_and_says_who_calls_and_what() {
    let service = TestService::answering(200, r#"{"decision":"continue"}"#).await;
    let plugin = service.plugin(json!({ "previous_secret": PREVIOUS, "headers": { "X-Team": "a" } })).await;
    let plugin = plugin.with_context(|context| {
        context.session_id = Some("s-1".to_owned());
        context.agent_id = Some("coder".to_owned());
        context.labels.insert("plan".to_owned(), "pro".to_owned());
    });
    for _ in 0..2 {
        assert_eq!(plugin.before_tool_call(tool_call()).await.unwrap().verdict(), &Verdict::Continue);
    }
    let requests = service.requests();
    let request = &requests[0];
    let (id, timestamp) = (request.header("webhook-id"), request.header("webhook-timestamp"));
    let keys = SigningKeys::new(&SECRET.into(), Some(&PREVIOUS.into())).unwrap();
    assert_eq!(request.header("webhook-signature"), keys.sign(id, timestamp.parse().unwrap(), &request.body));
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("x-team"), "a");
    let body = request.json();
    let expected = json!({
        "id": id, "timestamp": body["timestamp"], "point": "before_tool_call", "tenant": "test-tenant",
        "operator": "test-operator", "request_id": "01930000-0000-7000-8000-000000000000",
        "context": { "session_id": "s-1", "agent_id": "coder", "labels": { "plan": "pro" } },
        "tool": "fs.read",
        "payload": { "tool_name": "fs.read", "args": { "z": 9_007_199_254_740_993_u64, "a": "CANARY" } },
    });
    assert_eq!(body, expected);
    // The arguments keep their bytes.
    let text = String::from_utf8(request.body.to_vec()).unwrap();
    assert!(text.contains(r#""args":{"z": 9007199254740993, "a": "CANARY"}"#), "{text}");
    let time = OffsetDateTime::parse(body["timestamp"].as_str().unwrap(), &Rfc3339).unwrap();
    assert_eq!(time.unix_timestamp().to_string(), timestamp);
    assert_ne!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
}

#[tokio::test]
async fn each_point_sends_its_payload() {
    let service = TestService::answering(204, "").await;
    let plugin = service.plugin(json!({})).await;
    let image = Media {
        source: Some(Source::Data("png".into())),
        mime_type: "image/png".to_owned(),
        ..Default::default()
    };
    let file = Media {
        source: Some(Source::Url("https://a/b".to_owned())),
        mime_type: "text/plain".to_owned(),
        filename: Some("b".to_owned()),
    };
    let request = BeforeLlmRequestPayload {
        text: "hi".into(),
        images: vec![image],
        files: vec![file],
        messages: "[1]".into(),
        ..Default::default()
    };
    plugin.before_llm_request(request).await.unwrap();
    let result = AfterToolResultPayload {
        tool_name: "t".into(),
        result: "null".into(),
        success: Some(false),
        duration_ms: Some(3),
        ..Default::default()
    };
    plugin.after_tool_result(result).await.unwrap();
    let answer = BeforeResponsePayload {
        content: "ho".into(),
        token_usage: Some(TokenUsage { input: 1, output: 2 }),
        ..Default::default()
    };
    plugin.before_response(answer).await.unwrap();
    let payloads: Vec<_> =
        service.requests().iter().map(|request| request.json()["payload"].clone()).collect();
    assert_eq!(
        payloads,
        [
            json!({
                "text": "hi", "images": [{ "data": "cG5n", "mime_type": "image/png" }],
                "files": [{ "url": "https://a/b", "mime_type": "text/plain", "filename": "b" }], "messages": [1],
            }),
            json!({ "tool_name": "t", "result": null, "success": false, "duration_ms": 3 }),
            json!({ "content": "ho", "token_usage": { "input": 1, "output": 2 } }),
        ]
    );
    assert_eq!(service.requests()[0].json().get("tool"), None);
    assert_eq!(service.requests()[1].json()["tool"], "t");
}

#[tokio::test]
async fn a_payload_can_be_kept_back() {
    let service = TestService::answering(204, "").await;
    let plugin = service.plugin(json!({ "send_payload": false })).await;
    plugin.before_tool_call(tool_call()).await.unwrap();
    let request = &service.requests()[0];
    assert!(!String::from_utf8_lossy(&request.body).contains("CANARY"));
    assert_eq!((request.json().get("payload"), &request.json()["tool"]), (None, &json!("fs.read")));
}

#[tokio::test]
async fn a_service_can_cancel() {
    let body = r#"{"decision":"cancel","code":"OUT_OF_HOURS","message":"Ask again tomorrow.","details":{"opens":"09:00"}}"#;
    let plugin = TestService::answering(200, body).await.plugin(json!({})).await;
    let reply = plugin.before_tool_call(tool_call()).await.unwrap();
    assert_eq!(
        reply.cancelled().map(|cancel| (cancel.code(), cancel.message())),
        Some(("OUT_OF_HOURS", "Ask again tomorrow."))
    );
    assert_eq!(reply.notices()[0].details_json(), br#"{"opens":"09:00"}"#);
}

#[tokio::test]
async fn the_service_is_called_at_listed_points_only() {
    let service = TestService::answering(200, r#"{"decision":"cancel"}"#).await;
    let plugin = service.plugin(json!({ "points": ["before_tool_call"] })).await;
    let response = plugin.before_response(BeforeResponsePayload::default()).await.unwrap();
    assert_eq!((response.verdict(), service.requests().len()), (&Verdict::Continue, 0));
    assert!(plugin.before_tool_call(tool_call()).await.unwrap().cancelled().is_some());
}

#[tokio::test]
async fn an_ignored_answer_decides_nothing_but_its_status_counts() {
    let config = json!({ "answer": "ignore" });
    for (status, body) in [(200, r#"{"decision":"cancel"}"#), (202, "no JSON"), (204, "")] {
        let service = TestService::answering(status, body).await;
        let reply = service.plugin(config.clone()).await.before_tool_call(tool_call()).await.unwrap();
        assert_eq!((reply.verdict(), service.requests().len()), (&Verdict::Continue, 1), "{status}");
    }
    let plugin = TestService::answering(500, "").await.plugin(config).await;
    assert!(failure(&plugin).await.message().contains("answered 500"));
}

#[tokio::test]
async fn a_replay_is_judged_by_a_service_that_decides_and_told_to_no_other() {
    let service = TestService::answering(200, r#"{"decision":"cancel"}"#).await;
    let replayed = |context: &mut CallContext| {
        context.exchange_id = Some("e-1".to_owned());
        context.replay = true;
    };
    for (config, asked) in [(json!({}), 1), (json!({ "answer": "ignore" }), 0)] {
        let plugin = service.plugin(config).await.with_context(replayed);
        let before = service.requests().len();
        let request = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
        assert_eq!((request.cancelled().is_some(), service.requests().len() - before), (asked == 1, asked));
    }
    let body = service.requests()[0].json();
    assert_eq!((&body["exchange_id"], &body["replay"]), (&json!("e-1"), &json!(true)));
}

#[tokio::test]
async fn a_message_of_a_request_is_told_as_a_part() {
    for config in [json!({}), json!({ "answer": "ignore" })] {
        let service = TestService::answering(200, r#"{"decision":"continue"}"#).await;
        let plugin = service.plugin(config).await;
        for part in [true, false] {
            let plugin = plugin.with_context(|context| context.part = part);
            plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
        }
        let parts: Vec<_> = service.requests().iter().map(|request| request.json()["part"].clone()).collect();
        assert_eq!(parts, [json!(true), Value::Null]);
    }
}

#[tokio::test]
async fn an_observer_tells_how_the_chain_ended() {
    let service = TestService::answering(200, "").await;
    let plugin = service.plugin(json!({ "answer": "ignore" })).await;
    let result = ChainResult {
        decision: Decision::Block.into(),
        plugin: Some("tenant-auth".to_owned()),
        code: Some("TOOL_NOT_ALLOWED".to_owned()),
    };
    plugin.with_chain_result(result).before_tool_call(tool_call()).await.unwrap();
    let expected = json!({ "decision": "block", "plugin": "tenant-auth", "code": "TOOL_NOT_ALLOWED" });
    assert_eq!(service.requests()[0].json()["chain_result"], expected);
}

#[tokio::test]
async fn another_status_fails_the_step_and_its_body_is_not_shown() {
    for (status, code) in [
        (201, GrpcCode::Internal),
        (400, GrpcCode::Internal),
        (401, GrpcCode::Internal),
        (429, GrpcCode::Unavailable),
        (500, GrpcCode::Unavailable),
        (503, GrpcCode::Unavailable),
    ] {
        let plugin = TestService::answering(status, "CANARY").await.plugin(json!({})).await;
        let failed = failure(&plugin).await;
        assert_eq!(failed.code(), code, "{status}");
        assert_eq!(failed.message(), format!("the webhook service 127.0.0.1 answered {status}"));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = TestService::answering(200, r#"{"decision":"continue"}"#).await;
    let target = format!("http://{}/", other.address);
    for status in [301, 302, 303, 307, 308] {
        let target = target.clone();
        let redirect = move || {
            Response::builder().status(status).header("location", &target).body(Body::empty()).unwrap()
        };
        let plugin = TestService::start(redirect).await.plugin(json!({})).await;
        let failed = failure(&plugin).await;
        assert!(
            failed.message().ends_with(&format!("answered {status}, and redirects are not followed")),
            "{failed}"
        );
    }
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_the_step_announced_or_not() {
    let large = || Body::from(vec![b' '; 2000]);
    let streamed = || {
        let chunks = (0..4).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 500])));
        Body::from_stream(futures::stream::iter(chunks))
    };
    let announced = TestService::start(move || Response::new(large())).await;
    let unannounced = TestService::start(move || Response::new(streamed())).await;
    for service in [announced, unannounced] {
        let failed = failure(&service.plugin(json!({ "max_response_bytes": 1024 })).await).await;
        assert!(failed.message().contains("more than 1024 bytes (`max_response_bytes`)"), "{failed}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_decision_fails_the_step() {
    let plugin = TestService::answering(200, "<html>CANARY</html>").await.plugin(json!({})).await;
    let failed = failure(&plugin).await;
    assert_eq!(failed.code(), GrpcCode::Internal);
    let expected = "the webhook service 127.0.0.1 gave an answer that is no decision: it isn't a JSON object";
    assert_eq!(failed.message(), expected);
}

/// A server that begins to answer each request with this, and then sends nothing more.
async fn stuck_server(head: &'static [u8]) -> SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            // hyper gives up on a server that answers before it was asked.
            stream.read_u8().await.unwrap();
            stream.write_all(head).await.unwrap();
            kept.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn a_slow_service_fails_the_step_in_time_before_and_within_the_body() {
    for head in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{"] {
        let service = TestService { address: stuck_server(head).await, requests: Arc::default() };
        let plugin = service.plugin(json!({ "timeout": "100ms" })).await;
        let failed = failure(&plugin).await;
        assert_eq!(failed.code(), GrpcCode::Unavailable);
        assert_eq!(failed.message(), "the webhook service 127.0.0.1 did not answer within 100 ms");
    }
}

#[tokio::test]
async fn a_request_never_takes_longer_than_the_call_has_left() {
    let service = TestService { address: stuck_server(b"").await, requests: Arc::default() };
    let plugin = service.plugin(json!({ "timeout": "60s" })).await;
    let began = Instant::now();
    let failed = failure(&plugin.with_time_left(Duration::from_secs(2))).await;
    assert!(
        failed.message().contains("did not answer within") && began.elapsed() < Duration::from_secs(10),
        "{failed}"
    );
    let failed = failure(&plugin.with_time_left(Duration::from_millis(1))).await;
    assert!(failed.message().ends_with("was not asked: the step has no time left"), "{failed}");
}

#[tokio::test]
async fn a_service_that_does_not_listen_fails_the_step() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = TestService { address: listener.local_addr().unwrap(), requests: Arc::default() };
    drop(listener);
    let failed = failure(&service.plugin(json!({})).await).await;
    assert_eq!(failed.code(), GrpcCode::Unavailable);
    assert!(failed.message().starts_with("the webhook service 127.0.0.1 can't be reached: "), "{failed}");
    assert!(!failed.message().contains("QUERY"), "the query may be a token: {failed}");
}

#[tokio::test]
async fn the_address_of_a_name_is_checked() {
    let service = TestService::answering(204, "").await;
    let url = format!("http://localhost:{}/", service.address.port());
    let allowed = service.plugin(json!({ "url": url, "egress": { "cidrs": ["127.0.0.0/8", "::1"] } })).await;
    allowed.before_tool_call(tool_call()).await.unwrap();
    let elsewhere = service.plugin(json!({ "url": url, "egress": { "cidrs": ["10.0.0.0/8"] } })).await;
    let failed = failure(&elsewhere).await;
    assert!(failed.message().contains("the webhook service localhost can't be reached"), "{failed}");
    assert!(failed.message().contains("`egress.cidrs` doesn't list it"), "{failed}");
    assert_eq!(service.requests().len(), 1);
}

/// A server for `localhost` with a certificate of its own, which lets calls pass. Returns its port and the certificate.
async fn tls_service() -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that trusts another CA hangs up.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            stream.read_u8().await.unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.ok();
        }
    });
    (port, made.cert.pem())
}

#[tokio::test]
async fn a_certificate_is_trusted_if_a_ca_of_the_file_made_it() {
    let (port, pem) = tls_service().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let start = async |host: &str, ca_file: Value| {
        let config = json!({
            "url": format!("https://{host}:{port}/"), "secret": SECRET, "ca_file": ca_file,
            "egress": { "cidrs": ["127.0.0.0/8", "::1"] },
        });
        TestPlugin::<Webhook>::start(&config).await.unwrap()
    };
    start("localhost", json!(file)).await.before_tool_call(tool_call()).await.unwrap();
    // Without the file, and for a host that the certificate doesn't name.
    for plugin in [start("localhost", Value::Null).await, start("127.0.0.1", json!(file)).await] {
        let failed = failure(&plugin).await;
        assert_eq!(failed.code(), GrpcCode::Unavailable);
        assert!(failed.message().contains("certificate"), "{failed}");
    }
}

#[tokio::test]
async fn a_service_that_speaks_no_tls_fails_the_step() {
    let service = TestService::answering(204, "").await;
    let url = format!("https://{}/", service.address);
    let failed = failure(&service.plugin(json!({ "url": url })).await).await;
    assert_eq!(failed.code(), GrpcCode::Unavailable);
    assert!(failed.message().contains("can't be reached"), "{failed}");
}
