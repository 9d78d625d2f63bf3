//! The instruments, created once from the table in [`names`]. Recording takes no lock that a reader waits on.

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter},
};

use super::names::{self, InstrumentKind, Metric};

/// The instruments used during calls. Observable values are read on collection; see [`observe`].
pub(crate) struct Instruments {
    pub(crate) rpc_server: Histogram<f64>,
    pub(crate) http_server: Histogram<f64>,
    pub(crate) rpc_client: Histogram<f64>,
    pub(crate) invocation: Histogram<f64>,
    pub(crate) overhead: Histogram<f64>,
    pub(crate) plugin_call: Histogram<f64>,
    pub(crate) plugin_queue: Histogram<f64>,
    pub(crate) steps: Counter<u64>,
    pub(crate) blocks: Counter<u64>,
    pub(crate) failed_open: Counter<u64>,
    pub(crate) would_block: Counter<u64>,
    pub(crate) bypassed: Counter<u64>,
    pub(crate) auth_failures: Counter<u64>,
    pub(crate) budget_exhausted: Counter<u64>,
    pub(crate) host_refusals: Counter<u64>,
    pub(crate) host_dropped: Counter<u64>,
    pub(crate) llm_exchange: Histogram<f64>,
    pub(crate) llm_upstream: Histogram<f64>,
    pub(crate) llm_units: Counter<u64>,
    pub(crate) llm_withheld: Counter<u64>,
}

impl Instruments {
    pub(crate) fn new(meter: &Meter) -> Self {
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
            host_refusals: counter(&names::HOST_REFUSALS),
            host_dropped: counter(&names::HOST_DROPPED),
            llm_exchange: histogram(&names::LLM_EXCHANGE),
            llm_upstream: histogram(&names::LLM_UPSTREAM),
            llm_units: counter(&names::LLM_UNITS),
            llm_withheld: counter(&names::LLM_WITHHELD),
        }
    }
}

/// A current value and its attributes.
pub type Measurement = (f64, Vec<KeyValue>);

/// Creates an instrument whose values `read` returns on each collection.
pub(super) fn observe(
    meter: &Meter,
    metric: &Metric,
    read: impl Fn() -> Vec<Measurement> + Send + Sync + 'static,
) {
    // The SDK keeps the callback; the returned handles have no use.
    match metric.kind {
        InstrumentKind::Counter => {
            let builder = meter.f64_observable_counter(metric.name).with_unit(metric.unit);
            let builder = builder.with_description(metric.meaning);
            let _ = builder
                .with_callback(move |observer| {
                    read().iter().for_each(|(value, attributes)| observer.observe(*value, attributes));
                })
                .build();
        }
        InstrumentKind::Gauge | InstrumentKind::Histogram => {
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
