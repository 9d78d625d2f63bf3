//! The fields of a log line as members of a JSON object, for standard error and for events. Formats each kind
//! of value, and keeps the object within the maximum length of a line.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime, SystemTime},
};

use super::value::{MAX_LINE_BYTES, bounded, displayed, escaped_json};

/// Fields that hold JSON, which is written unquoted. Their producers bound their size. Only
/// [`crate::records::log_line`] and [`crate::records::plugin_output`] write them.
pub(super) const JSON_FIELD_NAMES: &[&str] = &["steps", "notices", "attributes"];
/// Lists the fields that didn't fit.
const LEFT_OUT_FIELD: &str = "left_out";
/// Space reserved for that list.
const MAX_LEFT_OUT_BYTES: usize = 2 << 10;

/// The members of one line as JSON, joined by commas.
#[derive(Debug, Default)]
pub(super) struct JsonFields {
    text: String,
    /// The members' names, and where each ends in `text`.
    ends: Vec<(&'static str, usize)>,
    left_out: Vec<&'static str>,
}

impl JsonFields {
    /// The time, the level, and the fields of `line`.
    ///
    /// # Errors
    /// If the time can't be formatted.
    pub(super) fn from_event(line: &tracing::Event<'_>) -> Result<Self, fmt::Error> {
        let mut members = JsonFields::default();
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        members.add("timestamp", &quoted(&time));
        members.add("level", &quoted(line.metadata().level().as_str()));
        line.record(&mut members);
        if !members.left_out.is_empty() {
            let names = serde_json::Value::from(std::mem::take(&mut members.left_out));
            members.push(LEFT_OUT_FIELD, &names.to_string());
        }
        Ok(members)
    }

    /// The text, and where each member ends in it.
    pub(super) fn into_parts(self) -> (String, Vec<(&'static str, usize)>) {
        (self.text, self.ends)
    }

    fn add(&mut self, name: &'static str, json: &str) {
        // Includes the braces, the end of the line, and the punctuation around a member.
        let room = MAX_LINE_BYTES - MAX_LEFT_OUT_BYTES - 3;
        if self.text.len() + name.len() + json.len() + 4 > room {
            self.left_out.push(name);
        } else {
            self.push(name, json);
        }
    }

    fn push(&mut self, name: &'static str, json: &str) {
        let comma = if self.text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{comma}{}:{json}", quoted(name));
        self.ends.push((name, self.text.len()));
    }
}

/// `text` as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    escaped_json(&json).into_owned()
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &quoted(&displayed(&format_args!("{value:?}"))));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if JSON_FIELD_NAMES.contains(&field.name()) {
            self.add(field.name(), &escaped_json(value));
        } else {
            self.add(field.name(), &quoted(&bounded(value)));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field.name(), &quoted(&displayed(&value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), &value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), &serde_json::Value::from(value).to_string());
    }
}
