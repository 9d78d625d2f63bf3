//! Exports the spans of the control plane through tracing-opentelemetry.

use hookgate_sdk::telemetry::BoxedLayer;
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Metadata;
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterFn, LevelFilter},
};

use crate::core::control_span::TARGET;

/// Exports the spans of the control plane. An entered span is OpenTelemetry's current one too, so log records
/// and plugins get its trace.
pub(super) fn layer(tracer: SdkTracer) -> BoxedLayer<Registry> {
    // Source locations, threads and busy times are not part of the conventions, and every span would carry
    // them.
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    layer.with_filter(FilterFn::new(is_exported).with_max_level_hint(LevelFilter::INFO)).boxed()
}

fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::core::control_span::{control_span, record_error};

    /// The names of the spans that are exported of what `run` opens.
    fn exported(run: impl FnOnce()) -> Vec<String> {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let subscriber = tracing_subscriber::registry().with(layer(provider.tracer("test")));
        tracing::subscriber::with_default(subscriber, run);
        let spans = exporter.get_finished_spans().expect("the exporter is ours");
        spans.into_iter().map(|span| span.name.into_owned()).collect()
    }

    #[test]
    fn spans_of_libraries_and_of_the_exporter_are_not_exported() {
        let names = exported(|| {
            let _ours = control_span!("config reload").entered();
            let _connection = tracing::info_span!(target: "hyper::client", "connection").entered();
            let _export = tracing::info_span!(target: "opentelemetry_sdk", "export").entered();
            let _other = tracing::info_span!("inner").entered();
        });
        assert_eq!(names, ["config reload"]);
    }

    #[test]
    fn a_failed_span_says_why() {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let subscriber = tracing_subscriber::registry().with(layer(provider.tracer("test")));
        tracing::subscriber::with_default(subscriber, || {
            record_error(&control_span!("store migration", "db.system.name" = "sqlite"), "tables");
        });
        let spans = exporter.get_finished_spans().expect("the exporter is ours");
        let [span] = spans.as_slice() else { panic!("one span: {spans:?}") };
        assert_eq!(span.status, opentelemetry::trace::Status::error(""));
        let attributes: Vec<_> =
            span.attributes.iter().map(|pair| (pair.key.as_str(), pair.value.to_string())).collect();
        assert_eq!(
            attributes,
            [("db.system.name", "sqlite".to_owned()), ("error.type", "tables".to_owned())]
        );
    }
}
