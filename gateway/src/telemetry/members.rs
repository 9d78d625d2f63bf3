//! The fields of a log line as members of a JSON object: how each kind of value is written, for the lines on standard
//! error and for events alike.

use std::fmt;

use tracing::field::{Field, Visit};

/// Fields that hold JSON, written as such and not as text. Only lines of [`super::line`] have them.
const JSON: &[&str] = &["steps", "notices"];

/// Hands each field's name and its value as JSON to the function.
pub(super) struct Members<F>(pub(super) F);

impl<F: FnMut(&'static str, &dyn fmt::Display)> Members<F> {
    fn text(&mut self, name: &'static str, value: &str) {
        (self.0)(name, &quoted(value));
    }
}

/// `text` as JSON.
pub(super) fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

impl<F: FnMut(&'static str, &dyn fmt::Display)> Visit for Members<F> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if JSON.contains(&field.name()) {
            (self.0)(field.name(), &value);
        } else {
            self.text(field.name(), value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field.name(), &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        (self.0)(field.name(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        (self.0)(field.name(), &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        (self.0)(field.name(), &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        (self.0)(field.name(), &serde_json::Value::from(value));
    }
}
