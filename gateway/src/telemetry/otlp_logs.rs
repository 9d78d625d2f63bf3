//! Log records for OTLP, with the same limit on each value as the lines on standard error.

use std::{borrow::Cow, time::SystemTime};

use opentelemetry::{
    InstrumentationScope, Key,
    logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity},
};
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger, SdkLoggerProvider};

use crate::telemetry::{json_fields::JSON_FIELD_NAMES, value::bounded};

/// Creates the only logger.
pub(super) struct BoundedLoggers(pub(super) SdkLoggerProvider);

impl LoggerProvider for BoundedLoggers {
    type Logger = BoundedLogger;

    fn logger_with_scope(&self, scope: InstrumentationScope) -> BoundedLogger {
        BoundedLogger(self.0.logger_with_scope(scope))
    }
}

pub(super) struct BoundedLogger(SdkLogger);

impl Logger for BoundedLogger {
    type LogRecord = BoundedRecord;

    fn create_log_record(&self) -> BoundedRecord {
        BoundedRecord(self.0.create_log_record())
    }

    fn emit(&self, record: BoundedRecord) {
        self.0.emit(record.0);
    }

    fn event_enabled(&self, level: Severity, target: &str, name: Option<&str>) -> bool {
        self.0.event_enabled(level, target, name)
    }
}

pub(super) struct BoundedRecord(SdkLogRecord);

fn bounded_value(value: AnyValue) -> AnyValue {
    match value {
        AnyValue::String(text) => match bounded(text.as_str()) {
            Cow::Borrowed(_) => AnyValue::String(text),
            Cow::Owned(cut) => AnyValue::from(cut),
        },
        other => other,
    }
}

impl LogRecord for BoundedRecord {
    fn set_event_name(&mut self, name: &'static str) {
        self.0.set_event_name(name);
    }

    fn set_target<T: Into<Cow<'static, str>>>(&mut self, target: T) {
        self.0.set_target(target);
    }

    fn set_timestamp(&mut self, timestamp: SystemTime) {
        self.0.set_timestamp(timestamp);
    }

    fn set_observed_timestamp(&mut self, timestamp: SystemTime) {
        self.0.set_observed_timestamp(timestamp);
    }

    fn set_severity_text(&mut self, text: &'static str) {
        self.0.set_severity_text(text);
    }

    fn set_severity_number(&mut self, number: Severity) {
        self.0.set_severity_number(number);
    }

    fn set_body(&mut self, body: AnyValue) {
        self.0.set_body(bounded_value(body));
    }

    fn add_attributes<I, K, V>(&mut self, attributes: I)
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<Key>,
        V: Into<AnyValue>,
    {
        attributes.into_iter().for_each(|(key, value)| self.add_attribute(key, value));
    }

    fn add_attribute<K: Into<Key>, V: Into<AnyValue>>(&mut self, key: K, value: V) {
        let key = key.into();
        let is_bounded_json = JSON_FIELD_NAMES.contains(&key.as_str());
        let value = value.into();
        self.0.add_attribute(key, if is_bounded_json { value } else { bounded_value(value) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::value::MAX_VALUE_BYTES;

    #[test]
    fn values_of_records_are_cut_and_lists_are_not() {
        let logger = BoundedLoggers(SdkLoggerProvider::builder().build()).logger("");
        let mut record = logger.create_log_record();
        let long = "x".repeat(200_000);
        let cut = format!("{}… (cut: 200000 bytes)", "x".repeat(MAX_VALUE_BYTES));
        record.set_body(long.clone().into());
        record.add_attribute("version", long.clone());
        record.add_attribute("steps", long.clone());
        record.add_attribute("status", 401);
        assert_eq!(record.0.body(), Some(&AnyValue::from(cut.clone())));
        let attributes: Vec<_> = record.0.attributes_iter().cloned().collect();
        let expected = [
            (Key::new("version"), AnyValue::from(cut)),
            (Key::new("steps"), AnyValue::from(long)),
            (Key::new("status"), AnyValue::from(401)),
        ];
        assert_eq!(attributes, expected);
    }
}
