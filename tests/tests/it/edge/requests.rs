//! Tests what a request's headers and body may contain: each rule of docs/protocol.md, section 1, on both
//! sides of its limit.

use hookgate::core::error::Code;
use hookgate_proto::{
    gateway::v1::{BeforeLlmRequestRequest, BeforeResponseRequest, BeforeToolCallRequest},
    types::v1::{BeforeLlmRequestPatch, ExtensionPoint},
};
use hookgate_tests::{
    agent::{HttpAgent, path, reason},
    fake::{Act, FakePlugin, POINTS},
    gateway::Gateway,
    token::token,
};
use serde_json::{Value, json};

use crate::edge::support::{
    METHOD, POINT, assert_grpc_error, assert_http_error, assert_no_panic, frame, frame_of, good_request,
    grpc_request, payload, request, send, send_grpc,
};

struct Edge {
    plugin: FakePlugin,
    gateway: Gateway,
    http: HttpAgent,
    token: String,
}

async fn edge() -> Edge {
    let plugin = FakePlugin::named("witness").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("witness", 10).start().await;
    let token = token("acme");
    Edge { plugin, http: gateway.http(&token), gateway, token }
}

impl Edge {
    /// Good calls with this header over both protocols: accepted, or rejected as `expected`.
    async fn header(&self, name: &str, value: &str, expected: Option<Code>) {
        let http = send(good_request(&self.http).header(name, value)).await;
        let grpc = self.grpc(frame(&request())).header(name, value);
        let grpc = send_grpc(grpc).await;
        match expected {
            None => {
                assert_eq!(http.status, 200, "{name}: {value}: {http:?}");
                assert!(!grpc.headers.contains_key("grpc-status"), "{name}: {value}: {grpc:?}");
            }
            Some(code) => {
                assert_http_error(&http, code);
                assert_grpc_error(&grpc.status(), code);
            }
        }
    }

    fn grpc(&self, body: Vec<u8>) -> reqwest::RequestBuilder {
        grpc_request(self.gateway.data_addr(), METHOD, &self.token, body)
    }

    /// The metadata of the last call that the plugin saw.
    fn last_seen(&self) -> hookgate_tests::fake::Seen {
        self.plugin.seen().pop().expect("the call reached the plugin")
    }

