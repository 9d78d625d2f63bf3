//! Requests as operations of the store: every field is checked against the range that `host.proto` states.

use std::collections::BTreeSet;

use hookgate_proto::host::v1 as wire;

use super::error::FieldViolation;
use crate::store::{DataOperation, MAX_COUNTER};

/// Longest key, in bytes.
const MAX_KEY_BYTES: usize = 512;
/// Largest value, in bytes.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// Most keys of GetMany.
const MAX_KEYS: usize = 32;
/// Most entries of a page.
const MAX_PAGE_ENTRIES: u32 = 100;
/// Most operations of Transact.
const MAX_OPERATIONS: usize = 32;
/// Longest time to live, and longest window: 366 days.
const MAX_TTL_MS: u64 = 366 * 24 * 60 * 60 * 1000;

type Checked<T> = Result<T, FieldViolation>;

fn violation<T>(field: impl Into<String>, rule: impl Into<String>) -> Checked<T> {
    Err(FieldViolation { field: field.into(), rule: rule.into() })
}

/// `path` is the field of the message that holds this one, with a full stop; empty at the top.
fn checked_key(path: &str, name: &str, key: String) -> Checked<String> {
    if !(1..=MAX_KEY_BYTES).contains(&key.len()) {
        return violation(
            format!("{path}{name}"),
            format!("has {} bytes: a key has 1 to {MAX_KEY_BYTES}", key.len()),
        );
    }
    if key.chars().any(char::is_control) {
        return violation(format!("{path}{name}"), "has a control character");
    }
    Ok(key)
}

pub(super) fn key(key: String) -> Checked<String> {
    checked_key("", "key", key)
}

pub(super) fn keys(keys: Vec<String>) -> Checked<Vec<String>> {
    if !(1..=MAX_KEYS).contains(&keys.len()) {
        return violation("keys", format!("has {} keys: name 1 to {MAX_KEYS}", keys.len()));
    }
    keys.into_iter().enumerate().map(|(index, key)| checked_key("", &format!("keys[{index}]"), key)).collect()
}

/// A prefix, or the key after which a page begins; both may be empty.
pub(super) fn optional_key(name: &str, key: String) -> Checked<String> {
    if key.is_empty() { Ok(key) } else { checked_key("", name, key) }
}

pub(super) fn page_size(size: u32) -> Checked<usize> {
    match size {
        0 => Ok(MAX_PAGE_ENTRIES as usize),
        1..=MAX_PAGE_ENTRIES => Ok(size as usize),
        _ => violation("page_size", format!("is {size}: write 1 to {MAX_PAGE_ENTRIES}")),
    }
}

/// When an entry expires that lives for `ttl_ms` from now on.
fn expiry(path: &str, ttl_ms: Option<u64>, now_ms: i64) -> Checked<Option<i64>> {
    ttl_ms.map(|ttl_ms| Ok(now_ms + duration(path, "ttl_ms", ttl_ms)?)).transpose()
}

/// When the window of this moment ends. Windows begin at 1970.
fn window_end(path: &str, window_ms: Option<u64>, now_ms: i64) -> Checked<Option<i64>> {
    let end = |window: i64| now_ms - now_ms.rem_euclid(window) + window;
    window_ms.map(|window_ms| Ok(end(duration(path, "window_ms", window_ms)?))).transpose()
}

fn duration(path: &str, name: &str, milliseconds: u64) -> Checked<i64> {
    match i64::try_from(milliseconds) {
        Ok(within) if (1..=MAX_TTL_MS).contains(&milliseconds) => Ok(within),
        _ => violation(format!("{path}{name}"), format!("is {milliseconds}: write 1 to {MAX_TTL_MS}")),
    }
}

fn counter(path: &str, name: &str, value: i64) -> Checked<i64> {
    if (-MAX_COUNTER..=MAX_COUNTER).contains(&value) {
        return Ok(value);
    }
    violation(format!("{path}{name}"), format!("is {value}: write -{MAX_COUNTER} to {MAX_COUNTER}"))
}

pub(super) fn put(path: &str, request: wire::PutRequest, now_ms: i64) -> Checked<DataOperation> {
    let wire::PutRequest { key, value, expected_version: expected, ttl_ms } = request;
    let key = checked_key(path, "key", key)?;
    if value.len() > MAX_VALUE_BYTES {
        let rule = format!("has {} bytes: a value has at most {MAX_VALUE_BYTES}", value.len());
        return violation(format!("{path}value"), rule);
    }
    Ok(DataOperation::Put { key, value, expected, expires_ms: expiry(path, ttl_ms, now_ms)? })
}

