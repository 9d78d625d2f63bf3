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
    levels().or(FilterFn::new(is_call)).and(spans)
}

/// The lines of the plugin and the SDK.
pub(super) fn exported_lines<S>() -> impl Filter<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    levels().and(FilterFn::new(|item: &Metadata<'_>| item.is_event() && !is_of_exporters(item.target())))
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
    use super::*;

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
