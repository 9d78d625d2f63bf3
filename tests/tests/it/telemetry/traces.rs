//! Tests that one trace spans the agent, the gateway and its plugins.

use std::time::Duration;

use hookgate_proto::plugin::v1::Access;
use hookgate_tests::{
    agent::{HttpAgent, path},
    collector::{Collector, Received, attributes},
    fake::{Act, FakePlugin, Gate, HOOKS, Seen},
    token::token,
};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use serde_json::json;

use crate::telemetry::support::{PARENT, POINT, TRACE, exporting_to, hex, payload, tenants, traced_call};

const SERVER: &str = "POST /v1/before-tool-call";
const CLIENT: &str = "hookgate.plugin.v1.PluginService/BeforeToolCall";

/// The trace id, span id and flags that a plugin received.
fn trace_of(seen: &Seen) -> (String, String, String) {
    let parent = seen.metadata.get("traceparent").expect("plugins get it");
    let parts: Vec<_> = parent.split('-').map(str::to_owned).collect();
    (parts[1].clone(), parts[2].clone(), parts[3].clone())
}

/// The log record of a block.
fn blocked(received: &Received) -> Option<&LogRecord> {
    let event = |log: &LogRecord| attributes(&log.attributes).remove("event");
    received.logs.iter().find(|log| event(log).as_deref() == Some("decision.block"))
}

#[tokio::test]
async fn a_call_is_one_trace_from_the_agent_to_its_plugins() {
    let collector = Collector::start().await;
    let pass = FakePlugin::named("pass").start_unix().await;
    let guard = FakePlugin::named("guard").at(POINT, Act::cancel("TOOL_NOT_ALLOWED", "no")).start().await;
    let setup = tenants().plugin(&pass).plugin(&guard).binding("pass", 10).binding("guard", 20);
    let gateway = exporting_to(setup, &collector).start().await;
    let answer = traced_call(&gateway.http(&token("acme"))).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    let request_id = answer.header("x-request-id").expect("every answer has it");

    let received = collector
        .wait_until(|received| {
            received.span(SERVER, "hookgate.request.id", request_id).is_some() && blocked(received).is_some()
        })
        .await;
    let server = received.span(SERVER, "hookgate.request.id", request_id).expect("there is a server span");
    assert_eq!(
        (hex(&server.trace_id).as_str(), hex(&server.parent_span_id).as_str()),
        (TRACE, "b7ad6b7169203331")
    );
    let said = attributes(&server.attributes);
    for (name, value) in [
        ("hookgate.tenant.id", "acme"),
        ("hookgate.operator.id", "operator-of-acme"),
        ("hookgate.point", "before_tool_call"),
        ("hookgate.decision", "block"),
        ("hookgate.code", "TOOL_NOT_ALLOWED"),
        ("http.request.method", "POST"),
        ("http.route", "/v1/before-tool-call"),
        ("http.response.status_code", "403"),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}: {said:?}");
    }

    for plugin in [&pass, &guard] {
        let client =
            received.span(CLIENT, "hookgate.plugin.name", plugin.name()).expect("there is a client span");
        assert_eq!(client.parent_span_id, server.span_id, "the plugin's call is the server span's child");
        let ids = (hex(&client.trace_id), hex(&client.span_id), "01".to_owned());
        assert_eq!(trace_of(&plugin.seen()[0]), ids, "the plugin gets the client span");
        assert_eq!(plugin.seen()[0].metadata.get("tracestate").map(String::as_str), Some("vendor=1"));
    }
    let log = blocked(&received).expect("waited for");
    assert_eq!((&log.trace_id, &log.span_id), (&server.trace_id, &server.span_id), "the line is part of it");
}

#[tokio::test]
async fn plugins_that_are_called_at_the_same_time_are_siblings_in_the_trace() {
    let (collector, gate) = (Collector::start().await, Gate::closed());
    let reader = |name| FakePlugin::named(name).access(Access::Read).at(POINT, Act::pass().behind(&gate));
    let (first, second) = (reader("first").start_unix().await, reader("second").start().await);
    let setup = tenants().plugin(&first).plugin(&second).binding("first", 10).binding("second", 20);
    let gateway = exporting_to(setup, &collector).start().await;
    let both_are_called = async {
        for plugin in [&first, &second] {
            plugin.wait_until(|counts| counts.calls == 1).await;
        }
        gate.open();
    };
    let agent = gateway.http(&token("acme"));
    let (answer, ()) = tokio::join!(traced_call(&agent), both_are_called);
    let request_id = answer.header("x-request-id").expect("every answer has it");
    let is_there = |received: &Received| received.span(SERVER, "hookgate.request.id", request_id).is_some();
    let received = collector.wait_until(is_there).await;
    let server = received.span(SERVER, "hookgate.request.id", request_id).expect("waited for");
    for plugin in [&first, &second] {
        let client =
            received.span(CLIENT, "hookgate.plugin.name", plugin.name()).expect("there is a client span");
        assert_eq!(client.parent_span_id, server.span_id);
        assert_eq!(trace_of(&plugin.seen()[0]).1, hex(&client.span_id), "the plugin gets its own span");
    }
}

