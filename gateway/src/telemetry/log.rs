//! Logging to standard error, and over OTLP if a collector is configured. Logging never waits for a reader.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    panic::{self, PanicHookInfo},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use hookgate_sdk::telemetry::{BoxedLayer, Telemetry as PluginTelemetry, TelemetryError};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, FilterFn, LevelFilter},
    fmt,
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::{
    events::{self, Events},
    json_line::JsonLine,
    log_queue::LogQueue,
    otlp_logs::BoundedLoggers,
    pretty_fields::PrettyFields,
};
use crate::{
    config::{Log, LogFormat, LogLevel},
    telemetry::terminal,
};

/// Exporters log an error at every attempt while a collector is down. One line in this many seconds is
/// enough.
const COMPLAIN_EVERY: u64 = 30;

/// Target of the line that reports the first dropped lines. It isn't written to standard error, where there
/// is no room for it.
const OVERFLOW: &str = "hookgate::log_overflow";

/// The queue to standard error, created by the first start.
static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();

/// Starts logging to standard error: pretty on a terminal, one JSON object per line elsewhere, or as
/// configured.
///
/// Does nothing if logging was already started. Call [`flush_log`] at the end.
pub fn start_log(log: &Log) {
    start(log, None, None, &Arc::default());
}

/// Starts logging for the process of a reference plugin, and the export that the SDK gives every plugin. Call
/// [`flush_log`] at the end.
///
/// # Errors
/// If one of OpenTelemetry's environment variables is invalid.
pub fn start_plugin_log(
    service: &'static str,
    version: &'static str,
) -> Result<PluginTelemetry, TelemetryError> {
    let (layer, telemetry) = hookgate_sdk::telemetry::layer(service, version)?;
    start(&Log::default(), layer, None, &Arc::default());
    Ok(telemetry)
}

/// Starts logging to standard error, for people, the lines of these targets and no others, from the level info on. Call
/// [`flush_log`] at the end.
pub fn start_log_of(targets: &[&str]) {
    let directives: Vec<_> = targets.iter().map(|target| format!("{target}=info")).collect();
    let filter = EnvFilter::new(format!("off,{}", directives.join(",")));
    // Fails if logging was already started.
    drop(tracing_subscriber::registry().with(pretty(filter)).try_init());
}

/// Waits until everything logged so far is written, for at most `limit`.
pub fn flush_log(limit: Duration) {
    if let Some(queue) = QUEUE.get() {
        queue.flush(limit);
    }
}

/// Writes a sentence to standard error after everything that was logged before. It isn't a log line, and it
/// may never be read.
pub fn say(text: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push_text(format!("{text}\n").as_bytes()),
        None => drop(writeln!(io::stderr().lock(), "{text}")),
    }
}

/// How many log lines were dropped since the start because standard error was read too slowly or not at all.
pub fn log_dropped() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.dropped())
}

/// Reports, for as long as the process runs, whenever lines begin to be dropped: as an event, and over OTLP.
pub(super) async fn tell_of_overflows() {
    let Some(queue) = QUEUE.get() else { return };
    loop {
        queue.overflowed().await;
        tracing::warn!(
            target: OVERFLOW,
            event = "log.dropped",
            "log lines are being dropped: standard error is not read, or too slowly"
        );
    }
}

fn report_dropped(lines: u64) {
    tracing::warn!(
        event = "log.dropped",
        lines,
        "log lines were dropped: standard error was not read, or too slowly"
    );
}

fn queue() -> &'static Arc<LogQueue> {
    QUEUE.get_or_init(|| {
        // A duplicate handle: the standard library's holds a lock during a write.
        let own = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        let stderr: Box<dyn Write + Send> = match own {
            Ok(own) => Box::new(own),
            Err(_) => Box::new(io::stderr()),
        };
        LogQueue::start(stderr, report_dropped)
    })
}

/// A writer of lines into the queue.
struct ToQueue(&'static LogQueue);

impl Write for ToQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs a panic. The standard library's hook would write to standard error itself, and wait for a reader.
fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let backtrace = Backtrace::capture();
    let is_wanted = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        thread = thread.name(),
        location = info.location().map(tracing::field::display),
        backtrace = is_wanted.then(|| tracing::field::display(&backtrace)),
        "panicked: {}",
        info.payload_as_str().unwrap_or("without a text"),
    );
}

/// Like [`start_log`], with a layer for `spans`, export over OTLP, and `events`, which don't depend on the
/// level.
pub(super) fn start(
    log: &Log,
    spans: Option<BoxedLayer<Registry>>,
    collector: Option<&SdkLoggerProvider>,
    events: &Arc<Events>,
) {
    let started = subscriber(log, spans, collector, events).try_init();
    // A second start keeps the settings of the first.
    if started.is_ok() {
        panic::set_hook(Box::new(log_panic));
    }
}

