//! End-to-end test of the gateway as agents see it: plugins of two tenants, over HTTP and gRPC, from start
//! to SIGTERM.

use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, BeforeToolCallResponse, StepOutcome},
    types::v1::{
        BeforeToolCallPatch, BeforeToolCallPayload, CancelScope, Decision, ExtensionPoint, NoticeKind,
    },
};
use hookgate_tests::{
    agent::reason,
    fake::{Act, FakePlugin, Payload, notice},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};
use tonic::Code;

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

/// Contains a number above 2^53, nulls, unsorted keys, spaces and escapes: parsing and serializing it would
/// change it.
const ARGS: &str = r#"{"z": 9007199254740993, "a": {"n": null}, "u": "Zo\u00eb ✓"}"#;
const PATCHED_ARGS: &str = r#"{"path": "/safe", "limit": 9007199254740995}"#;

fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": { "path": "/etc" }, "call_id": "c1" })
}

fn request() -> BeforeToolCallRequest {
    let payload = BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: ARGS.into(),
        ..BeforeToolCallPayload::default()
    };
    BeforeToolCallRequest { payload: Some(payload), ..BeforeToolCallRequest::default() }
}

async fn rewriter() -> FakePlugin {
    let patch = BeforeToolCallPatch { args: Some(PATCHED_ARGS.into()), ..BeforeToolCallPatch::default() };
    FakePlugin::named("rewriter").only(&[POINT]).at(POINT, Act::patch(patch)).start().await
}

async fn guard() -> FakePlugin {
    let remark = notice(NoticeKind::Block, "TOOL_NOT_ALLOWED", "fs.read is off", &json!({ "allowed": [] }));
    let act = Act::cancel("TOOL_NOT_ALLOWED", "Tool 'fs.read' is not available on your plan.")
        .retry_after_ms(1500)
        .with_notice(remark);
    FakePlugin::named("guard").only(&[POINT]).at(POINT, act).start_unix().await
}

fn tenants() -> Setup {
    Gateway::with().tenant("acme").tenant("globex")
}

