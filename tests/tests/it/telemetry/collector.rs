//! Tests that calls don't depend on the collector: whether it is down, hanging or back again, answers are
//! the same.

use std::time::{Duration, Instant};

use hookgate_tests::{
    agent::HttpAnswer,
    collector::Collector,
    fake::{Act, FakePlugin},
    gateway::{Gateway, Setup},
    token::token,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use crate::telemetry::support::{POINT, at_once, exporting_to, payload, tenants, traced_call};

/// A guard that blocks, and a collector in the state that the caller sets.
fn guarded(guard: &FakePlugin) -> Setup {
    tenants().plugin(guard).binding_with("guard", 10, &json!({ "tenant": "acme" }))
}

async fn guard() -> FakePlugin {
    FakePlugin::named("guard").at(POINT, Act::cancel("TOOL_NOT_ALLOWED", "no")).start().await
}

/// The answer without what differs from call to call.
fn lasting(answer: &HttpAnswer) -> (u16, Value) {
    let mut body = answer.body.clone();
    body["request_id"] = Value::Null;
    for step in body["steps"].as_array_mut().expect("there are steps") {
        step["duration_us"] = Value::Null;
    }
    (answer.status, body)
}

/// Some hundred calls for both tenants, more than one batch of spans. All answers are alike; returns the
/// first ones.
async fn answers(gateway: &Gateway) -> [(u16, Value); 2] {
    let (acme, globex) = (gateway.http(&token("acme")), gateway.http(&token("globex")));
    let first = [lasting(&traced_call(&acme).await), lasting(&traced_call(&globex).await)];
    for _ in 0..150 {
        assert_eq!(lasting(&acme.call(POINT, payload()).await), first[0]);
        assert_eq!(lasting(&globex.call(POINT, payload()).await), first[1]);
    }
    first
}

/// SIGTERM ends the gateway at most one second later than usual. The export's timeouts are longer than
/// that.
async fn stops(gateway: Gateway) {
    let since = Instant::now();
    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert!(since.elapsed() < Duration::from_secs(4), "telemetry held the exit up: {:?}", since.elapsed());
}

#[tokio::test]
async fn a_collector_that_is_down_or_hangs_changes_no_answer_and_no_exit() {
    let guard = guard().await;
    let plain = guarded(&guard).start().await;
    let expected = answers(&plain).await;
    assert_eq!((expected[0].0, expected[1].0), (403, 200));
    stops(plain).await;

    let mut dead = Collector::start().await;
    dead.die().await;
    let hanging = Collector::start().await;
    hanging.hang(true);
    for protocol in ["grpc", "http"] {
        for collector in [&dead, &hanging] {
            let setup = exporting_to(guarded(&guard), collector).set("/telemetry/otlp_protocol", protocol);
            let gateway = setup.start().await;
            assert_eq!(answers(&gateway).await, expected, "{protocol}");
            stops(gateway).await;
        }
    }
    hanging.wait_for_exports(6).await; // three signals over both protocols, so the collector was really used
}

#[tokio::test]
async fn a_collector_that_dies_and_comes_back_gets_what_happens_then() {
    let mut collector = Collector::start().await;
    let guard = guard().await;
    let gateway = exporting_to(guarded(&guard), &collector).start().await;
    let agent = gateway.http(&token("acme"));
    let first = traced_call(&agent).await;
    collector.wait_until(|received| !received.spans.is_empty()).await;

    collector.die().await;
    let lost = traced_call(&agent).await;
    assert_eq!(lasting(&lost), lasting(&first));
    let complaint = |line: &hookgate_tests::gateway::Line| {
        line.text.contains("opentelemetry") || line.text.contains("Export")
    };
    gateway.log().wait_for(complaint).await; // operators can see that telemetry is lost

    collector.come_back().await;
    let seen = |answer: &HttpAnswer| answer.header("x-request-id").expect("every answer has it").to_owned();
    let back = traced_call(&agent).await;
    let id = seen(&back);
    let name = "POST /v1/before-tool-call";
    collector.wait_until(|received| received.span(name, "hookgate.request.id", &id).is_some()).await;
}

fn is_of_call(span: &Span) -> bool {
    span.name.contains("before-tool-call") || span.name.contains("BeforeToolCall")
}

#[tokio::test]
async fn all_three_signals_arrive_over_either_protocol() {
    let guard = guard().await;
    for protocol in ["grpc", "http"] {
        let collector = Collector::start().await;
        let setup = exporting_to(guarded(&guard), &collector).set("/telemetry/otlp_protocol", protocol);
        let gateway = setup.start().await;
        traced_call(&gateway.http(&token("acme"))).await;
        let received = collector
            .wait_until(|received| {
                received.spans.iter().any(is_of_call)
                    && received.logs.iter().any(|log| !log.trace_id.is_empty())
                    && received.metric_names().contains(&"hookgate.blocks")
            })
            .await;
        let resource =
            &received.metrics[0].resource_metrics[0].resource.as_ref().expect("who reports").attributes;
        let resource = hookgate_tests::collector::attributes(resource);
        assert_eq!(resource.get("service.name").map(String::as_str), Some("hookgate"), "{protocol}");
        assert!(resource.contains_key("service.version") && resource.contains_key("service.instance.id"));
    }
}

#[tokio::test]
async fn what_is_left_at_the_end_is_sent() {
    let collector = Collector::start().await;
    let guard = guard().await;
    // Nothing is due for an hour.
    let setup = at_once(guarded(&guard))
        .set("/telemetry/otlp_endpoint", collector.endpoint())
        .environment("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        .environment("OTEL_METRIC_EXPORT_INTERVAL", "3600000");
    let gateway = setup.start().await;
    traced_call(&gateway.http(&token("acme"))).await;
    stops(gateway).await;
    let received = collector.received();
    assert!(received.span("POST /v1/before-tool-call", "hookgate.tenant.id", "acme").is_some());
    assert!(received.metric_names().contains(&"hookgate.blocks"));
}
