//! The ranges of requests to the gateway's services (`host.proto`). The error names the field and the range.

use std::collections::{BTreeMap, BTreeSet};

use hookgate_proto::host::v1::{self as wire, Severity, operation::Operation};

/// Counters stay between minus this and this.
pub(super) const MAX_COUNTER: i64 = 1 << 53;
const MAX_KEY_BYTES: usize = 512;
const MAX_VALUE_BYTES: usize = 64 << 10;
const MAX_PERIOD_MS: u64 = 366 * 24 * 60 * 60 * 1000;
const MAX_KEYS: usize = 32;
const MAX_PAGE: u32 = 100;
const MAX_RECORDS: usize = 100;
const MAX_EVENT_NAME_BYTES: usize = 128;
const MAX_EVENT_MESSAGE_BYTES: usize = 1 << 10;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_NAME_BYTES: usize = 64;

/// A field that is outside its range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongField {
    pub(super) field: &'static str,
    pub(super) range: &'static str,
}

fn check(is_right: bool, field: &'static str, range: &'static str) -> Result<(), WrongField> {
    if is_right { Ok(()) } else { Err(WrongField { field, range }) }
}

pub(super) fn check_key(key: &str) -> Result<(), WrongField> {
    let is_right = (1..=MAX_KEY_BYTES).contains(&key.len()) && !key.contains(char::is_control);
    check(is_right, "key", "1 to 512 bytes, no control characters")
}

pub(super) fn check_keys(keys: &[String]) -> Result<(), WrongField> {
    check((1..=MAX_KEYS).contains(&keys.len()), "keys", "1 to 32 keys")?;
    keys.iter().try_for_each(|key| check_key(key))
}

pub(super) fn check_page_size(size: u32) -> Result<(), WrongField> {
    check(size <= MAX_PAGE, "page_size", "at most 100")
}

pub(super) fn check_operation(operation: &Operation) -> Result<(), WrongField> {
    let period = |time: Option<u64>, field| {
        let is_right = time.is_none_or(|time| (1..=MAX_PERIOD_MS).contains(&time));
        check(is_right, field, "1 to 31622400000 milliseconds")
    };
    let counter = |value: i64, field| {
        check((-MAX_COUNTER..=MAX_COUNTER).contains(&value), field, "between -2^53 and 2^53")
    };
    check_key(key_of(operation))?;
    match operation {
        Operation::Put(put) => {
            check(put.value.len() <= MAX_VALUE_BYTES, "value", "at most 64 KiB")?;
            period(put.ttl_ms, "ttl_ms")
        }
        Operation::Delete(delete) => {
            check(delete.expected_version != Some(0), "expected_version", "at least 1")
        }
        Operation::Add(add) => {
            counter(add.delta, "delta")?;
            counter(add.limit.unwrap_or(0), "limit")?;
            period(add.window_ms, "window_ms")
        }
    }
}

/// The operations of a transaction.
pub(super) fn check_operations(operations: Vec<wire::Operation>) -> Result<Vec<Operation>, WrongField> {
    const FIELD: &str = "operations";
    check((1..=MAX_KEYS).contains(&operations.len()), FIELD, "1 to 32 operations")?;
    let given = operations.len();
    let operations: Vec<_> = operations.into_iter().filter_map(|operation| operation.operation).collect();
    check(operations.len() == given, FIELD, "each a put, a delete or an add")?;
    let keys: BTreeSet<&str> = operations.iter().map(key_of).collect();
    check(keys.len() == given, FIELD, "each on another key")?;
    operations.iter().try_for_each(check_operation)?;
    Ok(operations)
}

fn key_of(operation: &Operation) -> &str {
    match operation {
        Operation::Put(put) => &put.key,
        Operation::Delete(delete) => &delete.key,
        Operation::Add(add) => &add.key,
    }
}

pub(super) fn check_records(records: &[wire::LogRecord]) -> Result<(), WrongField> {
    check((1..=MAX_RECORDS).contains(&records.len()), "records", "1 to 100 lines")?;
    records.iter().try_for_each(|record| {
        check(Severity::try_from(record.severity).is_ok(), "severity", "DEBUG, INFO, WARN or ERROR")?;
        check(!record.message.is_empty(), "message", "not empty")?;
        check_attributes(&record.attributes)
    })
}

pub(super) fn check_event(event: &wire::EmitEventRequest) -> Result<(), WrongField> {
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
        (1..=MAX_ATTRIBUTE_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_letter)
    };
    let is_right = attributes.len() <= MAX_ATTRIBUTES && attributes.keys().all(is_name);
    check(is_right, "attributes", "at most 32, whose names have 1 to 64 letters, digits, `_`, `-` or `.`")
}