    fn args(&self, args: &str) -> String {
        format!(r#"{{"payload":{{"tool_name":"t","args":{args}}}}}"#)
    }
}

#[tokio::test]
async fn a_call_may_go_through_three_gateways_and_no_more() {
    let edge = edge().await;
    for (value, next) in [("0", "1"), ("3", "4"), ("03", "4")] {
        edge.header("hookgate-depth", value, None).await;
        assert_eq!(edge.last_seen().metadata.get("hookgate-depth").map(String::as_str), Some(next));
    }
    for value in ["4", "4294967295"] {
        edge.header("hookgate-depth", value, Some(Code::Loop)).await;
    }
    for value in ["", "one", "-1", "+1", "1.0", "1, 2", "4294967296", "99999999999999999999"] {
        edge.header("hookgate-depth", value, Some(Code::PayloadInvalid)).await;
    }
    assert_eq!(edge.plugin.counts().calls, 6);
}

#[tokio::test]
async fn the_callers_own_id_is_kept_beside_ours() {
    let edge = edge().await;
    for value in ["caller-7", &"x".repeat(128)] {
        edge.header("x-request-id", value, None).await;
        let context = edge.last_seen().call.context.unwrap();
        assert_eq!(context.correlation_id.as_deref(), Some(value));
        assert_ne!(context.request_id, value);
    }
    for value in [&"x".repeat(129), "two words", "é"] {
        edge.header("x-request-id", value, Some(Code::PayloadInvalid)).await;
    }
    let answer = send(good_request(&edge.http).header("x-request-id", "caller-7")).await;
    let ours = answer.header("x-request-id").expect("there is one, ours");
    let id: uuid::Uuid = ours.parse().expect("it is a UUID");
    assert_eq!(id.get_version_num(), 7);
    assert_eq!(edge.last_seen().call.context.unwrap().request_id, ours);
}

#[tokio::test]
async fn a_callers_time_limit_has_bounds() {
    let edge = edge().await;
    for value in ["60000", "5000"] {
        edge.header("hookgate-timeout-ms", value, None).await;
    }
    for value in ["0", "60001", "-5", "1e3", "soon", ""] {
        edge.header("hookgate-timeout-ms", value, Some(Code::PayloadInvalid)).await;
    }
    for value in ["5S", "99999999S", "1H", "5000m", "5000000u", "99999999m"] {
        edge.header("grpc-timeout", value, None).await;
    }
    for value in ["5", "S", "999999999S", "5s", "-5S", "5 S", ""] {
        edge.header("grpc-timeout", value, Some(Code::PayloadInvalid)).await;
    }
    // the plugin gets the caller's time less a reserve
    send(good_request(&edge.http).header("hookgate-timeout-ms", "2000")).await;
    let left = &edge.last_seen().metadata["grpc-timeout"];
    let unit = left.chars().last();
    let number: u64 = left[..left.len() - 1].parse().unwrap();
    let micros = match unit {
        Some('n') => number / 1000,
        Some('u') => number,
        Some('m') => number * 1000,
        other => panic!("{left}: {other:?}"),
    };
    assert!(micros <= 1_950_000, "{left}");
}

/// Proxies in front of the gateway may already have looked at either.
#[tokio::test]
async fn a_header_that_is_sent_twice_is_refused_by_name_over_both_protocols() {
    let edge = edge().await;
    for (name, values) in [
        ("hookgate-depth", ["0", "9"]),
        ("hookgate-depth", ["9", "0"]),
        ("hookgate-depth", ["1", "1"]),
        ("hookgate-timeout-ms", ["1000", "60000"]),
        ("grpc-timeout", ["1S", "2S"]),
        ("x-request-id", ["one", "other"]),
    ] {
        let twice = |request: reqwest::RequestBuilder| {
            values.iter().fold(request, |request, value| request.header(name, *value))
        };
        let named = format!("Header `{name}` must be sent once");
        let http = send(twice(good_request(&edge.http))).await;
        assert_http_error(&http, Code::PayloadInvalid);
        assert!(http.body["detail"].as_str().unwrap().starts_with(&named), "{http:?}");
        let grpc = send_grpc(twice(edge.grpc(frame(&request())))).await.status();
        assert_grpc_error(&grpc, Code::PayloadInvalid);
        assert!(grpc.message().starts_with(&named), "{grpc:?}");
    }
    for (name, values) in [
        ("content-type", &["text/plain"][..]),
        ("content-type", &["application/json"]),
        ("content-encoding", &["identity", "gzip"]),
    ] {
        let request =
            values.iter().fold(good_request(&edge.http), |request, value| request.header(name, *value));
        let http = send(request).await;
        assert_http_error(&http, Code::PayloadInvalid);
        assert!(http.body["detail"].as_str().unwrap().starts_with(&format!("Header `{name}`")), "{http:?}");
    }
    let grpc = send_grpc(edge.grpc(frame(&request())).header("content-type", "application/grpc+json")).await;
    assert_grpc_error(&grpc.status(), Code::PayloadInvalid);
    assert_eq!(edge.plugin.counts().calls, 0);
}

#[tokio::test]
async fn json_is_taken_64_deep_and_no_deeper() {
    let edge = edge().await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (depth, expected) in [(64, 200), (65, 400), (10_000, 400), (1_000_000, 400)] {
        let http = edge.http.post_text(POINT, edge.args(&nested(depth))).await;
        assert_eq!(http.status, expected, "{depth}: {:?}", http.body["detail"]);
        let mut message = request();
        message.payload.as_mut().unwrap().args = nested(depth).into();
        let grpc = send_grpc(edge.grpc(frame(&message))).await;
        if expected == 200 {
            assert!(!grpc.headers.contains_key("grpc-status"), "{depth}: {grpc:?}");
        } else {
            assert_http_error(&http, Code::PayloadInvalid);
            assert!(http.body["errors"][0]["pointer"].as_str().unwrap().starts_with("/payload/args"));
            assert_grpc_error(&grpc.status(), Code::PayloadInvalid);
        }
    }
    let objects = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    assert_http_error(&edge.http.post_text(POINT, edge.args(&objects)).await, Code::PayloadInvalid);
    assert_http_error(&edge.http.post_text(POINT, "[".repeat(100_000)).await, Code::PayloadInvalid);
    assert_no_panic(&edge.gateway);
}

#[tokio::test]
async fn duplicate_keys_are_refused_by_pointer_over_both_protocols() {
    let edge = edge().await;
    let nested = r#"{"x":[{"k":1,"\u006b":2}]}"#;
    let http = edge.http.post_text(POINT, edge.args(nested)).await;
    assert_http_error(&http, Code::PayloadInvalid);
    assert_eq!(http.body["errors"][0]["pointer"], json!("/payload/args/x/0/k"));
    let mut message = request();
    message.payload.as_mut().unwrap().args = nested.into();
    assert_grpc_error(&send_grpc(edge.grpc(frame(&message))).await.status(), Code::PayloadInvalid);

    let twice = r#"{"payload":{"tool_name":"t","tool_name":"u","args":1}}"#;
    assert_http_error(&edge.http.post_text(POINT, twice).await, Code::PayloadInvalid);
    assert_eq!(edge.plugin.counts().calls, 0);
}

#[tokio::test]
async fn compressed_requests_are_refused_over_both_protocols() {
    let edge = edge().await;
    for encoding in ["gzip", "br", "deflate", "zstd", "identity, gzip"] {
        let answer = send(good_request(&edge.http).header("content-encoding", encoding)).await;
        assert_http_error(&answer, Code::ContentType);
    }
    assert_eq!(send(good_request(&edge.http).header("content-encoding", "identity")).await.status, 200);
    let mut compressed = frame(&request());
    compressed[0] = 1;
    let answer = send_grpc(edge.grpc(compressed).header("grpc-encoding", "gzip")).await;
    assert_grpc_error(&answer.status(), Code::ContentType);
    // compression is announced but not used: the message's own flag counts
    let answer = send_grpc(edge.grpc(frame(&request())).header("grpc-encoding", "gzip")).await;
    assert!(!answer.headers.contains_key("grpc-status"), "{answer:?}");
}

#[tokio::test]
async fn bodies_are_json_and_messages_protobuf() {
    let edge = edge().await;
    let post = |content_type: Option<&str>| {
        let request = edge.http.request(http::Method::POST, path(POINT));
        let request = request.body(json!({ "payload": payload() }).to_string());
        send(match content_type {
            Some(content_type) => request.header("content-type", content_type),
            None => request,
        })
    };
    for good in ["application/json", "Application/JSON", "application/json; charset=utf-8"] {
        assert_eq!(post(Some(good)).await.status, 200, "{good}");
    }
    for bad in
        [None, Some("text/plain"), Some("application/jsonp"), Some("application/problem+json"), Some("")]
    {
        assert_http_error(&post(bad).await, Code::ContentType);
    }
    for (content_type, good) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc+json", false),
        ("application/grpc-web", false),
    ] {
        let (client, request) = edge.grpc(frame(&request())).build_split();
        let mut request = request.unwrap();
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        let answer = send_grpc(reqwest::RequestBuilder::from_parts(client, request)).await;
        assert_eq!(answer.headers.contains_key("grpc-status"), !good, "{content_type}: {answer:?}");
        if !good {
            assert_grpc_error(&answer.status(), Code::ContentType);
        }
    }
}

