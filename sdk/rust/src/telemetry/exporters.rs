//! The exporters and their threads. They have their own runtime, so that the last export works even if the
//! plugin's runtime has a single thread, which is blocked waiting for it.

use std::{sync::mpsc, thread, time::Duration};

use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, SpanExporter, WithTonicConfig as _,
    tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{logs::SdkLoggerProvider, trace::SdkTracerProvider};
use tokio::runtime::{Builder, Runtime};

use super::{
    TelemetryError,
    resource::resource,
    variables::{self, Signal, Transport},
};

/// How long the end of the plugin waits for the last export. Kubernetes kills a container after 30 s, most
/// of which belong to the calls in flight.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// The signals that are exported. Dropping it sends what is queued.
#[derive(Debug)]
pub(super) struct Exports {
    pub(super) tracer: Option<SdkTracerProvider>,
    pub(super) logger: Option<SdkLoggerProvider>,
    _runtime: OwnRuntime,
}

impl Exports {
    /// Starts what the environment configures; `None` if it names no endpoint. Connects only when there is
    /// something to send.
    pub(super) fn start(
        service: &'static str,
        version: &'static str,
    ) -> Result<Option<Self>, TelemetryError> {
        let traces = variables::transport(Signal::Traces, variables::read)?;
        let logs = variables::transport(Signal::Logs, variables::read)?;
        if traces.is_none() && logs.is_none() {
            return Ok(None);
        }
        let runtime = OwnRuntime::start()?;
        let entered = runtime.enter();
        let resource = resource(service, version);
        let tracer = traces.map(spans_exporter).transpose()?.map(|exporter| {
            SdkTracerProvider::builder().with_resource(resource.clone()).with_batch_exporter(exporter).build()
        });
        let logger = logs.map(lines_exporter).transpose()?.map(|exporter| {
            SdkLoggerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build()
        });
        drop(entered);
        Ok(Some(Exports { tracer, logger, _runtime: runtime }))
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        let (tracer, logger) = (self.tracer.take(), self.logger.take());
        let (done, all_done) = mpsc::channel::<()>();
        let also_done = done.clone();
        thread::spawn(move || {
            drop(tracer.map(|tracer| tracer.shutdown_with_timeout(LAST_EXPORT)));
            drop(done);
        });
        thread::spawn(move || {
            drop(logger.map(|logger| logger.shutdown_with_timeout(LAST_EXPORT)));
            drop(also_done);
        });
        // Nothing is ever sent; the channel closes when both have ended.
        let _ = all_done.recv_timeout(LAST_EXPORT);
    }
}

/// A runtime that may be dropped inside another one.
#[derive(Debug)]
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn start() -> Result<Self, TelemetryError> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("otlp").enable_all().build()?;
        Ok(OwnRuntime(Some(runtime)))
    }

    fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.0.as_ref().expect("it is taken when this is dropped").enter()
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

macro_rules! exporter {
    ($exporter:ident, $transport:expr) => {{
        let built = match $transport {
            Transport::Http => $exporter::builder().with_http().build(),
            Transport::Grpc { tls: false } => $exporter::builder().with_tonic().build(),
            Transport::Grpc { tls: true } => {
                let roots = ClientTlsConfig::new().with_enabled_roots();
                $exporter::builder().with_tonic().with_tls_config(roots).build()
            }
        };
        built.map_err(unusable)
    }};
}

fn spans_exporter(transport: Transport) -> Result<SpanExporter, TelemetryError> {
    exporter!(SpanExporter, transport)
}

fn lines_exporter(transport: Transport) -> Result<LogExporter, TelemetryError> {
    exporter!(LogExporter, transport)
}

fn unusable(error: ExporterBuildError) -> TelemetryError {
    TelemetryError::Exporter(error.to_string())
}
