//! Tests every block code over HTTP and gRPC against the table of statuses: fixed, configured and unknown.

use hookgate_proto::types::v1::{CancelScope, Decision, NoticeKind};
use hookgate_tests::{
    agent::{GrpcAgent, HttpAgent},
    fake::{Act, FakePlugin, notice},
    gateway::Gateway,
    token::token,
};
use serde_json::{Value, json};

use crate::edge::support::{POINT, payload, request};

/// The table of docs/protocol.md, section 4, written independently of the code.
const FIXED: [(&str, u16); 12] = [
    ("UNAUTHORIZED", 401),
    ("TOOL_NOT_ALLOWED", 403),
    ("FORBIDDEN", 403),
    ("BLOCKED", 403),
    ("QUOTA_EXCEEDED", 429),
    ("RATE_LIMITED", 429),
    ("PAYMENT_REQUIRED", 402),
    ("INPUT_TOO_LONG", 413),
    ("INVALID_INPUT", 400),
    ("CONTENT_BLOCKED", 422),
    ("TOOL_OUTPUT_INVALID", 422),
    ("TOOL_ANSWERED", 403),
];

struct Edge {
    plugin: FakePlugin,
    http: HttpAgent,
    grpc: GrpcAgent,
    _gateway: Gateway,
}

/// A gateway with one plugin that the test scripts.
async fn edge() -> Edge {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&plugin, &json!({ "block_status": { "LOCKED": 423, "shared": 451 } }))
        .binding_with("guard", 10, &json!({ "name": "floor" }))
        .set("/block_status", json!({ "shared": 410, "too.early:v1": 425 }))
        .start()
        .await;
    let token = token("acme");
    Edge { plugin, http: gateway.http(&token), grpc: gateway.grpc(&token).await, _gateway: gateway }
}

impl Edge {
    /// Blocks with this act, over both protocols.
    async fn block(&mut self, act: Act, code: &str, status: u16) -> Value {
        self.plugin.set(POINT, act);
        let answer = self.http.call(POINT, payload()).await;
        assert_eq!(answer.status, status, "{code}: {answer:?}");
        assert_eq!(answer.header("hookgate-decision"), Some("block"), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
        let body = &answer.body;
        assert_eq!(body["type"], json!(format!("urn:hookgate:block:{code}")));
        assert_eq!((&body["status"], &body["code"]), (&json!(status), &json!(code)), "{body}");
        assert!(body["title"].as_str().is_some_and(|title| !title.is_empty()), "{body}");
        assert_eq!(body["detail"], body["block"]["message"], "{body}");
        assert_eq!(body["request_id"].as_str(), answer.header("x-request-id"), "{body}");
        assert_eq!((&body["decision"], &body["block"]["code"]), (&json!("block"), &json!(code)), "{body}");
        let challenge = (status == 401).then(|| format!("Hookgate code=\"{code}\""));
        assert_eq!(answer.header("www-authenticate"), challenge.as_deref(), "{answer:?}");
        let wait = body["block"]["retry_after_ms"].as_u64().map(|millis| millis.div_ceil(1000).to_string());
        assert_eq!(answer.header("retry-after"), wait.as_deref(), "{answer:?}");

        let reply = self.grpc.client.before_tool_call(request()).await.expect("a block is a decision");
        assert!(
            reply.metadata().get("x-request-id").is_some() && reply.metadata().get("server-timing").is_some()
        );
        let reply = reply.into_inner();
        assert_eq!(reply.decision(), Decision::Block);
        let block = reply.block.expect("a block says why");
        assert_eq!((block.code.as_str(), &json!(block.message)), (code, &body["block"]["message"]));
        assert_eq!(block.retry_after_ms, body["block"]["retry_after_ms"].as_u64());
        answer.body
    }
}

#[tokio::test]
async fn every_block_code_has_its_status_over_http_and_is_ok_over_grpc() {
    let mut edge = edge().await;
    for (code, status) in FIXED {
        edge.block(Act::cancel(code, "no"), code, status).await;
    }
    let listed: Vec<_> = hookgate::core::block_status::FIXED_BLOCK_STATUSES.to_vec();
    assert_eq!(listed, FIXED, "the table is the protocol's");
    for code in ["MADE_UP", "a", "Policy.v2:rule-7_x", "internal"] {
        edge.block(Act::cancel(code, "no"), code, 403).await;
    }
}

#[tokio::test]
async fn configured_statuses_add_to_the_table_and_the_plugins_own_come_first() {
    let mut edge = edge().await;
    for (code, status) in [("LOCKED", 423), ("shared", 451), ("too.early:v1", 425)] {
        edge.block(Act::cancel(code, "no"), code, status).await;
    }
}

#[tokio::test]
async fn statuses_that_are_no_block_or_are_fixed_are_refused_in_the_configuration() {
    let cases = [
        ("/block_status", json!({ "LATER": 399 })),
        ("/block_status", json!({ "LATER": 500 })),
        ("/block_status", json!({ "BLOCKED": 451 })),
        ("/block_status", json!({ "INTERNAL": 451 })),
    ];
    for (pointer, value) in cases {
        let exit = Gateway::with().set(pointer, value.clone()).run_to_the_end().await;
        assert_eq!(exit.code, Some(2), "{value}: {}", exit.log);
        assert!(exit.log.to_string().contains("block_status"), "{value}: {}", exit.log);
    }
}

#[tokio::test]
async fn a_block_says_when_to_ask_again_in_whole_seconds_rounded_up() {
    let mut edge = edge().await;
    for (millis, _) in [(1, "1"), (1000, "1"), (1001, "2"), (0, "0")] {
        edge.block(Act::cancel("RATE_LIMITED", "slow down").retry_after_ms(millis), "RATE_LIMITED", 429)
            .await;
    }
}

#[tokio::test]
async fn a_blocks_code_may_come_from_its_first_block_notice() {
    let mut edge = edge().await;
    let with =
        |kind, code: &str, details| Act::cancel("", "no").with_notice(notice(kind, code, "why", &details));
    for (code, status) in
        [("QUOTA_EXCEEDED", 429), ("TOOL_NOT_ALLOWED", 403), ("UNAUTHORIZED", 401), ("X", 403)]
    {
        let body = edge.block(with(NoticeKind::Block, code, json!({ "used": 7 })), code, status).await;
        assert_eq!(body["notices"][0]["details"], json!({ "used": 7 }), "{body}");
    }
    // a warning doesn't set the code, nor does a reserved or malformed one
    edge.block(with(NoticeKind::Warn, "QUOTA_EXCEEDED", Value::Null), "BLOCKED", 403).await;
    edge.block(with(NoticeKind::Block, "PLUGIN_TIMEOUT", Value::Null), "BLOCKED", 403).await;
    edge.block(with(NoticeKind::Block, "7", Value::Null), "BLOCKED", 403).await;
}

#[tokio::test]
async fn no_block_carries_an_error_code() {
    let mut edge = edge().await;
    for code in hookgate::core::error::Code::ALL {
        edge.block(Act::cancel(code.as_str(), "no"), "BLOCKED", 403).await;
    }
}

#[tokio::test]
async fn a_block_without_a_message_has_one_and_keeps_its_scope() {
    let mut edge = edge().await;
    let body = edge.block(Act::cancel("", "").scope(CancelScope::Run), "BLOCKED", 403).await;
    assert_eq!(body["detail"], json!("Operation blocked by plugin"));
    assert_eq!((&body["block"]["scope"], &body["block"]["binding"]), (&json!("run"), &json!("floor")));
}