#[tokio::test]
async fn a_grpc_call_is_one_whole_message() {
    let edge = edge().await;
    let (one, empty) = (frame(&request()), frame_of(b""));
    let cut = one[..one.len() - 1].to_vec();
    let too_long = [&one[..4], &[one[4] + 1], &one[5..]].concat();
    for (name, body) in [
        ("nothing", Vec::new()),
        ("half a prefix", one[..3].to_vec()),
        ("cut short", cut),
        ("longer than there is", too_long),
        ("two messages", [one.clone(), one.clone()].concat()),
        ("an empty message", empty),
        ("no protobuf", frame_of(b"\x0a\xff\xff\xff\xff\xff\xff")),
        ("invalid UTF-8", frame_of(b"\x12\x04\x0a\x02\xff\xfe")),
        ("no payload", frame(&BeforeToolCallRequest::default())),
    ] {
        let answer = send_grpc(edge.grpc(body)).await;
        assert_grpc_error(&answer.status(), Code::PayloadInvalid);
        assert!(!answer.status().message().is_empty(), "{name}");
    }
    assert_eq!(edge.plugin.counts().calls, 0);
    assert_no_panic(&edge.gateway);
}

#[tokio::test]
async fn what_does_not_exist_says_so_in_the_protocol_it_was_asked_in() {
    let edge = edge().await;
    for path in ["/", "/v1", "/v1/before-tool-call/", "/v2/before-tool-call", "/livez", "/metrics", METHOD] {
        let answer = send(edge.http.request(http::Method::POST, path).body("{}")).await;
        assert_http_error(&answer, Code::NotFound);
    }
    for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
        let method: http::Method = method.parse().unwrap();
        let answer = send(edge.http.request(method.clone(), path(POINT))).await;
        assert_eq!(answer.header("allow"), Some("POST"), "{method}: {answer:?}");
        assert!(answer.header("x-request-id").is_some(), "{method}: {answer:?}");
        if method == http::Method::HEAD {
            assert_eq!((answer.status, answer.text.as_str()), (405, ""));
        } else {
            assert_http_error(&answer, Code::MethodNotAllowed);
        }
    }
    for path in [
        "/hookgate.gateway.v1.ExtensionPointService/BeforeFoolCall",
        "/hookgate.gateway.v1.ExtensionPointService/",
        "/hookgate.gateway.v2.ExtensionPointService/BeforeToolCall",
        "/hookgate.plugin.v1.PluginService/Describe",
        "/v1/before-tool-call",
    ] {
        let call = grpc_request(edge.gateway.data_addr(), path, &edge.token, frame(&request()));
        assert_grpc_error(&send_grpc(call).await.status(), Code::NotFound);
    }
    assert_eq!(edge.plugin.counts().calls, 0);
}

