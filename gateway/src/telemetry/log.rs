//! Log lines: on standard error, and over OTLP where a collector is configured.

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, FilterFn},
    fmt,
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::{
    events::{self, Events},
    json_line::JsonLine,
};
use crate::config::{Log, LogFormat, LogLevel};

/// Exporters complain at every attempt while a collector is down; one line in so many seconds says it.
const COMPLAIN_EVERY: u64 = 30;

/// Starts logging to standard error; pretty on a terminal, a JSON object a line elsewhere, or as configured.
///
/// Does nothing when logging was started before.
pub fn start_log(log: &Log) {
    start(log, None, &Arc::default());
}

/// The same, and over OTLP, and into `events`, which don't depend on the level.
pub(super) fn start(log: &Log, collector: Option<&SdkLoggerProvider>, events: &Arc<Events>) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let automatic = if std::io::stderr().is_terminal() { LogFormat::Pretty } else { LogFormat::Json };
    // Lines of libraries are about their insides: only what they warn of.
    let filter = || EnvFilter::new(format!("warn,hookgate={level},hookgate_sdk={level}"));
    let collector = collector.map(|provider| {
        // Its own: what the exporters and their connections say must not make them export.
        OpenTelemetryTracingBridge::new(provider).with_filter(filter().and(FilterFn::new(is_ours)))
    });
    let registry = tracing_subscriber::registry().with(collector).with(events::layer(events));
    let started = match log.format.unwrap_or(automatic) {
        LogFormat::Pretty => registry.with(pretty(filter())).try_init(),
        LogFormat::Json => registry.with(json(filter())).try_init(),
    };
    drop(started); // a second start keeps the first one's settings
}

fn pretty<S>(filter: EnvFilter) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    fmt::layer().with_writer(std::io::stderr).with_target(false).with_filter(filter.and(seldom()))
}

fn json<S>(filter: EnvFilter) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    fmt::layer().event_format(JsonLine).with_writer(std::io::stderr).with_filter(filter.and(seldom()))
}

fn is_ours(line: &Metadata<'_>) -> bool {
    line.target().starts_with("hookgate")
}

/// Lets everything pass but most of the exporters' complaints.
fn seldom<S>() -> impl tracing_subscriber::layer::Filter<S> {
    let (started, last) = (Instant::now(), AtomicU64::new(0));
    tracing_subscriber::filter::dynamic_filter_fn(move |line, _| {
        if !line.target().starts_with("opentelemetry") {
            return true;
        }
        let now = started.elapsed().as_secs() + COMPLAIN_EVERY;
        let due = |last: u64| (now >= last + COMPLAIN_EVERY).then_some(now);
        last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    })
}