pub(super) fn delete(path: &str, request: wire::DeleteRequest) -> Checked<DataOperation> {
    let wire::DeleteRequest { key, expected_version: expected } = request;
    if expected == Some(0) {
        return violation(format!("{path}expected_version"), "is 0: versions begin at 1");
    }
    Ok(DataOperation::Delete { key: checked_key(path, "key", key)?, expected })
}

pub(super) fn add(path: &str, request: wire::AddRequest, now_ms: i64) -> Checked<DataOperation> {
    let wire::AddRequest { key, delta, limit, window_ms } = request;
    Ok(DataOperation::Add {
        key: checked_key(path, "key", key)?,
        delta: counter(path, "delta", delta)?,
        limit: counter(path, "limit", limit.unwrap_or(MAX_COUNTER))?,
        expires_ms: window_end(path, window_ms, now_ms)?,
    })
}

pub(super) fn operations(request: wire::TransactRequest, now_ms: i64) -> Checked<Vec<DataOperation>> {
    use wire::operation::Operation;

    let operations = request.operations;
    if !(1..=MAX_OPERATIONS).contains(&operations.len()) {
        return violation("operations", format!("has {}: write 1 to {MAX_OPERATIONS}", operations.len()));
    }
    let mut keys = BTreeSet::new();
    let mut checked = Vec::with_capacity(operations.len());
    for (index, operation) in operations.into_iter().enumerate() {
        let path = |name: &str| format!("operations[{index}].{name}.");
        let operation = match operation.operation {
            Some(Operation::Put(request)) => put(&path("put"), request, now_ms)?,
            Some(Operation::Delete(request)) => delete(&path("delete"), request)?,
            Some(Operation::Add(request)) => add(&path("add"), request, now_ms)?,
            None => {
                return violation(format!("operations[{index}]"), "is empty: set `put`, `delete` or `add`");
            }
        };
        if !keys.insert(operation.key().to_owned()) {
            return violation(format!("operations[{index}]"), "names a key of an earlier operation");
        }
        checked.push(operation);
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400_000;

    #[test]
    fn a_request_outside_a_range_names_the_field() {
        let put_of = |key: &str, bytes: usize, ttl_ms| wire::PutRequest {
            key: key.to_owned(),
            value: vec![0; bytes].into(),
            expected_version: None,
            ttl_ms,
        };
        for (request, field) in [
            (put_of("", 0, None), "key"),
            (put_of(&"k".repeat(513), 0, None), "key"),
            (put_of("a\nb", 0, None), "key"),
            (put_of("k", (64 << 10) + 1, None), "value"),
            (put_of("k", 0, Some(0)), "ttl_ms"),
            (put_of("k", 0, Some(u64::MAX)), "ttl_ms"),
        ] {
            assert_eq!(put("", request, 0).expect_err("it is out of range").field, field);
        }
        assert!(put("", put_of(&"k".repeat(512), 64 << 10, Some(MAX_TTL_MS)), 0).is_ok());
        let adding = |delta, limit, window_ms| wire::AddRequest { key: "k".into(), delta, limit, window_ms };
        for (request, field) in [
            (adding(MAX_COUNTER + 1, None, None), "delta"),
            (adding(i64::MIN, None, None), "delta"),
            (adding(1, Some(i64::MAX), None), "limit"),
            (adding(1, None, Some(0)), "window_ms"),
        ] {
            assert_eq!(add("", request, 0).expect_err("it is out of range").field, field);
        }
        let twice = wire::TransactRequest {
            operations: vec![
                wire::Operation {
                    operation: Some(wire::operation::Operation::Add(adding(1, None, None)))
                };
                2
            ],
        };
        assert_eq!(operations(twice, 0).expect_err("one key twice").field, "operations[1]");
        let unset = wire::TransactRequest { operations: vec![wire::Operation { operation: None }] };
        assert_eq!(operations(unset, 0).expect_err("nothing").field, "operations[0]");
        assert_eq!(operations(wire::TransactRequest::default(), 0).expect_err("none").field, "operations");
    }

    #[test]
    fn a_day_ends_at_midnight_utc() {
        // 2026-11-24T16:04:19Z
        let now = 1_795_536_259_000;
        assert_eq!(window_end("", Some(DAY), now), Ok(Some(1_795_564_800_000)));
        assert_eq!(window_end("", Some(DAY), 1_795_564_800_000), Ok(Some(1_795_564_800_000 + 86_400_000)));
        assert_eq!(window_end("", None, now), Ok(None));
    }

    proptest! {
        #[test]
        fn a_window_holds_its_moment_and_ends_after_it(window in 1..=MAX_TTL_MS, now in 0..=4_000_000_000_000_i64) {
            let end = window_end("", Some(window), now).expect("in range").expect("it has an end");
            let window = i64::try_from(window).expect("in range");
            prop_assert!(end > now && end - now <= window && end % window == 0);
        }
    }
}
