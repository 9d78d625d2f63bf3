//! Spans and log lines of a plugin over OTLP, as part of the trace of the agent that caused the call. Needs the cargo
//! feature `otel`.
//!
//! One line in `main` turns it on. Keep the guard until the end of `main`: dropping it sends what is still queued.
//!
//! ```no_run
//! # use hookgate_sdk::*;
//! # struct NoShell;
//! # impl Plugin for NoShell {
//! #     const NAME: &'static str = "no-shell";
//! #     const VERSION: &'static str = "1.0.0";
//! #     type Config = NoConfig;
//! #     type TenantConfig = NoConfig;
//! #     fn points() -> Vec<Offer> { vec![Point::BeforeToolCall.read()] }
//! #     async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> { Ok(NoShell) }
//! # }
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let _telemetry = hookgate_sdk::telemetry::init::<NoShell>()?;
//!     serve::<NoShell>("unix:///tmp/no-shell.sock").await?;
//!     Ok(())
//! }
//! ```
//!
//! # Spans
//!
//! The SDK opens a span for each call of a gateway and runs your code inside it. The span is a child of the gateway's span,
//! which arrives as `traceparent` and `tracestate`. Spans that you open with `tracing`, by `#[tracing::instrument]` or
//! `tracing::info_span!`, become its children. A task that you start with `tokio::spawn` is outside the span, unless you
//! add `.in_current_span()` (`tracing::Instrument`).
//!
//! | attribute of the call's span | value |
//! |---|---|
//! | `rpc.system.name` | `grpc` |
//! | `rpc.method` | such as `hookgate.plugin.v1.PluginService/BeforeToolCall`; also the span's name |
//! | `rpc.response.status_code` | such as `OK`; `CANCELLED` if the gateway gave the call up |
//! | `error.type` | the status, if the plugin failed. A cancel is not a failure: its status is `OK` |
//! | `hookgate.plugin.name` | [`Plugin::NAME`] |
//! | `hookgate.point` | such as `before_tool_call`; absent for OnHook, Describe, Initialize, Release and Shutdown |
//! | `hookgate.hook` | such as `turn_end`; for OnHook alone |
//!
//! # Log lines
//!
//! Events of `tracing`, such as `tracing::info!`, go to standard error: as text on a terminal, as one JSON object a line
//! elsewhere. They are also exported as OTLP log records. A record of a line that was written during a call has the trace
//! id and the span id of the call. `RUST_LOG` sets the level of lines and spans; the default is `info`.
//!
//! # Configuration
//!
//! OpenTelemetry's standard environment variables. If no endpoint is set, nothing is exported, and lines go to standard
//! error only.
//!
//! | variable | meaning |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | where the collector listens, such as `http://127.0.0.1:4318`; `_TRACES_ENDPOINT` and `_LOGS_ENDPOINT` instead of `_ENDPOINT` set one signal alone |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL` | `http/protobuf` (the default) or `grpc`, also per signal |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT` | headers of the exports, such as a token; the longest export in milliseconds |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | `service.name`, by default [`Plugin::NAME`], and other attributes of the resource |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | which traces are recorded; by default those that the caller records |
//! | `OTEL_TRACES_EXPORTER`, `OTEL_LOGS_EXPORTER` | `none` turns one signal off |
//! | `OTEL_BSP_*`, `OTEL_BLRP_*` | sizes and delays of the queues of spans and of log records |
//! | `OTEL_SDK_DISABLED` | `true` turns both off |
//!
//! # A program with its own subscriber
//!
//! [`init`] installs the global subscriber of `tracing`, and fails if there is one. A program that installs its own adds
//! [`layer`] to it.
//!
//! # Guarantees
//!
//! - Calls never wait for a collector. Both queues are bounded, and spans and lines that don't fit are dropped.
//! - The exporters don't trace themselves: nothing of hyper, tonic, h2, tower, reqwest, rustls and OpenTelemetry is
//!   exported.
//! - Dropping [`Telemetry`] takes at most 2 s.

mod exporters;
mod filters;
mod resource;
mod stderr;
#[cfg(test)]
mod tests;
mod variables;

use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::{
    logs::SdkLoggerProvider, propagation::TraceContextPropagator, trace::SdkTracerProvider,
};
use tonic::metadata::{AsciiMetadataKey, MetadataMap};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::{
    Layer, layer::SubscriberExt as _, registry::LookupSpan, util::SubscriberInitExt as _,
};

use self::exporters::Exports;
use crate::Plugin;

/// Instrumentation scope of the spans.
const SCOPE: &str = "hookgate_sdk";