#[tokio::test]
async fn a_patch_reaches_the_agent_and_the_next_plugin_byte_for_byte() {
    let (rewriter, witness) = (rewriter().await, FakePlugin::named("witness").start_unix().await);
    let setup = tenants().plugin(&rewriter).plugin(&witness).binding("witness", 20).binding("rewriter", 10);
    let gateway = setup.start().await;

    let body = format!(r#"{{"payload":{{"tool_name":"fs.read","args":{ARGS},"call_id":"c1"}}}}"#);
    let answer = gateway.http(&token("acme")).post_text(POINT, body).await;
    assert_eq!((answer.status, answer.header("hookgate-decision")), (200, Some("continue")), "{answer:?}");
    assert!(answer.text.contains(PATCHED_ARGS), "{}", answer.text);
    assert_eq!((&answer.body["decision"], &answer.body["modified"]), (&json!("continue"), &json!(true)));
    assert_eq!(answer.body["payload"]["call_id"], json!("c1"));
    let outcomes: Vec<_> = answer.body["steps"].as_array().expect("there are steps").iter().collect();
    assert_eq!(outcomes.iter().map(|step| &step["outcome"]).collect::<Vec<_>>(), ["modified", "continued"]);

    let reply = gateway.grpc(&token("globex")).await.client.before_tool_call(request()).await;
    let reply: BeforeToolCallResponse = reply.expect("the chain decides").into_inner();
    assert_eq!((reply.decision(), reply.modified), (Decision::Continue, true));
    assert_eq!(reply.payload.expect("every answer has it").args, PATCHED_ARGS);

    let seen = witness.seen();
    let tenants: Vec<_> = seen.iter().map(|seen| tenant_of(&seen.call)).collect();
    assert_eq!(tenants, ["acme", "globex"]);
    for seen in &seen {
        assert!(
            matches!(&seen.payload, Payload::BeforeToolCall(payload) if payload.args == PATCHED_ARGS),
            "{seen:?}"
        );
        assert!(seen.metadata.contains_key("grpc-timeout"), "{seen:?}");
        assert_eq!(seen.metadata.get("hookgate-depth").map(String::as_str), Some("1"));
        assert!(!seen.metadata.contains_key("authorization"), "the token is never sent to a plugin");
    }
    let first = rewriter.seen();
    assert!(
        matches!(&first[1].payload, Payload::BeforeToolCall(payload) if payload.args == ARGS),
        "{:?}",
        first[1]
    );
}

fn tenant_of(call: &hookgate_proto::plugin::v1::Call) -> &str {
    call.context.as_ref().map(|context| context.tenant.as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_block_over_http_is_a_problem_that_holds_every_member_of_an_answer() {
    let guard = guard().await;
    let gateway = tenants().plugin(&guard).binding("guard", 10).start().await;
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;

    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("hookgate-decision"), Some("block"));
    assert_eq!(answer.header("retry-after"), Some("2"), "whole seconds, rounded up");
    let timing = answer.header("server-timing").expect("every answer has it");
    assert!(timing.contains("total") && timing.contains("guard"), "{timing}");
    let request_id = answer.header("x-request-id").expect("every answer has it").to_owned();

    let body = &answer.body;
    assert_eq!(body["status"], json!(403));
    for member in ["type", "title", "detail"] {
        assert!(body[member].is_string(), "RFC 9457 has `{member}`: {body}");
    }
    assert_eq!(body["decision"], json!("block"));
    assert_eq!((&body["payload"], &body["modified"]), (&payload(), &json!(false)));
    assert_eq!(
        body["block"],
        json!({
            "plugin": "guard",
            "binding": "guard",
            "code": "TOOL_NOT_ALLOWED",
            "message": "Tool 'fs.read' is not available on your plan.",
            "retry_after_ms": 1500,
            "scope": "step",
        })
    );
    let remark = &body["notices"][0];
    assert_eq!((&remark["plugin"], &remark["kind"]), (&json!("guard"), &json!("block")), "{remark}");
    assert_eq!(remark["details"], json!({ "allowed": [] }), "{remark}");
    assert_eq!(
        (&body["steps"][0]["plugin"], &body["steps"][0]["outcome"]),
        (&json!("guard"), &json!("cancelled"))
    );
    assert!(body["steps"][0]["duration_us"].is_u64(), "{body}");
    assert_eq!(body["plan_digest"].as_str().map(str::len), Some(64), "{body}");
    assert_eq!((&body["revision"], &body["request_id"]), (&json!(1), &json!(request_id)));
}

#[tokio::test]
async fn a_block_over_grpc_is_an_ok_answer() {
    let guard = guard().await;
    let gateway = tenants().plugin(&guard).binding("guard", 10).start().await;
    let response = gateway.grpc(&token("acme")).await.client.before_tool_call(request()).await;
    let response = response.expect("a block is a decision");
    let header =
        |name| response.metadata().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (request_id, timing) = (header("x-request-id"), header("server-timing"));
    let reply = response.into_inner();

    assert_eq!(Some(&reply.request_id), request_id.as_ref());
    assert!(timing.is_some_and(|timing| timing.contains("total")));
    assert_eq!((reply.decision(), reply.modified, reply.revision), (Decision::Block, false, 1));
    assert_eq!(reply.payload.as_ref().map(|payload| &payload.args[..]), Some(ARGS.as_bytes()));
    assert_eq!(reply.steps.iter().map(|step| step.outcome()).collect::<Vec<_>>(), [StepOutcome::Cancelled]);
    assert_eq!(reply.notices.len(), 1);
    let block = reply.block.expect("a block says why");
    assert_eq!((block.plugin.as_deref(), block.code.as_str()), (Some("guard"), "TOOL_NOT_ALLOWED"));
    assert_eq!((block.retry_after_ms, block.scope()), (Some(1500), CancelScope::Step));
}

#[tokio::test]
async fn one_tenants_plugin_is_not_called_for_another() {
    let guard = guard().await;
    let setup = tenants().plugin(&guard).binding_with("guard", 10, &json!({ "tenant": "acme" }));
    let gateway = setup.start().await;
    let acme = gateway.http(&token("acme")).call(POINT, payload()).await;
    let globex = gateway.http(&token("globex")).call(POINT, payload()).await;
    assert_eq!((acme.status, globex.status), (403, 200), "{acme:?}\n{globex:?}");
    assert_eq!(acme.body["block"]["binding"], json!("guard@acme"));
    assert_eq!((&globex.body["payload"], &globex.body["steps"]), (&payload(), &json!([])));
    assert_eq!(guard.seen().iter().map(|seen| tenant_of(&seen.call)).collect::<Vec<_>>(), ["acme"]);

    let stranger = gateway.http(&token("initech")).call(POINT, payload()).await;
    assert_eq!((stranger.status, &stranger.body["code"]), (403, &json!("TENANT_UNKNOWN")), "{stranger:?}");
    assert_eq!(stranger.header("hookgate-decision"), None, "a refusal isn't a decision");
}

#[tokio::test]
async fn a_call_without_a_token_is_refused_before_any_plugin() {
    let guard = guard().await;
    let gateway = tenants().plugin(&guard).binding("guard", 10).start().await;
    let answer = gateway.http_without_token().call(POINT, payload()).await;
    assert_eq!((answer.status, &answer.body["code"]), (401, &json!("TOKEN_MISSING")), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("hookgate-decision"), None);
    assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{answer:?}");
    assert_eq!(answer.body["request_id"].as_str(), answer.header("x-request-id"));

    let status = gateway.grpc_without_token().await.client.before_tool_call(request()).await;
    let status = status.expect_err("there is no token");
    assert_eq!(reason(&status), (Code::Unauthenticated, Some("TOKEN_MISSING".into())));
    assert_eq!(guard.counts().calls, 0);
}

#[tokio::test]
async fn a_bad_body_is_refused_with_a_pointer_to_the_member() {
    let gateway = tenants().start().await;
    let agent = gateway.http(&token("acme"));
    let cases = [
        (json!({ "payload": { "tool_name": "t", "args": 1, "colour": 2 } }), "/payload/colour"),
        (json!({ "payload": { "tool_name": 7, "args": 1 } }), "/payload/tool_name"),
        (json!({ "payload": payload(), "context": { "tenant": "globex" } }), "/context/tenant"),
    ];
    for (body, pointer) in cases {
        let answer = agent.post(POINT, &body).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (400, &json!("PAYLOAD_INVALID")),
            "{body}: {answer:?}"
        );
        assert_eq!(answer.body["errors"][0]["pointer"], json!(pointer), "{body}: {answer:?}");
        assert_eq!(answer.header("hookgate-decision"), None);
    }
}

#[tokio::test]
async fn a_plugin_that_dies_is_an_outage_for_its_tenant_until_it_is_back() {
    let (mut guard, witness) = (guard().await, FakePlugin::named("witness").start().await);
    guard.set(POINT, Act::pass());
    let gateway = tenants()
        .plugin(&guard)
        .plugin(&witness)
        .binding_with("guard", 10, &json!({ "tenant": "acme" }))
        .binding("witness", 20)
        .start()
        .await;
    let (acme, globex) = (gateway.http(&token("acme")), gateway.http(&token("globex")));
    assert_eq!(acme.call(POINT, payload()).await.status, 200);

    guard.stop().await;
    let answer = acme.call(POINT, payload()).await;
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{answer:?}");
    assert_eq!(answer.header("hookgate-decision"), None, "an outage never looks like a denial");
    let status = gateway.grpc(&token("acme")).await.client.before_tool_call(request()).await;
    let status = status.expect_err("no decision can be made");
    assert_eq!(reason(&status), (Code::Unavailable, Some("PLUGIN_UNAVAILABLE".into())));
    assert_eq!(globex.call(POINT, payload()).await.status, 200, "the others notice nothing");

    guard.start().await;
    let answer = acme.call(POINT, payload()).await;
    assert_eq!(answer.status, 200, "the call dials and initialises the plugin: {answer:?}");
    let ready = gateway.ops().get("/readyz").await.expect("the operators' port answers");
    assert_eq!(ready.status, 200, "a plugin's health never changes readiness");
}

#[tokio::test]
async fn sigterm_lets_plugins_go_and_ends_with_code_0() {
    let guard = guard().await;
    let gateway = tenants().plugin(&guard).binding("guard", 10).start().await;
    let token = token("acme");
    gateway.http(&token).call(POINT, payload()).await;
    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert_eq!(guard.counts().shutdowns, 1);
    let signature = token.rsplit('.').next().expect("a token has three parts");
    assert!(!exit.log.to_string().contains(signature), "a token is never logged");
}
