//! Tests that one trace spans the agent, the gateway, and the spans and log lines of plugins built with the
//! SDK.

use std::time::{Duration, Instant};

use hookgate_sdk::{BeforeToolCallPayload, agent::Agent};
use hookgate_tests::{
    collector::{Collector, Received, attributes},
    gateway::{Gateway, Setup},
    token::token,
};
use opentelemetry::{
    Context,
    trace::{FutureExt as _, SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tokio::process::Command;

use crate::{
    plugins::process::{PluginProcess, unix},
    telemetry::support::{AGENT_SPAN, TRACE, at_once, exporting_to, hex, tenants},
};

const GATEWAY_SERVER: &str = "hookgate.gateway.v1.ExtensionPointService/BeforeToolCall";
/// The name of the gateway's client span and of the plugin's server span.
const PLUGIN_CALL: &str = "hookgate.plugin.v1.PluginService/BeforeToolCall";
const SERVER_KIND: i32 = 2;

/// An author's plugin with telemetry and these environment variables.
pub(super) async fn traced_plugin(environment: &[(&str, &str)]) -> PluginProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_traced-plugin"));
    command.envs(environment.iter().copied());
    PluginProcess::run(command).await
}

/// A gateway that calls the plugin `name` at `address`.
fn calling(setup: Setup, name: &str, address: &str) -> Setup {
    setup.set("/plugins", json!([{ "name": name, "endpoint": address }])).binding(name, 10)
}

/// A call by the SDK's agent, inside a span of the agent.
async fn traced_call(gateway: &Gateway) {
    let parent = SpanContext::new(
        TraceId::from_hex(TRACE).unwrap(),
        SpanId::from_hex(AGENT_SPAN).unwrap(),
        TraceFlags::SAMPLED,
        true,
        TraceState::default(),
    );
    let token = hookgate_sdk::agent::Token::fixed(&token("acme")).unwrap();
    let agent = Agent::new(&format!("http://{}", gateway.data_addr()), token).unwrap();
    let call =
        BeforeToolCallPayload { tool_name: "fs.read".into(), args: "null".into(), ..Default::default() };
    let call = agent.before_tool_call(call).with_context(Context::new().with_remote_span_context(parent));
    call.await.expect("the plugin allows it");
}

/// The span with this name from the gateway or from the plugin.
fn span<'a>(received: &'a Received, name: &str, is_server: bool) -> Option<&'a Span> {
    received.spans.iter().find(|span| span.name == name && (span.kind == SERVER_KIND) == is_server)
}

#[tokio::test]
async fn a_call_is_one_trace_from_the_agents_span_to_the_spans_and_lines_of_the_plugin() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = Collector::start().await;
        let plugin = traced_plugin(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_BLRP_SCHEDULE_DELAY", "20"),
        ])
        .await;
        let setup = exporting_to(tenants(), &collector);
        let gateway = calling(setup, "traced", &plugin.address).start().await;
        traced_call(&gateway).await;

        let line = "the rules allow it";
        let received = collector
            .wait_until(|received| {
                let is_exported = |name, is_server| span(received, name, is_server).is_some();
                is_exported(GATEWAY_SERVER, true)
                    && is_exported(PLUGIN_CALL, true)
                    && is_exported(PLUGIN_CALL, false)
                    && is_exported("rules", false)
                    && received.log_of(line).is_some()
            })
            .await;
        let of = |name, is_server| span(&received, name, is_server).expect("waited for");
        let (server, client) = (of(GATEWAY_SERVER, true), of(PLUGIN_CALL, false));
        let (called, rules) = (of(PLUGIN_CALL, true), of("rules", false));
        assert_eq!(hex(&server.parent_span_id), AGENT_SPAN, "{protocol}");
        assert_eq!(client.parent_span_id, server.span_id, "{protocol}");
        assert_eq!(called.parent_span_id, client.span_id, "the plugin's span is the client span's child");
        assert_eq!(rules.parent_span_id, called.span_id, "the author's span is the call's child");
        for span in [server, client, called, rules] {
            assert_eq!(hex(&span.trace_id), TRACE, "{}", span.name);
        }
        let said = attributes(&called.attributes);
        assert_eq!(said["hookgate.plugin.name"], "traced");
        assert_eq!(said["rpc.response.status_code"], "OK");
        let record = received.log_of(line).expect("waited for");
        assert_eq!((&record.trace_id, &record.span_id), (&called.trace_id, &called.span_id));
        assert_eq!(attributes(&record.attributes)["tool"], "fs.read");
        plugin.wait_for(line).await; // it is on standard error too
    }
}

