//! Log lines on standard error: text on a terminal, one JSON object a line elsewhere.

use std::{
    io::{self, IsTerminal},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::{FilterExt as _, LevelFilter, dynamic_filter_fn},
    fmt,
    layer::Filter,
    registry::LookupSpan,
};

use super::{BoxedLayer, filters};

/// While a collector is down, the exporters report every attempt. One report in this many seconds is
/// written.
const REPORT_EVERY: u64 = 30;

pub(super) fn layer<S>() -> BoxedLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let filter = filters::levels().and(to_stderr());
    let layer = fmt::layer().with_writer(io::stderr);
    if io::stderr().is_terminal() {
        layer.with_filter(filter).boxed()
    } else {
        layer.json().flatten_event(true).with_current_span(false).with_filter(filter).boxed()
    }
}

/// Drops the fields of the SDK's own span, and most reports of the exporters.
fn to_stderr<S>() -> impl Filter<S> {
    let (started, last) = (Instant::now(), AtomicU64::new(0));
    let filter = dynamic_filter_fn(move |item, _| {
        if !item.target().starts_with("opentelemetry") {
            return !filters::is_call(item);
        }
        let now = started.elapsed().as_secs() + REPORT_EVERY;
        let due = |last: u64| (now >= last + REPORT_EVERY).then_some(now);
        last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    });
    filter.with_max_level_hint(LevelFilter::TRACE) // as in `filters::of_any_level`
}
