//! How the control plane opens spans: reloads, registry writes, handshakes and migrations. They are spans of
//! `tracing`, and [`crate::telemetry`] exports them (docs/decisions/0047-control-plane-spans.md). The hot path
//! has guards of its own there instead.

use tracing::Span;

/// Target of these spans, and of nothing else. Spans with another target are never exported: an exporter and
/// its connection open some too, and each export would cause another one.
pub(crate) const TARGET: &str = "hookgate::control_span";

/// Opens a span with this name and these fields. [`record_error`] may add to it.
macro_rules! control_span {
    ($name:literal $(, $($fields:tt)+)?) => {
        ::tracing::info_span!(
            target: $crate::core::control_span::TARGET,
            $name,
            "otel.status_code" = ::tracing::field::Empty,
            "error.type" = ::tracing::field::Empty,
            $($($fields)+)?
        )
    };
}

pub(crate) use control_span;

/// Marks `span` as failed. `error_type` comes from a closed set.
pub(crate) fn record_error(span: &Span, error_type: &'static str) {
    span.record("error.type", error_type);
    span.record("otel.status_code", "ERROR");
}