#[tokio::test]
async fn a_reference_plugin_is_part_of_the_trace_too() {
    let collector = Collector::start().await;
    let directory = tempfile::tempdir().unwrap();
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint()),
        ("OTEL_SERVICE_NAME", "our-tenant-auth"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ];
    let listen = unix(directory.path(), "tenant-auth");
    let plugin = PluginProcess::reference("tenant-auth", &listen, &environment).await;
    let setup = Gateway::with()
        .tenant_with("acme", &json!({ "config": { "tenant-auth": { "allowed_tools": ["*"] } } }));
    let setup = calling(exporting_to(setup, &collector), "tenant-auth", &plugin.address);
    let gateway = setup.start().await;
    traced_call(&gateway).await;
    let received = collector
        .wait_until(|received| {
            span(received, PLUGIN_CALL, true).is_some() && span(received, PLUGIN_CALL, false).is_some()
        })
        .await;
    let (called, client) = (span(&received, PLUGIN_CALL, true), span(&received, PLUGIN_CALL, false));
    let (called, client) = (called.expect("waited for"), client.expect("waited for"));
    assert_eq!(hex(&called.trace_id), TRACE);
    assert_eq!(called.parent_span_id, client.span_id);
    assert_eq!(attributes(&called.attributes)["hookgate.plugin.name"], "tenant-auth");
    assert!(received.services.contains("our-tenant-auth"), "{:?}", received.services);
}

#[tokio::test]
async fn without_a_collector_a_plugin_works_and_prints() {
    let directory = tempfile::tempdir().unwrap();
    let listen = unix(directory.path(), "audit-log");
    let reference = PluginProcess::reference("audit-log", &listen, &[]).await;
    let mut plugin = traced_plugin(&[]).await;
    let setup = tenants().set(
        "/plugins",
        json!([
            { "name": "traced", "endpoint": plugin.address },
            { "name": "audit-log", "endpoint": reference.address, "config": { "path": "/dev/null" } },
        ]),
    );
    let gateway = setup.binding("traced", 10).binding("audit-log", 20).start().await;
    traced_call(&gateway).await;
    let line = plugin.wait_for("the rules allow it").await;
    assert_eq!((&line["level"], &line["tool"]), (&json!("INFO"), &json!("fs.read")));
    assert!(plugin.terminate().await.success());
    plugin.wait_for("plugin stopped").await;
}

#[tokio::test]
async fn what_is_queued_at_the_plugins_end_is_sent_and_a_hanging_collector_delays_the_end_by_seconds() {
    for is_hanging in [false, true] {
        let collector = Collector::start().await;
        collector.hang(is_hanging);
        // Nothing is due for an hour.
        let mut plugin = traced_plugin(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
            ("OTEL_BLRP_SCHEDULE_DELAY", "3600000"),
        ])
        .await;
        let gateway = calling(at_once(tenants()), "traced", &plugin.address).start().await;
        traced_call(&gateway).await;
        assert!(gateway.stop().await.code == Some(0));
        let since = Instant::now();
        assert!(plugin.terminate().await.success());
        assert!(
            since.elapsed() < Duration::from_secs(4),
            "the export held the end up: {:?}",
            since.elapsed()
        );
        if is_hanging {
            collector.wait_for_exports(2).await; // both signals, so the collector was really used
        } else {
            let received = collector.received();
            assert!(
                span(&received, PLUGIN_CALL, true).is_some() && span(&received, "rules", false).is_some()
            );
            assert!(received.log_of("plugin stopped").is_some(), "{:#?}", received.logs);
            let foreign = received.spans.iter().find(|span| !span.name.contains("hookgate.plugin.v1"));
            assert_eq!(foreign.map(|span| &*span.name), Some("rules"), "the exporters are not traced");
        }
    }
}

#[tokio::test]
async fn a_variable_that_cannot_be_used_ends_the_start_and_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_traced-plugin"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(20), output).await.expect("it ends").unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{said}");
}