/// A layer for a subscriber of `tracing`, made by [`layer`].
pub type BoxedLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A variable has a value that can't be used.
    #[error("`{variable}` can't be used: {reason}")]
    Variable {
        /// The variable's name.
        variable: String,
        /// One sentence.
        reason: String,
    },
    /// An exporter can't be made, such as one to an endpoint that isn't a URL.
    #[error("the OTLP exporter can't be set up: {0}")]
    Exporter(String),
    /// The threads that export can't be started.
    #[error("the threads that export telemetry can't be started: {0}")]
    Threads(#[from] std::io::Error),
    /// The program has a subscriber of its own. Add [`layer`] to it.
    #[error("`tracing` has a global subscriber already: add `hookgate_sdk::telemetry::layer` to it")]
    HasSubscriber,
}

/// Sends what is still queued when it is dropped, which takes at most 2 s. Keep it until the end of `main`.
#[must_use = "dropped at once, it ends the export; bind it to a name such as `_telemetry`"]
#[derive(Debug)]
pub struct Telemetry(Option<Exports>);

impl Telemetry {
    /// Whether an endpoint is configured.
    pub fn is_exporting(&self) -> bool {
        self.0.is_some()
    }
}

/// Writes log lines to standard error, and exports spans and log lines if the environment names an endpoint (see the
/// [module](self)). Call it once, at the start of `main`, inside or outside of a runtime.
///
/// # Errors
/// When a variable can't be used, or `tracing` has a global subscriber.
pub fn init<P: Plugin>() -> Result<Telemetry, TelemetryError> {
    let (layer, telemetry) = layer(P::NAME, P::VERSION)?;
    let subscriber = tracing_subscriber::registry().with(layer).with(stderr::layer());
    subscriber.try_init().map_err(|_| TelemetryError::HasSubscriber)?;
    Ok(telemetry)
}

/// The part of [`init`] that exports, for a program with its own subscriber: `registry().with(layer)`. `service` and
/// `version` are the defaults of `service.name` and `service.version`. `None` if the environment names no endpoint.
///
/// # Errors
/// When a variable can't be used.
pub fn layer<S>(
    service: &'static str,
    version: &'static str,
) -> Result<(Option<BoxedLayer<S>>, Telemetry), TelemetryError>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let Some(exports) = Exports::start(service, version)? else { return Ok((None, Telemetry(None))) };
    let layer = layer_of(exports.tracer.as_ref(), exports.logger.as_ref());
    Ok((Some(layer), Telemetry(Some(exports))))
}

fn layer_of<S>(tracer: Option<&SdkTracerProvider>, logger: Option<&SdkLoggerProvider>) -> BoxedLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let spans = tracer.map(|tracer| spans_layer(tracer).with_filter(filters::exported_spans()).boxed());
    let lines = logger.map(OpenTelemetryTracingBridge::new);
    let lines = lines.map(|lines| lines.with_filter(filters::exported_lines()).boxed());
    spans.into_iter().chain(lines).collect::<Vec<_>>().boxed()
}

/// Entering a span makes its OpenTelemetry context current (context activation, on by default). The bridge
/// for log lines and [`inject`] depend on it.
fn spans_layer<S>(tracer: &SdkTracerProvider) -> OpenTelemetryLayer<S, opentelemetry_sdk::trace::SdkTracer>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    // Source locations, threads and busy times are not part of the conventions, and every span would carry
    // them.
    tracing_opentelemetry::layer()
        .with_tracer(tracer.tracer(SCOPE))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
}

/// Makes the caller's span the parent of `span`. `span` must not have been entered yet, because entering
/// fixes the parent.
pub(crate) fn set_parent(span: &Span, metadata: &MetadataMap) {
    let caller =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &MetadataReader(metadata));
    // This fails only without an exporting layer, in which case there is nothing to set.
    let _ = span.set_parent(caller);
}

/// Writes the current trace context, if any, into the metadata of an outgoing call.
pub(crate) fn inject(metadata: &mut MetadataMap) {
    let current = Context::current();
    if current.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&current, &mut MetadataWriter(metadata));
    }
}

struct MetadataReader<'a>(&'a MetadataMap);

impl Extractor for MetadataReader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        // The propagator reads its keys by name.
        Vec::new()
    }
}

struct MetadataWriter<'a>(&'a mut MetadataMap);

impl Injector for MetadataWriter<'_> {
    fn set(&mut self, key: &str, value: String) {
        let (Ok(key), Ok(value)) = (key.parse::<AsciiMetadataKey>(), value.parse()) else { return };
        self.0.insert(key, value);
    }
}
