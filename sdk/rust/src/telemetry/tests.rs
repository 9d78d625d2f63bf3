use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_proto::plugin::v1::{
    self as wire, plugin_service_client::PluginServiceClient, plugin_service_server::PluginServiceServer,
};
use opentelemetry::trace::{SpanId, SpanKind, Status as SpanStatus, TraceId};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    logs::{LogBatch, LogExporter},
    trace::{SpanData, SpanExporter},
};
use tonic::Request;
use tracing::Instrument as _;

use super::*;
use crate::{
    Answer, BeforeToolCallPatch, HookPayload, PluginError, PluginHost, Reply, host,
    tool_rule::{self, ToolRule},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const METHOD: &str = "hookgate.plugin.v1.PluginService/BeforeToolCall";

#[derive(Default)]
struct Guard;

impl ToolRule for Guard {
    const NAME: &'static str = "guard";

    async fn answer(&self, tool: &str) -> Answer<BeforeToolCallPatch> {
        tracing::info!(target: "hyper::client", "of the exporters");
        tracing::error!("in the call");
        tokio::task::yield_now().await;
        let rules = async { tracing::info!("in the rules") };
        rules.instrument(tracing::info_span!("rules", tool)).await;
        match tool {
            "hang" => std::future::pending().await,
            "unknown" => Err(PluginError::invalid("no such tool")),
            "fail" => Err(PluginError::internal("the rules are gone")),
            _ => Ok(Reply::proceed()),
        }
    }
}

/// A log record: its text, and its trace and span id.
type Line = (String, Option<(TraceId, SpanId)>);

/// Collects what is exported.
#[derive(Debug, Clone, Default)]
struct CapturedTelemetry {
    spans: Arc<Mutex<Vec<SpanData>>>,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl SpanExporter for CapturedTelemetry {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.spans.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl LogExporter for CapturedTelemetry {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        for (record, _) in batch.iter() {
            let text = record.body().map(|body| format!("{body:?}")).unwrap_or_default();
            let ids = record.trace_context().map(|context| (context.trace_id, context.span_id));
            self.lines.lock().unwrap().push((text, ids));
        }
        Ok(())
    }
}

impl CapturedTelemetry {
    fn span(&self, name: &str) -> SpanData {
        let spans = self.spans.lock().unwrap();
        spans.iter().find(|span| span.name == name).cloned().expect("the span was exported")
    }

    fn ids_of_line(&self, text: &str) -> Option<(TraceId, SpanId)> {
        let lines = self.lines.lock().unwrap();
        lines.iter().find(|(line, _)| line.contains(text)).expect("the line was exported").1
    }
}

type Client<P> = PluginServiceClient<PluginServiceServer<PluginHost<P>>>;

/// Captures the telemetry of these calls of a plugin that was initialised as `digest`.
async fn captured<P: Plugin>(calls: impl AsyncFnOnce(Client<P>)) -> CapturedTelemetry {
    let kept = CapturedTelemetry::default();
    let tracer = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let logger = SdkLoggerProvider::builder().with_simple_exporter(kept.clone()).build();
    let subscriber = tracing_subscriber::registry().with(layer_of(Some(&tracer), Some(&logger)));
    let _subscriber = tracing::subscriber::set_default(subscriber);
    let mut client = PluginServiceClient::new(host::service::<P>());
    let initialize = wire::InitializeRequest { config_digest: "digest".into(), ..Default::default() };
    client.initialize(initialize).await.expect("it starts");
    calls(client).await;
    kept
}

/// The request of a gateway in the trace [`TRACE`].
fn traced<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{CALLER}-01").parse().expect("metadata");
    request.metadata_mut().insert("traceparent", parent);
    request.metadata_mut().insert("tracestate", "vendor=1".parse().expect("metadata"));
    request
}

/// Calls these tools, each with the timeout `patience`.
async fn calls(tools: &[&str], patience: Duration) -> CapturedTelemetry {
    captured::<Guard>(async |mut client| {
        for tool in tools {
            let request = traced(tool_rule::request("digest", tool));
            let _ = tokio::time::timeout(patience, client.before_tool_call(request)).await;
        }
    })
    .await
}

fn attributes(span: &SpanData) -> BTreeMap<String, String> {
    let attributes = span.attributes.iter();
    attributes.map(|attribute| (attribute.key.to_string(), attribute.value.to_string())).collect()
}

fn expected(attributes: &[(&str, &str)]) -> BTreeMap<String, String> {
    attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_call_is_a_span_in_its_callers_trace_and_the_plugins_own_spans_are_its_children() {
    let kept = calls(&["fs.read"], Duration::from_secs(20)).await;
    let call = kept.span(METHOD);
    assert_eq!(call.span_context.trace_id(), TraceId::from_hex(TRACE).unwrap());
    assert_eq!(call.parent_span_id, SpanId::from_hex(CALLER).unwrap());
    assert_eq!(call.span_context.trace_state().header(), "vendor=1");
    assert_eq!((call.span_kind.clone(), call.status.clone()), (SpanKind::Server, SpanStatus::Unset));
    assert!(call.parent_span_is_remote && call.events.is_empty(), "{call:?}");
    let said = expected(&[
        ("rpc.system.name", "grpc"),
        ("rpc.method", METHOD),
        ("rpc.response.status_code", "OK"),
        ("hookgate.plugin.name", "guard"),
        ("hookgate.point", "before_tool_call"),
    ]);
    assert_eq!(attributes(&call), said);

    let rules = kept.span("rules");
    assert_eq!(rules.parent_span_id, call.span_context.span_id());
    assert_eq!(rules.span_context.trace_id(), call.span_context.trace_id());
    assert_eq!(attributes(&rules), expected(&[("tool", "fs.read")]));

    let initialize = kept.span("hookgate.plugin.v1.PluginService/Initialize");
    assert_eq!(initialize.parent_span_id, SpanId::INVALID, "its caller sent no trace context");
    assert!(!attributes(&initialize).contains_key("hookgate.point"));
}

#[tokio::test]
async fn a_line_has_the_ids_of_its_span_and_lines_of_the_exporters_are_not_exported() {
    let kept = calls(&["fs.read"], Duration::from_secs(20)).await;
    let (call, rules) = (kept.span(METHOD).span_context, kept.span("rules").span_context);
    assert_eq!(kept.ids_of_line("in the call"), Some((call.trace_id(), call.span_id())));
    assert_eq!(kept.ids_of_line("in the rules"), Some((rules.trace_id(), rules.span_id())));
    assert_eq!(kept.lines.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_failed_call_has_its_status_and_a_callers_mistake_is_no_error_of_the_plugin() {
    for (tool, status, error) in [("fail", "INTERNAL", true), ("unknown", "INVALID_ARGUMENT", false)] {
        let kept = calls(&[tool], Duration::from_secs(20)).await;
        let call = kept.span(METHOD);
        let said = attributes(&call);
        assert_eq!(said["rpc.response.status_code"], status);
        assert_eq!(said.get("error.type").map(String::as_str), error.then_some(status));
        assert_eq!(matches!(call.status, SpanStatus::Error { .. }), error, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_is_a_span_with_the_status_cancelled() {
    let kept = calls(&["hang"], Duration::from_millis(50)).await;
    let call = kept.span(METHOD);
    assert_eq!(attributes(&call)["rpc.response.status_code"], "CANCELLED");
    assert_eq!(call.status, SpanStatus::Unset);
}

#[tokio::test]
async fn a_call_at_a_hook_is_a_span_that_names_the_hook_and_no_point() {
    const ON_HOOK: &str = "hookgate.plugin.v1.PluginService/OnHook";
    let kept = captured::<Guard>(async |mut client| {
        let payload = HookPayload { hook: "recall".to_owned(), ..Default::default() };
        let request = wire::OnHookRequest { payload: Some(payload), ..Default::default() };
        client.on_hook(traced(request)).await.expect_err("it offers no hook");
    })
    .await;
    let call = kept.span(ON_HOOK);
    assert_eq!(call.parent_span_id, SpanId::from_hex(CALLER).unwrap());
    let said = expected(&[
        ("rpc.system.name", "grpc"),
        ("rpc.method", ON_HOOK),
        ("rpc.response.status_code", "UNIMPLEMENTED"),
        ("error.type", "UNIMPLEMENTED"),
        ("hookgate.plugin.name", "guard"),
        ("hookgate.hook", "recall"),
    ]);
    assert_eq!(attributes(&call), said);
}
