//! The instruments, made once from the table of [`names`]. Recording with them takes no lock that a reader waits on.

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter},
};

use super::names::{self, Kind, Metric};

/// What records during calls; values of a moment are asked for when they are collected, see [`observe`].
pub(super) struct Instruments {
    pub(super) rpc_server: Histogram<f64>,
    pub(super) http_server: Histogram<f64>,
    pub(super) rpc_client: Histogram<f64>,
    pub(super) invocation: Histogram<f64>,
    pub(super) overhead: Histogram<f64>,
    pub(super) plugin_call: Histogram<f64>,
    pub(super) plugin_queue: Histogram<f64>,
    pub(super) steps: Counter<u64>,
    pub(super) blocks: Counter<u64>,
    pub(super) failed_open: Counter<u64>,
    pub(super) would_block: Counter<u64>,
    pub(super) bypassed: Counter<u64>,
    pub(super) auth_failures: Counter<u64>,
    pub(super) budget_exhausted: Counter<u64>,
}

impl Instruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let histogram = |metric: &Metric| {
            let builder = meter.f64_histogram(metric.name).with_unit(metric.unit);
            builder.with_description(metric.meaning).with_boundaries(metric.bounds.to_vec()).build()
        };
        let counter = |metric: &Metric| {
            meter.u64_counter(metric.name).with_unit(metric.unit).with_description(metric.meaning).build()
        };
        Instruments {
            rpc_server: histogram(&names::RPC_SERVER),
            http_server: histogram(&names::HTTP_SERVER),
            rpc_client: histogram(&names::RPC_CLIENT),
            invocation: histogram(&names::INVOCATION),
            overhead: histogram(&names::OVERHEAD),
            plugin_call: histogram(&names::PLUGIN_CALL),
            plugin_queue: histogram(&names::PLUGIN_QUEUE),
            steps: counter(&names::STEPS),
            blocks: counter(&names::BLOCKS),
            failed_open: counter(&names::FAILED_OPEN),
            would_block: counter(&names::WOULD_BLOCK),
            bypassed: counter(&names::BYPASSED),
            auth_failures: counter(&names::AUTH_FAILURES),
            budget_exhausted: counter(&names::BUDGET_EXHAUSTED),
        }
    }
}

/// A value of this moment and its attributes, as they are read when metrics are collected.
pub type Observed = (f64, Vec<KeyValue>);

/// Makes an instrument whose values `read` gives whenever they are collected.
pub(super) fn observe(
    meter: &Meter,
    metric: &Metric,
    read: impl Fn() -> Vec<Observed> + Send + Sync + 'static,
) {
    // The SDK keeps the callback; the handles that it gives back can do nothing.
    match metric.kind {
        Kind::Counter => {
            let builder = meter.f64_observable_counter(metric.name).with_unit(metric.unit);
            let builder = builder.with_description(metric.meaning);
            let _ = builder
                .with_callback(move |observer| {
                    read().iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
                })
                .build();
        }
        Kind::Gauge | Kind::Histogram => {
            let builder = meter.f64_observable_gauge(metric.name).with_unit(metric.unit);
            let builder = builder.with_description(metric.meaning);
            let _ = builder
                .with_callback(move |observer| {
                    read().iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
                })
                .build();
        }
    }
}
