//! A log line as one JSON object: `timestamp`, `level`, `message`, and the fields beside them.

use std::fmt::{self, Write as _};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::members::{Members, quoted};

/// The format.
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
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = Line { text: String::from("{"), result: Ok(()) };
        line.member("timestamp", quoted(&time));
        line.member("level", quoted(event.metadata().level().as_str()));
        event.record(&mut Members(|name: &'static str, json: &dyn fmt::Display| line.member(name, json)));
        line.result?;
        writeln!(writer, "{}}}", line.text)
    }
}

struct Line {
    text: String,
    result: fmt::Result,
}

impl Line {
    fn member(&mut self, name: &str, json: impl fmt::Display) {
        let comma = if self.text.len() > 1 { "," } else { "" };
        let written = write!(self.text, "{comma}{}:{json}", quoted(name));
        self.result = self.result.and(written);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::{fmt as layer, layer::SubscriberExt as _};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_json_object_whatever_it_says() {
        let written = Written::default();
        let writer = written.clone();
        let layer = layer::layer().event_format(JsonLine).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let nasty = "a \"b\"\n\u{1b}[31m";
            tracing::warn!(nasty, display = %nasty, n = 7_u64, x = 0.5, yes = true, steps = "[{}]", "one\nline");
        });
        let text = String::from_utf8(written.0.lock().expect("nobody panics").clone()).expect("UTF-8");
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
}