fn subscriber(
    log: &Log,
    spans: Option<BoxedLayer<Registry>>,
    collector: Option<&SdkLoggerProvider>,
    events: &Arc<Events>,
) -> Box<dyn Subscriber + Send + Sync> {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let automatic = if io::stderr().is_terminal() { LogFormat::Pretty } else { LogFormat::Json };
    // Only warnings from libraries, whose other lines are about their internals. No spans from the SDK for
    // plugins in this process: the gateway has its own for those calls.
    let directives = format!("warn,hookgate={level},hookgate_sdk={level},hookgate_sdk::call=off");
    let filter = || EnvFilter::new(&directives);
    let collector = collector.map(|provider| {
        // Only our own lines: if lines of the exporters and their connections were exported, they would cause
        // more exports.
        OpenTelemetryTracingBridge::new(&BoundedLoggers(provider.clone()))
            .with_filter(filter().and(of_any_level(FilterFn::new(is_ours))))
    });
    let registry = tracing_subscriber::registry().with(spans).with(collector).with(events::layer(events));
    match log.format.unwrap_or(automatic) {
        LogFormat::Pretty => Box::new(registry.with(pretty(filter()))),
        LogFormat::Json => Box::new(registry.with(json(filter()))),
    }
}

fn pretty<S>(filter: EnvFilter) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let queue = queue();
    let layer = fmt::layer().with_target(false).with_ansi(terminal::has_colours(&io::stderr()));
    let layer = layer.fmt_fields(PrettyFields).log_internal_errors(false);
    layer.with_writer(|| ToQueue(queue)).with_filter(filter.and(to_stderr()))
}

fn json<S>(filter: EnvFilter) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let queue = queue();
    let layer = fmt::layer().event_format(JsonLine).log_internal_errors(false);
    layer.with_writer(|| ToQueue(queue)).with_filter(filter.and(to_stderr()))
}

/// A filter that leaves the level to the one beside it. It has to say so: without a hint, `tracing` takes the
/// filter for one that wants every level, and each trace line of hyper and h2 is built before it is dropped.
fn of_any_level<F>(filter: FilterFn<F>) -> FilterFn<F>
where
    F: Fn(&Metadata<'_>) -> bool,
{
    filter.with_max_level_hint(LevelFilter::TRACE)
}

fn is_ours(line: &Metadata<'_>) -> bool {
    line.target().starts_with("hookgate")
}

/// Rejects most of the exporters' repeated errors, the line that reports an overflow, and spans, which lines
/// don't show.
fn to_stderr<S>() -> impl tracing_subscriber::layer::Filter<S> {
    let (started, last) = (Instant::now(), AtomicU64::new(0));
    let filter = tracing_subscriber::filter::dynamic_filter_fn(move |line, _| {
        if !line.target().starts_with("opentelemetry") {
            return line.is_event() && line.target() != OVERFLOW;
        }
        let now = started.elapsed().as_secs() + COMPLAIN_EVERY;
        let due = |last: u64| (now >= last + COMPLAIN_EVERY).then_some(now);
        last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    });
    filter.with_max_level_hint(LevelFilter::TRACE) // as in `of_any_level`
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::fmt as layer;

    use super::*;
    use crate::telemetry::{control_spans, log_queue::tests::Written};

    /// A callsite that any layer may want is evaluated each time that it is passed: those of h2 and hyper are
    /// many times in each call.
    #[test]
    fn no_layer_wants_debug_lines_of_libraries() {
        let mut spans = Some(control_spans::layer(SdkTracerProvider::default().tracer("test")));
        let collector = SdkLoggerProvider::builder().build();
        for format in [LogFormat::Pretty, LogFormat::Json] {
            let log = Log { format: Some(format), ..Log::default() };
            let subscriber = subscriber(&log, spans.take(), Some(&collector), &Arc::default());
            assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
        }
    }

    #[test]
    fn a_panic_is_a_line_of_the_log() {
        let written = Written::default();
        let writer = written.clone();
        let layer = layer::layer().event_format(JsonLine).with_writer(move || writer.clone());
        let before = panic::take_hook();
        panic::set_hook(Box::new(log_panic));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let panicked = catch_unwind(|| panic!("the {} is gone", "roof"));
            assert!(panicked.is_err());
        });
        panic::set_hook(before);
        let line: serde_json::Value = serde_json::from_str(&written.text()).expect("a line");
        assert_eq!(
            (&line["level"], &line["message"]),
            (&"ERROR".into(), &"panicked: the roof is gone".into())
        );
        assert!(line["location"].as_str().is_some_and(|location| location.contains("log.rs:")), "{line}");
    }
}
