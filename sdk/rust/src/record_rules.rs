//! The ranges of log lines and events (`host.proto`). The error names the field and the range.

use std::collections::BTreeMap;

use hookgate_proto::host::v1::{self as wire, Severity};

const MAX_RECORDS: usize = 100;
const MAX_EVENT_NAME_BYTES: usize = 128;
const MAX_EVENT_MESSAGE_BYTES: usize = 1 << 10;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_NAME_BYTES: usize = 64;

/// A field that is outside its range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongField {
    pub(crate) field: &'static str,
    pub(crate) range: &'static str,
}

pub(crate) fn check(is_right: bool, field: &'static str, range: &'static str) -> Result<(), WrongField> {
    if is_right { Ok(()) } else { Err(WrongField { field, range }) }
}

pub(crate) fn check_records(records: &[wire::LogRecord]) -> Result<(), WrongField> {
    check((1..=MAX_RECORDS).contains(&records.len()), "records", "1 to 100 lines")?;
    records.iter().try_for_each(check_record)
}

pub(crate) fn check_record(record: &wire::LogRecord) -> Result<(), WrongField> {
    check(Severity::try_from(record.severity).is_ok(), "severity", "DEBUG, INFO, WARN or ERROR")?;
    check(!record.message.is_empty(), "message", "not empty")?;
    check_attributes(&record.attributes)
}

pub(crate) fn check_event(event: &wire::EmitEventRequest) -> Result<(), WrongField> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    let is_name = event.name.len() <= MAX_EVENT_NAME_BYTES && event.name.split('.').all(is_part);
    check(is_name, "name", "1 to 128 lower-case letters, digits, `_` and `-`, in parts joined by dots")?;
    let has_severity = Severity::try_from(event.severity).is_ok_and(|severity| severity != Severity::Debug);
    check(has_severity, "severity", "INFO, WARN or ERROR")?;
    check(event.message.len() <= MAX_EVENT_MESSAGE_BYTES, "message", "at most 1 KiB")?;
    check_attributes(&event.attributes)
}

fn check_attributes(attributes: &BTreeMap<String, String>) -> Result<(), WrongField> {
    let is_name = |name: &String| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (1..=MAX_ATTRIBUTE_NAME_BYTES).contains(&name.len())
            && name.bytes().all(is_letter)
            && name != "left_out"
    };
    let is_right = attributes.len() <= MAX_ATTRIBUTES && attributes.keys().all(is_name);
    check(is_right, "attributes", "at most 32, whose names have 1 to 64 letters, digits, `_`, `-` or `.`")
}
