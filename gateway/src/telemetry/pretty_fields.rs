//! The fields of a log line for people, formatted like `tracing-subscriber` does. Each value is limited in
//! length, and characters that a terminal could interpret are escaped.

use std::{error::Error, fmt};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::{MakeVisitor, VisitFmt, VisitOutput},
    fmt::format::{DefaultFields, DefaultVisitor, Writer},
};

use super::value::{bounded, displayed, escaped_text};

pub(super) struct PrettyFields;

impl<'a> MakeVisitor<Writer<'a>> for PrettyFields {
    type Visitor = BoundedVisitor<'a>;

    fn make_visitor(&self, target: Writer<'a>) -> BoundedVisitor<'a> {
        BoundedVisitor(DefaultFields::new().make_visitor(target))
    }
}

pub(super) struct BoundedVisitor<'a>(DefaultVisitor<'a>);

impl Visit for BoundedVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            // The formatter quotes and escapes it.
            self.0.record_str(field, &bounded(value));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = displayed(&format_args!("{value:?}"));
        let text = escaped_text(&text);
        // A message has no quotes around it: with quotes inside it could pass for other fields.
        let text = if field.name() == "message" { text.replace('"', "'").into() } else { text };
        self.0.record_debug(field, &format_args!("{text}"));
    }
}

impl VisitOutput<fmt::Result> for BoundedVisitor<'_> {
    fn finish(self) -> fmt::Result {
        self.0.finish()
    }
}

impl VisitFmt for BoundedVisitor<'_> {
    fn writer(&mut self) -> &mut dyn fmt::Write {
        self.0.writer()
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::{fmt as layer, layer::SubscriberExt as _};

    use super::*;
    use crate::telemetry::{log_queue::tests::Written, value::MAX_VALUE_BYTES};

    #[test]
    fn values_are_cut_and_escaped_for_people_too() {
        let written = Written::default();
        let writer = written.clone();
        let layer =
            layer::layer().with_ansi(false).fmt_fields(PrettyFields).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let (long, nasty) = ("x".repeat(200_000), "\u{1b}[31m\u{9b}\u{202e}\n");
            tracing::info!(long, display = %long, nasty, shown = %nasty, "said {nasty}");
        });
        let text = written.text();
        assert!(text.len() < 3 * MAX_VALUE_BYTES, "{} bytes", text.len());
        assert_eq!(text.matches("… (cut: 200000 bytes)").count(), 2);
        let ascii = text.replace('…', "");
        assert!(ascii.trim_end().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
    }
}
