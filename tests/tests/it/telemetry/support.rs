//! Shared by the telemetry tests: gateways that export immediately, and agents with a trace context.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer, path},
    collector::Collector,
    gateway::{Gateway, Setup},
};
use serde_json::{Value, json};

pub(crate) const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

/// The agent's trace and span.
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const AGENT_SPAN: &str = "b7ad6b7169203331";
pub(crate) const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub(crate) fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": { "path": "/etc" }, "call_id": "c1" })
}

/// A gateway with the tenants acme and globex.
pub(crate) fn tenants() -> Setup {
    Gateway::with().tenant("acme").tenant("globex")
}

/// Exports everything to this collector immediately.
pub(crate) fn exporting_to(setup: Setup, collector: &Collector) -> Setup {
    at_once(setup).set("/telemetry/otlp_endpoint", collector.endpoint())
}

/// Exports every few milliseconds.
pub(crate) fn at_once(setup: Setup) -> Setup {
    setup
        .environment("OTEL_BSP_SCHEDULE_DELAY", "20")
        .environment("OTEL_BLRP_SCHEDULE_DELAY", "20")
        .environment("OTEL_METRIC_EXPORT_INTERVAL", "100")
}

/// A call that is part of the agent's trace.
pub(crate) async fn traced_call(agent: &HttpAgent) -> HttpAnswer {
    let request = agent.request(http::Method::POST, path(POINT)).header("content-type", "application/json");
    let request = request.header("traceparent", PARENT).header("tracestate", "vendor=1");
    let body = json!({ "payload": payload() }).to_string();
    HttpAgent::send(request.body(body)).await.expect("the gateway answers")
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
