//! Filters: which spans and lines are exported, and which lines go to standard error.

use tracing::{Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter,
    filter::{FilterExt as _, FilterFn, LevelFilter},
    layer::Filter,
    registry::LookupSpan,
};

use crate::call_span;

/// The crates that the exporters use. Exporting their output would cause further exports.
const EXPORTERS: [&str; 7] = ["hyper", "tonic", "h2", "tower", "reqwest", "rustls", "opentelemetry"];

/// The levels from `RUST_LOG`. Malformed directives are ignored.
pub(super) fn levels() -> EnvFilter {
    EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy()
}

/// The plugin's spans, and the SDK's at any level: without the call's span, the others would lose their
/// trace.
///
/// Events are left out. They are exported as log records, so as span events they would arrive twice. An
/// event at the level ERROR would also mark the span of a successful call as failed.
pub(super) fn exported_spans<S>() -> impl Filter<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let spans = FilterFn::new(|item: &Metadata<'_>| item.is_span() && !is_of_exporters(item.target()));
    let calls = FilterFn::new(is_call).with_max_level_hint(LevelFilter::INFO);
    levels().or(calls).and(of_any_level(spans))
}

/// The lines of the plugin and the SDK.
pub(super) fn exported_lines<S>() -> impl Filter<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let lines = FilterFn::new(|item: &Metadata<'_>| item.is_event() && !is_of_exporters(item.target()));
    levels().and(of_any_level(lines))
}

/// A filter that leaves the level to the one beside it. It has to say so: without a hint, `tracing` takes the
/// filter for one that wants every level, and each trace line of hyper and h2 is built before it is dropped.
fn of_any_level<F>(filter: FilterFn<F>) -> FilterFn<F>
where
    F: Fn(&Metadata<'_>) -> bool,
{
    filter.with_max_level_hint(LevelFilter::TRACE)
}

/// Whether this is the SDK's span of a call.
pub(super) fn is_call(item: &Metadata<'_>) -> bool {
    item.target() == call_span::TARGET
}

/// Whether a target belongs to one of the exporters' crates, such as `hyper_util::client`.
fn is_of_exporters(target: &str) -> bool {
    let name = target.split("::").next().unwrap_or(target);
    EXPORTERS.iter().any(|exporter| {
        name.strip_prefix(exporter).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']))
    })
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Registry;

    use super::*;

    #[test]
    fn the_filters_name_the_most_verbose_level_that_they_let_through() {
        let (spans, lines) = (exported_spans::<Registry>(), exported_lines::<Registry>());
        assert_eq!([spans.max_level_hint(), lines.max_level_hint()], [Some(LevelFilter::INFO); 2]);
    }

    #[test]
    fn targets_of_the_exporters_crates_are_known() {
        for target in ["hyper", "hyper_util::client", "tonic::transport", "h2::proto", "opentelemetry_sdk"] {
            assert!(is_of_exporters(target), "{target}");
        }
        for target in ["hookgate_sdk::call", "no_shell", "h2o_guard", "towers::north", ""] {
            assert!(!is_of_exporters(target), "{target}");
        }
    }
}
