//! Measures calls while tables are published, compared with calls while none are. It runs in this process,
//! through the gateway's whole call path except sockets. Both alternate, so that other load on the machine
//! affects both.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use hookgate::{
    auth::Authenticator,
    config::Config,
    core::block_status::BlockStatuses,
    dataplane::{call::Gateway, http::router},
    invoke::{Invoker, ReplyLimits, Routes},
    routing::RouteTable,
    snapshot::{ConfigSnapshot, EdgeLimits, SnapshotCell},
    telemetry::Telemetry,
};
use http::Request;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{BenchError, closed_loop::histogram, gateway_config, payload::TENANT, scale::Registry};

/// The time between two tables: 20 a second.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(50);
/// How long each side of the comparison runs before the other one's turn.
const PHASE_DURATION: Duration = Duration::from_secs(1);
const REQUEST_BODY: &str =
    r#"{"payload":{"tool_name":"fs.read","args":{"path":"/srv/reports/2026/november/sales.csv"}}}"#;

/// Latencies in microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LatencyComparison {
    tables: usize,
    calls: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    alone_calls: u64,
    alone_p50_us: u64,
    alone_p99_us: u64,
    alone_max_us: u64,
    p99_ratio: f64,
}

impl LatencyComparison {
    /// Compares calls while this many tables were published with calls while none were, in microseconds.
    pub(crate) fn new(tables: usize, beside: &Histogram<u64>, alone: &Histogram<u64>) -> Self {
        let (p99_us, alone_p99_us) = (beside.value_at_quantile(0.99), alone.value_at_quantile(0.99));
        LatencyComparison {
            tables,
            calls: beside.len(),
            p50_us: beside.value_at_quantile(0.5),
            p99_us,
            max_us: beside.max(),
            alone_calls: alone.len(),
            alone_p50_us: alone.value_at_quantile(0.5),
            alone_p99_us,
            alone_max_us: alone.max(),
            p99_ratio: p99_us as f64 / alone_p99_us.max(1) as f64,
        }
    }
}

impl fmt::Display for LatencyComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LatencyComparison { tables, calls, p50_us, p99_us, max_us, p99_ratio, .. } = self;
        let LatencyComparison { alone_calls, alone_p50_us, alone_p99_us, alone_max_us, .. } = self;
        write!(f, "{tables} tables published, p50/p99/max {p50_us}/{p99_us}/{max_us} us of {calls} calls; ")?;
        write!(
            f,
            "none, {alone_p50_us}/{alone_p99_us}/{alone_max_us} us of {alone_calls}; p99 ratio {p99_ratio:.2}"
        )
    }
}

/// Measures for `time`.
pub(crate) async fn run(mut registry: Registry, time: Duration) -> Result<LatencyComparison, BenchError> {
    let telemetry = Telemetry::start(&registry.config)?;
    let auth = Authenticator::new(&registry.config.auth).map_err(|wrong| format!("{wrong:?}"))?;
    let parts = SnapshotParts { auth: Arc::new(auth), telemetry: telemetry.clone() };
    let snapshot = parts.snapshot(&registry.config, registry.table.clone());
    let snapshots = Arc::new(SnapshotCell::new(snapshot));
    let gateway = Arc::new(Gateway::new(snapshots, telemetry, CancellationToken::new()));
    let token = gateway_config::token(TENANT)?;
    let (mut alone, mut beside) = (histogram()?, histogram()?);
    let (mut tables, mut number) = (0, 0);
    let (begun, turn) = (Instant::now(), PHASE_DURATION.min(time / 2));
    calls(&gateway, &token, Instant::now() + turn).await?;
    while begun.elapsed() < time {
        alone.add(calls(&gateway, &token, Instant::now() + turn).await?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let publishing = {
            let (gateway, parts, stop) = (Arc::clone(&gateway), parts.clone(), Arc::clone(&stop));
            tokio::task::spawn_blocking(move || {
                let first = number;
                let published = publish(&gateway, &parts, &mut registry, &mut number, &stop);
                published.map(|()| (registry, number, number - first))
            })
        };
        let called = calls(&gateway, &token, Instant::now() + turn).await;
        stop.store(true, Ordering::Relaxed);
        let (changed, next, published) = publishing.await??;
        (registry, number) = (changed, next);
        tables += published;
        beside.add(called?)?;
    }
    Ok(LatencyComparison::new(tables, &beside, &alone))
}

/// Publishes a table every 50 ms until `stop`. A previous snapshot is dropped once no call uses it, as in
/// the gateway.
fn publish(
    gateway: &Gateway,
    parts: &SnapshotParts,
    registry: &mut Registry,
    number: &mut usize,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        drop(registry.next(*number)?);
        *number += 1;
        gateway.snapshots.publish(parts.snapshot(&registry.config, registry.table.clone()));
        std::thread::sleep(PUBLISH_INTERVAL.saturating_sub(begun.elapsed()));
    }
    Ok(())
}

/// The parts that all snapshots share.
#[derive(Clone)]
struct SnapshotParts {
    auth: Arc<Authenticator>,
    telemetry: Telemetry,
}

impl SnapshotParts {
    fn snapshot(&self, config: &Arc<Config>, table: RouteTable) -> ConfigSnapshot {
        let limits = &config.limits;
        let routes = Routes {
            table,
            // The calling tenant's chain is empty.
            clients: Vec::new(),
            replies: ReplyLimits::from_limits(limits),
            observed: Arc::new(self.telemetry.clone()),
            abort: CancellationToken::new(),
        };
        ConfigSnapshot {
            config: Arc::clone(config),
            auth: Arc::clone(&self.auth),
            invoker: Invoker::new(routes, limits.budget.0),
            limits: EdgeLimits {
                request: limits.request.in_memory(),
                in_flight: limits.in_flight,
                bytes_in_flight: limits.bytes_in_flight.in_memory(),
                detail: config.answer.detail,
            },
            llm: None,
            statuses: Arc::new(BlockStatuses::default()),
            is_absent: false,
            rejected: Vec::new(),
        }
    }
}

/// Makes one call after another.
async fn calls(gateway: &Arc<Gateway>, token: &str, until: Instant) -> Result<Histogram<u64>, BenchError> {
    let (router, mut micros) = (router(Arc::clone(gateway)), histogram()?);
    let bearer = format!("Bearer {token}");
    let calling = tokio::spawn(async move {
        while Instant::now() < until {
            let request = Request::post("/v1/before-tool-call")
                .header("authorization", &bearer)
                .header("content-type", "application/json")
                .body(REQUEST_BODY.to_owned())?;
            let begun = Instant::now();
            let answer = router.clone().oneshot(request).await?;
            if !answer.status().is_success() {
                return Err(BenchError::from(format!("answered {}", answer.status())));
            }
            drop(answer);
            micros.saturating_record(u64::try_from(begun.elapsed().as_micros())?);
        }
        Ok(micros)
    });
    calling.await?
}
