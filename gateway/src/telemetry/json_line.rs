//! A log line as one JSON object: `timestamp`, `level`, `message`, and the fields beside them.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::telemetry::json_fields::JsonFields;

pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (text, _) = JsonFields::from_event(event)?.into_parts();
        writeln!(writer, "{{{text}}}")
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::{fmt as layer, layer::SubscriberExt as _};

    use super::*;
    use crate::telemetry::{
        log_queue::tests::Written,
        value::{MAX_LINE_BYTES, MAX_VALUE_BYTES},
    };

    fn written(log: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let layer = layer::layer().event_format(JsonLine).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        written.text()
    }

    #[test]
    fn a_line_is_one_json_object_whatever_it_says() {
        let text = written(|| {
            let nasty = "a \"b\"\n\u{1b}[31m";
            tracing::warn!(nasty, display = %nasty, n = 7_u64, x = 0.5, yes = true, steps = "[{}]", "one\nline");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let mut line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(line["timestamp"].take().is_string());
        let nasty = "a \"b\"\n\u{1b}[31m";
        let expected = serde_json::json!({
            "timestamp": null, "level": "WARN", "message": "one\nline", "nasty": nasty, "display": nasty,
            "n": 7, "x": 0.5, "yes": true, "steps": [{}],
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_value_of_200_kb_is_cut_and_the_line_is_json_that_says_so() {
        let version = format!("1.0.0+{}", "9".repeat(200_000));
        let text = written(|| tracing::info!(version = %version, also = version, ok = 1_u64, "connected"));
        assert!(text.len() < 3 * MAX_VALUE_BYTES, "{} bytes", text.len());
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for name in ["version", "also"] {
            let value = line[name].as_str().expect("a text");
            assert!(value.starts_with("1.0.0+9") && value.ends_with("… (cut: 200006 bytes)"), "{value}");
        }
        assert_eq!((&line["message"], &line["ok"]), (&"connected".into(), &1.into()));
    }

    #[test]
    fn a_line_is_bounded_however_many_long_values_it_has_and_names_what_it_leaves_out() {
        // Each such character takes six bytes in JSON.
        let long = "\u{1}".repeat(MAX_VALUE_BYTES);
        let text = written(|| tracing::info!(long, again = long, once_more = %long, small = 1_u64, "said"));
        assert!(text.len() <= MAX_LINE_BYTES && text.ends_with("}\n"), "{} bytes", text.len());
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&line["small"], &line["message"]), (&1.into(), &"said".into()));
        assert_eq!(line["long"].as_str(), Some(&*long));
        assert_eq!(line["left_out"], serde_json::json!(["again", "once_more"]));
    }

    #[test]
    fn a_line_has_no_character_that_a_terminal_would_take_for_a_command_or_show_elsewhere() {
        let nasty = "\u{7f}\u{9b}31m\u{202e}\u{2028}\u{2066}";
        let steps = serde_json::json!([{ "plugin": nasty }]).to_string();
        let text = written(|| tracing::info!(nasty, display = %nasty, steps, "said"));
        assert!(text.trim_end().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{text:?}");
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&line["nasty"], &line["display"]), (&nasty.into(), &nasty.into()));
        assert_eq!(line["steps"][0]["plugin"], nasty);
    }
}