#[tokio::test]
async fn a_turn_may_be_empty_over_both_protocols() {
    let edge = edge().await;
    for (point, payload) in [
        (ExtensionPoint::BeforeLlmRequest, json!({ "text": "" })),
        (ExtensionPoint::BeforeLlmRequest, json!({})),
        (ExtensionPoint::BeforeToolCall, json!({ "tool_name": "t", "args": "" })),
        (ExtensionPoint::AfterToolResult, json!({ "tool_name": "t", "result": "", "success": true })),
        (ExtensionPoint::BeforeResponse, json!({ "content": "" })),
        (ExtensionPoint::BeforeResponse, json!({})),
    ] {
        let answer = edge.http.call(point, payload.clone()).await;
        assert_eq!(
            (answer.status, &answer.body["decision"]),
            (200, &json!("continue")),
            "{payload}: {answer:?}"
        );
    }
    let mut agent = edge.gateway.grpc(&edge.token).await.client;
    let text = BeforeLlmRequestRequest { payload: Some(Default::default()), ..Default::default() };
    let answer = agent.before_llm_request(text).await.expect("a decision").into_inner();
    assert_eq!(answer.payload, Some(Default::default()), "{answer:?}");
    let content = BeforeResponseRequest { payload: Some(Default::default()), ..Default::default() };
    let answer = agent.before_response(content).await.expect("a decision").into_inner();
    assert_eq!(answer.payload, Some(Default::default()), "{answer:?}");
    assert_eq!(edge.plugin.counts().calls, 8, "an empty turn goes through the chain as any other");
    let status = agent.before_llm_request(BeforeLlmRequestRequest::default()).await.expect_err("no payload");
    assert_eq!(reason(&status).1.as_deref(), Some(Code::PayloadInvalid.as_str()), "{status:?}");
}

#[tokio::test]
async fn a_plugin_may_empty_a_text() {
    let emptying = BeforeLlmRequestPatch { text: Some(String::new()), ..Default::default() };
    let plugin = FakePlugin::named("eraser");
    let plugin = plugin.at(ExtensionPoint::BeforeLlmRequest, Act::patch(emptying)).start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("eraser", 10).start().await;
    let agent = gateway.http(&token("acme"));
    let answer = agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "hello" })).await;
    assert_eq!((answer.status, &answer.body["payload"]), (200, &json!({ "text": "" })), "{answer:?}");
}

#[tokio::test]
async fn a_payload_is_an_object_at_every_point() {
    let edge = edge().await;
    for point in POINTS {
        for wrong in [Value::Null, json!(5), json!("text"), json!([1]), json!(true)] {
            let answer = edge.http.post(point, &json!({ "payload": wrong })).await;
            assert_http_error(&answer, Code::PayloadInvalid);
            assert_eq!(answer.body["errors"][0]["pointer"], json!("/payload"), "{wrong}: {answer:?}");
        }
        assert_http_error(&edge.http.post(point, &json!({})).await, Code::PayloadInvalid);
        assert_http_error(&edge.http.post(point, &json!([])).await, Code::PayloadInvalid);
    }
    assert_eq!(edge.plugin.counts().calls, 0);
}