#[tokio::test]
async fn a_call_over_grpc_without_a_traceparent_starts_a_trace() {
    let collector = Collector::start().await;
    let pass = FakePlugin::named("pass").start().await;
    let gateway = exporting_to(tenants().plugin(&pass).binding("pass", 10), &collector).start().await;
    let mut agent = gateway.grpc(&token("acme")).await.client;
    let payload = hookgate_proto::types::v1::BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: "1".into(),
        ..Default::default()
    };
    let request =
        hookgate_proto::gateway::v1::BeforeToolCallRequest { payload: Some(payload), ..Default::default() };
    agent.before_tool_call(request).await.expect("the chain decides");
    let name = "hookgate.gateway.v1.ExtensionPointService/BeforeToolCall";
    let is_there = |received: &Received| received.span(name, "rpc.response.status_code", "OK").is_some();
    let received = collector.wait_until(is_there).await;
    let server = received.span(name, "rpc.response.status_code", "OK").expect("waited for");
    assert_eq!(server.parent_span_id, Vec::<u8>::new(), "it has no parent");
    assert_eq!(trace_of(&pass.seen()[0]).0, hex(&server.trace_id));
}

#[tokio::test]
async fn without_a_collector_the_agents_own_traceparent_is_passed_on() {
    let pass = FakePlugin::named("pass").start().await;
    let gateway = tenants().plugin(&pass).binding("pass", 10).start().await;
    let agent = gateway.http(&token("acme"));
    assert_eq!(traced_call(&agent).await.status, 200);
    agent.call(POINT, payload()).await;
    let seen = pass.seen();
    assert_eq!(seen[0].metadata.get("traceparent").map(String::as_str), Some(PARENT));
    assert_eq!(seen[0].metadata.get("tracestate").map(String::as_str), Some("vendor=1"));
    assert_eq!(seen[1].metadata.get("traceparent"), None, "none is made up");
}

#[tokio::test]
async fn what_observers_see_belongs_to_the_trace_of_a_caller_that_went_away() {
    let collector = Collector::start().await;
    let slow = FakePlugin::named("slow").at(POINT, Act::hang()).start().await;
    let witness = FakePlugin::named("witness").start().await;
    // Observers are connected before the start completes only if they are required.
    let witnessed = tenants().plugin(&slow).plugin_with(&witness, &json!({ "required": true }));
    let setup = witnessed.binding("slow", 10);
    let setup = setup.binding_with("witness", 20, &json!({ "mode": "observe" }));
    let gateway = exporting_to(setup, &collector).start().await;

    let agent = gateway.http(&token("acme"));
    let request = agent.request(http::Method::POST, path(POINT)).header("traceparent", PARENT);
    let request = request.header("content-type", "application/json").timeout(Duration::from_secs(20));
    let body = json!({ "payload": payload() }).to_string();
    let call = tokio::spawn(request.body(body).send());
    slow.wait_until(|counts| counts.calls == 1).await;
    call.abort();
    slow.wait_until(|counts| counts.cancelled == 1).await;
    witness.wait_until(|counts| counts.finished == 1).await;
    assert_eq!(trace_of(&witness.seen()[0]).0, TRACE);

    let received = collector
        .wait_until(|received| received.span(SERVER, "hookgate.decision", "cancelled").is_some())
        .await;
    let server = received.span(SERVER, "hookgate.decision", "cancelled").expect("waited for");
    assert_eq!(attributes(&server.attributes).get("error.type").map(String::as_str), Some("CANCELLED"));
    let broken_off = received.span(CLIENT, "error.type", "CANCELLED").expect("the call was broken off");
    assert_eq!(broken_off.parent_span_id, server.span_id);
}

#[tokio::test]
async fn a_hook_is_one_trace_that_names_it() {
    let collector = Collector::start().await;
    let memory = FakePlugin::named("memory").hooks(&["recall"]).at(HOOKS, Act::pass()).start_unix().await;
    let setup = tenants().plugin(&memory).binding_with("memory", 10, &json!({ "hooks": ["recall"] }));
    // A start doesn't wait for plugins that only advise.
    let setup = setup.set("/plugins/0/required", true);
    let gateway = exporting_to(setup, &collector).start().await;
    let agent = gateway.http(&token("acme"));
    let request = agent.request(http::Method::POST, "/v1/hooks/recall").header("traceparent", PARENT);
    let request = request.header("content-type", "application/json");
    let answer = HttpAgent::send(request.body(r#"{"body":{"message":"hi"}}"#)).await.expect("an answer");
    let request_id = answer.header("x-request-id").expect("every answer has it");

    const ROUTE: &str = "POST /v1/hooks/{hook}";
    const ON_HOOK: &str = "hookgate.plugin.v1.PluginService/OnHook";
    let received = collector
        .wait_until(|received| {
            received.span(ROUTE, "hookgate.request.id", request_id).is_some()
                && received.span(ON_HOOK, "hookgate.plugin.name", "memory").is_some()
        })
        .await;
    let server = received.span(ROUTE, "hookgate.request.id", request_id).expect("there is a server span");
    let client = received.span(ON_HOOK, "hookgate.plugin.name", "memory").expect("there is a client span");
    assert_eq!((hex(&server.trace_id).as_str(), &client.parent_span_id), (TRACE, &server.span_id));
    for span in [server, client] {
        let said = attributes(&span.attributes);
        assert_eq!(said.get("hookgate.hook").map(String::as_str), Some("recall"), "{said:?}");
        assert!(!said.contains_key("hookgate.point"), "{said:?}");
    }
    assert_eq!(trace_of(&memory.seen()[0]).0, TRACE);
}
