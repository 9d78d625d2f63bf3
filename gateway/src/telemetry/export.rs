//! Exports telemetry over OTLP if an endpoint is configured, and always as Prometheus text. Exporters run on
//! their own threads with bounded queues: a slow, unreachable or faulty collector costs telemetry and nothing
//! else.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    LogExporter, MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _, tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{
    Resource, logs::SdkLoggerProvider, metrics::SdkMeterProvider, trace::SdkTracerProvider,
};
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tower::BoxError;

use super::otlp_http::TokioHttpClient;
use crate::{
    config::{self, DialPolicy, OtlpProtocol},
    net::egress_resolver::{EgressConnector, EgressResolver},
};

/// Timeout of one export. Meanwhile the queue fills, and what doesn't fit is dropped.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The SDK providers of all signals.
pub(super) struct Providers {
    /// `None` if spans aren't exported.
    pub(super) tracer: Option<SdkTracerProvider>,
    pub(super) meter: SdkMeterProvider,
    pub(super) logger: Option<SdkLoggerProvider>,
    /// The metrics that `/metrics` shows.
    pub(super) registry: prometheus::Registry,
}

impl Providers {
    /// Collects and exports nothing.
    pub(super) fn none() -> Self {
        let (meter, registry) = (SdkMeterProvider::default(), prometheus::Registry::new());
        Providers { tracer: None, meter, logger: None, registry }
    }

    /// As configured. `instance` identifies this process. Connects only once there is something to send.
    ///
    /// # Errors
    /// One sentence that says what is wrong with the endpoint.
    pub(super) fn new(settings: &config::Telemetry, instance: &str) -> Result<Self, String> {
        let resource = Resource::builder()
            .with_service_name("hookgate")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()))
            .build();
        let registry = prometheus::Registry::new();
        let prometheus = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()
            .map_err(|error| format!("Prometheus text can't be set up: {error}"))?;
        let meter = SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(prometheus);
        let Some(exporters) = exporters(settings)? else {
            return Ok(Providers { tracer: None, meter: meter.build(), logger: None, registry });
        };
        let tracer = SdkTracerProvider::builder().with_resource(resource.clone());
        let logger = SdkLoggerProvider::builder().with_resource(resource);
        Ok(Providers {
            tracer: Some(tracer.with_batch_exporter(exporters.spans).build()),
            meter: meter.with_periodic_exporter(exporters.metrics).build(),
            logger: Some(logger.with_batch_exporter(exporters.logs).build()),
            registry,
        })
    }

    /// Only says what is wrong with the endpoint: nothing is collected, nothing is dialled.
    pub(super) fn dry_run(settings: &config::Telemetry) -> Result<Self, String> {
        exporters(settings)?;
        Ok(Providers::none())
    }

    /// Flushes and shuts down. Returns after `limit` at the latest, finished or not.
    pub(super) async fn shutdown(&self, limit: Duration) {
        let (tracer, meter, logger) = (self.tracer.clone(), self.meter.clone(), self.logger.clone());
        let (done, all_done) = oneshot::channel::<()>();
        // Separate threads, because a runtime waits for its blocking tasks when it shuts down, and these may
        // hang.
        let ends: [Box<dyn FnOnce() + Send>; 3] = [
            Box::new(move || drop(tracer.map(|tracer| tracer.shutdown_with_timeout(limit)))),
            Box::new(move || drop(meter.shutdown_with_timeout(limit))),
            Box::new(move || drop(logger.map(|logger| logger.shutdown_with_timeout(limit)))),
        ];
        std::thread::spawn(move || {
            let threads = ends.map(std::thread::spawn);
            // A panicked thread has nothing left to send.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            drop(done);
        });
        // Nothing is ever sent: the channel closes when all threads have ended.
        let _ = tokio::time::timeout(limit, all_done).await;
    }
}

struct Exporters {
    spans: SpanExporter,
    metrics: MetricExporter,
    logs: LogExporter,
}

/// `None` if no endpoint is configured.
fn exporters(settings: &config::Telemetry) -> Result<Option<Exporters>, String> {
    let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
    let exporters = match settings.otlp_protocol {
        OtlpProtocol::Grpc => over_grpc(endpoint),
        OtlpProtocol::Http => over_http(endpoint.trim_end_matches('/')),
    };
    exporters.map(Some).map_err(|error| format!("`telemetry.otlp_endpoint` can't be used: {error}"))
}

fn over_grpc(endpoint: &str) -> Result<Exporters, BoxError> {
    let channel = grpc_channel(endpoint)?;
    macro_rules! exporter {
        ($exporter:ident) => {
            $exporter::builder()
                .with_tonic()
                .with_channel(channel.clone())
                .with_timeout(EXPORT_TIMEOUT)
                .build()?
        };
    }
    Ok(Exporters {
        spans: exporter!(SpanExporter),
        metrics: exporter!(MetricExporter),
        logs: exporter!(LogExporter),
    })
}

/// Connects with the first export, and to no address that `egress` denies.
fn grpc_channel(endpoint: &str) -> Result<Channel, BoxError> {
    let mut http = HttpConnector::new_with_resolver(EgressResolver::new(DialPolicy::Any));
    http.enforce_http(false);
    http.set_nodelay(true);
    // The exporters have no time-out of their own for a channel that is given to them.
    let channel = Channel::from_shared(endpoint.to_owned())?;
    let mut channel = channel.timeout(EXPORT_TIMEOUT).connect_timeout(EXPORT_TIMEOUT);
    if endpoint.starts_with("https:") {
        channel = channel.tls_config(ClientTlsConfig::new().with_enabled_roots())?;
    }
    Ok(channel.connect_with_connector_lazy(EgressConnector::new(DialPolicy::Any, http)))
}

fn over_http(base: &str) -> Result<Exporters, BoxError> {
    let client = TokioHttpClient::new(EXPORT_TIMEOUT);
    macro_rules! exporter {
        ($exporter:ident, $path:literal) => {
            $exporter::builder()
                .with_http()
                .with_http_client(client.clone())
                .with_endpoint(format!("{base}{}", $path))
                .with_timeout(EXPORT_TIMEOUT)
                .build()?
        };
    }
    Ok(Exporters {
        spans: exporter!(SpanExporter, "/v1/traces"),
        metrics: exporter!(MetricExporter, "/v1/metrics"),
        logs: exporter!(LogExporter, "/v1/logs"),
    })
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;
    use crate::core::error_chain::error_chain;

    #[tokio::test]
    async fn a_metadata_address_is_not_dialled_however_it_is_written() {
        for host in ["169.254.169.254", "2852039166", "0xa9fea9fe", "[fe80::1]"] {
            let channel = grpc_channel(&format!("http://{host}:4317")).expect("a channel");
            let error = channel.oneshot(http::Request::default()).await.expect_err("a denied address");
            assert!(error_chain(&error).contains("is a link-local"), "{host}: {}", error_chain(&error));
        }
    }
}
