//! Generates docs/metrics.md from the table in [`names`].

use std::fmt::Write as _;

use super::names::{self, InstrumentKind, METRICS, Metric, SPANS, SpanName};

const INTRODUCTION: &str = "\
# Metrics

Written from `gateway/src/telemetry/names.rs`; tests compare it with the table there and with what a gateway serves.
`GET /metrics` on the ops port has the metrics as Prometheus text; a collector (`telemetry.otlp_endpoint`) gets the same
over OTLP. In Prometheus text dots are underscores, a unit of seconds is the suffix `_seconds`, and counters end in
`_total`.

Values of attributes come from the configuration or from closed sets: no plugin, agent or caller can make series. No
metric names a tenant, except those listed in `telemetry.tenant_labels`: they get `hookgate.tenant.id` on the metrics
marked *by tenant*. Spans and log lines always name the tenant.

| name | instrument | unit | attributes | meaning | alert on |
|---|---|---|---|---|---|
";

const SPANS_INTRODUCTION: &str = "
# Spans

Spans are exported if `telemetry.otlp_endpoint` is set. A failed span has the status *error* and says why in `error.type`. Log records of what
happens within a span have its trace id and span id. A plugin gets the trace context with every call, so the spans of plugins written with the
SDK belong to the same trace.

| name | parent | attributes besides `error.type` | meaning |
|---|---|---|---|
";

pub fn document() -> String {
    let mut text = INTRODUCTION.to_owned();
    METRICS.iter().for_each(|metric| row(&mut text, metric));
    text.push_str("\nBounds of histograms, in seconds:\n\n");
    for (name, bounds) in [
        ("calls", names::CALL_BOUNDS),
        ("plugins", names::PLUGIN_BOUNDS),
        ("overhead", names::OVERHEAD_BOUNDS),
        ("models", names::LLM_BOUNDS),
    ] {
        let bounds: Vec<_> = bounds.iter().map(ToString::to_string).collect();
        line(&mut text, format_args!("- {name}: {}", bounds.join(", ")));
    }
    text += SPANS_INTRODUCTION;
    for SpanName { name, parent, attributes, meaning } in SPANS {
        let attributes: Vec<_> = attributes.iter().map(|name| format!("`{name}`")).collect();
        line(&mut text, format_args!("| {name} | {parent} | {} | {meaning} |", attributes.join(", ")));
    }
    text
}

fn row(text: &mut String, metric: &Metric) {
    let instrument = match metric.kind {
        InstrumentKind::Counter => "counter".to_owned(),
        InstrumentKind::Gauge => "gauge".to_owned(),
        InstrumentKind::Histogram => format!("histogram ({})", bounds(metric)),
    };
    let mut attributes: Vec<_> = metric.attributes.iter().map(|name| format!("`{name}`")).collect();
    if metric.by_tenant {
        attributes.push("*by tenant*".to_owned());
    }
    let Metric { name, unit, meaning, alert, .. } = metric;
    let attributes = attributes.join(", ");
    line(text, format_args!("| `{name}` | {instrument} | {unit} | {attributes} | {meaning} | {alert} |"));
}

fn bounds(metric: &Metric) -> &'static str {
    if metric.bounds == names::OVERHEAD_BOUNDS {
        "overhead"
    } else if metric.bounds == names::PLUGIN_BOUNDS {
        "plugins"
    } else if metric.bounds == names::LLM_BOUNDS {
        "models"
    } else {
        "calls"
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn docs_metrics_md_is_written_from_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
        if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
            fs::write(&path, document()).expect("the repository is ours to write");
        }
        let written = fs::read_to_string(&path).expect("docs/metrics.md is there");
        assert_eq!(written, document(), "run this test with HOOKGATE_REGENERATE=1");
    }

    #[test]
    fn every_metric_has_its_own_name_a_meaning_and_an_alert() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(!metric.meaning.is_empty() && !metric.alert.is_empty(), "{}", metric.name);
            assert_eq!(
                metric.kind == InstrumentKind::Histogram,
                !metric.bounds.is_empty(),
                "{}",
                metric.name
            );
        }
    }
}
