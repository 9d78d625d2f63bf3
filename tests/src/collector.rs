//! An OTLP collector on a real socket, for gRPC and HTTP. It records what it receives, and can hang, stop
//! and come back at the same address.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{
            ExportLogsServiceRequest, ExportLogsServiceResponse,
            logs_service_server::{LogsService, LogsServiceServer},
        },
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{AnyValue, KeyValue, any_value},
    logs::v1::LogRecord,
    trace::v1::Span,
};
use prost::Message;
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tonic::{Status, body::Body, service::Routes};
use tower::ServiceExt as _;

use crate::port::{ReservedPort, ShutdownListener};

/// The timeout of all waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// Everything received so far.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// Ended spans.
    pub spans: Vec<Span>,
    /// Log records.
    pub logs: Vec<LogRecord>,
    /// Complete exports of metrics.
    pub metrics: Vec<ExportMetricsServiceRequest>,
    /// The `service.name` of each process that exported spans.
    pub services: BTreeSet<String>,
}

impl Received {
    /// Names of the metrics.
    pub fn metric_names(&self) -> Vec<&str> {
        let scopes = self.metrics.iter().flat_map(|export| &export.resource_metrics);
        let scopes = scopes.flat_map(|resource| &resource.scope_metrics);
        scopes.flat_map(|scope| &scope.metrics).map(|metric| metric.name.as_str()).collect()
    }

    /// The first log record whose text contains this.
    pub fn log_of(&self, text: &str) -> Option<&LogRecord> {
        self.logs.iter().find(|log| match log.body.as_ref().and_then(|body| body.value.as_ref()) {
            Some(any_value::Value::StringValue(body)) => body.contains(text),
            _ => false,
        })
    }

    /// The span with this name and this attribute value.
    pub fn span(&self, name: &str, attribute: &str, value: &str) -> Option<&Span> {
        self.spans.iter().find(|span| {
            span.name == name && attributes(&span.attributes).get(attribute).is_some_and(|is| is == value)
        })
    }
}

/// Attributes as text.
pub fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(&attribute.value))).collect()
}

#[derive(Default)]
struct Shared {
    received: Mutex<Received>,
    changes: watch::Sender<u64>,
    hanging: watch::Sender<bool>,
    /// The number of exports received, answered or not.
    exports: watch::Sender<u64>,
}

impl Shared {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().expect("no holder of this lock panics")
    }

    async fn take(&self, record: impl FnOnce(&mut Received)) {
        self.exports.send_modify(|exports| *exports += 1);
        let mut hanging = self.hanging.subscribe();
        hanging.wait_for(|hanging| !hanging).await.expect("it holds the sender itself");
        record(&mut self.received());
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// A collector. It stops on drop.
pub struct Collector {
    shared: Arc<Shared>,
    /// The address, which stays reserved while it is stopped.
    reserved: ReservedPort,
    accepting: Option<JoinHandle<()>>,
}

impl Collector {
    /// Listens on a free port.
    pub async fn start() -> Self {
        let reserved = ReservedPort::new().expect("a port is free");
        let mut collector = Collector { shared: Arc::default(), reserved, accepting: None };
        collector.come_back().await;
        collector
    }

    /// The value for `telemetry.otlp_endpoint`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.reserved.address())
    }

    /// Closes the port and all connections.
    pub async fn die(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // The task was aborted, and its connections with it.
            let _ = accepting.await;
        }
    }

    /// Listens again at the same address.
    pub async fn come_back(&mut self) {
        let listener = ShutdownListener::bind(self.reserved.address()).await.expect("the port is ours");
        self.accept(listener);
    }

    /// Starts or stops hanging. When it stops, waiting requests are answered too.
    pub fn hang(&self, hanging: bool) {
        self.shared.hanging.send_replace(hanging);
    }

    /// Everything so far.
    pub fn received(&self) -> Received {
        self.shared.received().clone()
    }

    /// Waits until `condition` holds for everything received so far.
    ///
    /// # Panics
    /// After 20 s.
    pub async fn wait_until(&self, mut condition: impl FnMut(&Received) -> bool) -> Received {
        let mut changes = self.shared.changes.subscribe();
        let met = timeout(PATIENCE, changes.wait_for(|_| condition(&self.shared.received()))).await.is_ok();
        assert!(met, "not exported in time: {:#?}", self.received());
        self.received()
    }

    /// Waits until at least this many exports have arrived, answered or not.
    ///
    /// # Panics
    /// After 20 s.
    pub async fn wait_for_exports(&self, least: u64) {
        let mut exports = self.shared.exports.subscribe();
        let came = timeout(PATIENCE, exports.wait_for(|exports| *exports >= least)).await;
        came.expect("exports come in time").expect("it holds the sender itself");
    }

    fn accept(&mut self, listener: ShutdownListener) {
        let shared = Arc::clone(&self.shared);
        self.accepting = Some(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                    // The error doesn't matter; tests check what arrived.
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        }));
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// Why a request was not answered; ends the connection.
type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Failed> {
    let signal = request.uri().path().strip_prefix("/v1/").map(str::to_owned);
    let Some(signal) = signal else {
        let routes = Routes::new(TraceServiceServer::from_arc(Arc::clone(&shared)))
            .add_service(MetricsServiceServer::from_arc(Arc::clone(&shared)))
            .add_service(LogsServiceServer::from_arc(shared));
        return Ok(routes.oneshot(request).await?);
    };
    let body = request.into_body().collect().await?.to_bytes();
    match &*signal {
        "traces" => take_spans(&shared, ExportTraceServiceRequest::decode(body)?).await,
        "metrics" => shared.take_metrics(ExportMetricsServiceRequest::decode(body)?).await,
        "logs" => take_logs(&shared, ExportLogsServiceRequest::decode(body)?).await,
        other => panic!("no such signal: {other}"),
    }
    Ok(Response::new(Body::new(Full::default())))
}

async fn take_spans(shared: &Shared, export: ExportTraceServiceRequest) {
    let resources = export.resource_spans.iter().filter_map(|spans| spans.resource.as_ref());
    let services = resources.filter_map(|resource| attributes(&resource.attributes).remove("service.name"));
    let services: Vec<_> = services.collect();
    let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let spans: Vec<_> = scopes.flat_map(|scope| scope.spans).collect();
    let record = |received: &mut Received| {
        received.spans.extend(spans);
        received.services.extend(services);
    };
    shared.take(record).await;
}

async fn take_logs(shared: &Shared, export: ExportLogsServiceRequest) {
    let scopes = export.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    let logs: Vec<_> = scopes.flat_map(|scope| scope.log_records).collect();
    shared.take(|received| received.logs.extend(logs)).await;
}

impl Shared {
    async fn take_metrics(&self, export: ExportMetricsServiceRequest) {
        self.take(|received| received.metrics.push(export)).await;
    }
}

#[tonic::async_trait]
impl TraceService for Shared {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        take_spans(self, request.into_inner()).await;
        Ok(tonic::Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Shared {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, Status> {
        self.take_metrics(request.into_inner()).await;
        Ok(tonic::Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Shared {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, Status> {
        take_logs(self, request.into_inner()).await;
        Ok(tonic::Response::new(Default::default()))
    }
}
