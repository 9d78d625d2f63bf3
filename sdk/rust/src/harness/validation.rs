//! The ranges of requests to the gateway's services (`host.proto`). The error names the field and the range.

use std::collections::BTreeSet;

use hookgate_proto::host::v1::{self as wire, operation::Operation};

use crate::record_rules::{WrongField, check};

/// Counters stay between minus this and this.
pub(super) const MAX_COUNTER: i64 = 1 << 53;
const MAX_KEY_BYTES: usize = 512;
const MAX_VALUE_BYTES: usize = 64 << 10;
const MAX_PERIOD_MS: u64 = 366 * 24 * 60 * 60 * 1000;
const MAX_KEYS: usize = 32;
const MAX_PAGE: u32 = 100;

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
