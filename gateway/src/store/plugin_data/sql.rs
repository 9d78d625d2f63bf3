//! What both databases share: statements about plugins' data, and the conversion of rows.

use bytes::Bytes;
use sqlx::{Database, Encode, FromRow, Type, query::QueryAs};

use super::{
    DataChange, DataEntry, DataOperation, DataScope, DataUsage, EntryContent, ListRange, MAX_COUNTER,
    RejectedReason, SigningKey,
};
use crate::store::{StoreError, rows};

/// Most rows that one statement deletes. Others write in between.
const MAX_DELETED_ROWS: usize = 1000;

pub(super) const SELECT_ENTRY: &str = "
    SELECT key, value, counter, version, expires_ms FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND key = $3 AND (expires_ms IS NULL OR expires_ms > $4)";
/// Selects a [`ChangeRow`]: no value, which may be large.
pub(super) const SELECT_STATE: &str = "
    SELECT counter, version, expires_ms FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND key = $3 AND (expires_ms IS NULL OR expires_ms > $4)";
/// The parameters are those of [`KeyRange`].
const SELECT_PAGE: &str = "
    SELECT key, value, counter, version, expires_ms FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND key >= $3 AND key <> $4 AND (expires_ms IS NULL OR expires_ms > $5)
    ORDER BY key LIMIT $6";
const SELECT_PAGE_BEFORE: &str = "
    SELECT key, value, counter, version, expires_ms FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND key >= $3 AND key <> $4 AND (expires_ms IS NULL OR expires_ms > $5)
    AND key < $7 ORDER BY key LIMIT $6";
/// The entries and the bytes of a scope.
pub(super) const SELECT_USAGE: &str = "
    SELECT count(*), CAST(coalesce(sum(octet_length(key) + coalesce(octet_length(value), 8)), 0) AS BIGINT)
    FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND (expires_ms IS NULL OR expires_ms > $3)";
pub(super) const SELECT_SIGNING_KEYS: &str =
    "SELECT generation, created_ms, secret FROM hookgate_signing_keys ORDER BY generation DESC LIMIT 2";
pub(super) const INSERT_SIGNING_KEY: &str = "
    INSERT INTO hookgate_signing_keys (generation, created_ms, secret) VALUES ($1, $2, $3)
    ON CONFLICT (generation) DO NOTHING";
pub(super) const DELETE_OLD_SIGNING_KEYS: &str = "
    DELETE FROM hookgate_signing_keys
    WHERE generation NOT IN (SELECT generation FROM hookgate_signing_keys ORDER BY generation DESC LIMIT 2)";

/// Key, value, counter, version, milliseconds of the expiry.
pub(super) type EntryRow = (String, Option<Vec<u8>>, Option<i64>, i64, Option<i64>);
/// An entry without its key and value: counter, version, milliseconds of the expiry.
pub(super) type ChangeRow = (Option<i64>, i64, Option<i64>);
/// Generation, milliseconds of the creation, secret.
pub(super) type SigningKeyRow = (i64, i64, Vec<u8>);

/// The statements that change one key. [`ChangeRequest::query`] binds their parameters. Each returns a [`ChangeRow`] if
/// it changed something.
pub(super) struct ChangeStatements {
    pub(super) put: &'static str,
    /// Writes a value if there is no entry.
    pub(super) create: &'static str,
    /// Writes a value over one version.
    pub(super) replace: &'static str,
    pub(super) delete: &'static str,
    pub(super) delete_version: &'static str,
    pub(super) add: &'static str,
    /// Adds to a counter that has not expired.
    pub(super) add_existing: &'static str,
}

/// The statements of one database. `$greatest` is its function for the greater of two numbers, and `$clock` is an
/// expression for the microseconds since 1970. `$4` has them too, by the clock of this machine.
///
/// The bounds of counters are in the conditions: SQLite doesn't report an overflow, it continues with a floating-point
/// number.
macro_rules! change_statements {
    ($greatest:literal, $clock:literal) => {
        ChangeStatements {
            put: put_statement!($greatest, $clock, ""),
            create: put_statement!($greatest, $clock, "WHERE stored.expires_ms <= $7"),
            replace: concat!(
                "UPDATE hookgate_plugin_data
                 SET value = $5, counter = NULL, expires_ms = $6,
                 version = ", $greatest, "(version + 1, ", $clock, ")
                 WHERE plugin = $1 AND tenant = $2 AND key = $3
                 AND version = $8 AND (expires_ms IS NULL OR expires_ms > $7)
                 RETURNING counter, version, expires_ms"
            ),
            delete: "DELETE FROM hookgate_plugin_data
                 WHERE plugin = $1 AND tenant = $2 AND key = $3
                 RETURNING counter, version, expires_ms",
            delete_version: "DELETE FROM hookgate_plugin_data
                 WHERE plugin = $1 AND tenant = $2 AND key = $3
                 AND version = $5 AND (expires_ms IS NULL OR expires_ms > $4)
                 RETURNING counter, version, expires_ms",
            add: concat!(
                "INSERT INTO hookgate_plugin_data AS stored (plugin, tenant, key, version, counter, expires_ms)
                 VALUES ($1, $2, $3, ", $clock, ", $5, $9)
                 ON CONFLICT (plugin, tenant, key) DO UPDATE
                 SET value = NULL,
                 counter = CASE WHEN stored.expires_ms <= $6 THEN 0 ELSE stored.counter END + excluded.counter,
                 expires_ms = CASE WHEN stored.expires_ms <= $6 THEN excluded.expires_ms ELSE stored.expires_ms END,
                 version = ", $greatest, "(stored.version + 1, excluded.version)
                 WHERE stored.expires_ms <= $6 OR stored.counter BETWEEN $7 AND $8
                 RETURNING counter, version, expires_ms"
            ),
            add_existing: concat!(
                "UPDATE hookgate_plugin_data
                 SET counter = counter + $5, version = ", $greatest, "(version + 1, ", $clock, ")
                 WHERE plugin = $1 AND tenant = $2 AND key = $3
                 AND counter BETWEEN $7 AND $8 AND (expires_ms IS NULL OR expires_ms > $6)
                 RETURNING counter, version, expires_ms"
            ),
        }
    };
}
pub(super) use change_statements;

macro_rules! put_statement {
    ($greatest:literal, $clock:literal, $condition:literal) => {
        concat!(
            "INSERT INTO hookgate_plugin_data AS stored (plugin, tenant, key, version, value, expires_ms)
             VALUES ($1, $2, $3, ",
            $clock,
            ", $5, $6)
             ON CONFLICT (plugin, tenant, key) DO UPDATE
             SET value = excluded.value, counter = NULL, expires_ms = excluded.expires_ms,
             version = ",
            $greatest,
            "(stored.version + 1, excluded.version) ",
            $condition,
            " RETURNING counter, version, expires_ms"
        )
    };
}
pub(super) use put_statement;

impl DataScope {
    /// The tenant as the databases store it. No tenant's id is empty.
    pub(super) fn tenant_column(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }
}

/// One operation as it is requested.
#[derive(Clone, Copy)]
pub(super) struct ChangeRequest<'a> {
    pub(super) scope: &'a DataScope,
    pub(super) operation: &'a DataOperation,
    pub(super) now_ms: i64,
}

impl<'a> ChangeRequest<'a> {
    /// The operation's statement with its parameters. `clock` is in microseconds since 1970.
    pub(super) fn query<D>(
        self,
        statements: &ChangeStatements,
        clock: i64,
    ) -> QueryAs<'a, D, ChangeRow, D::Arguments>
    where
        D: Database,
        &'a str: Encode<'a, D> + Type<D>,
        &'a [u8]: Encode<'a, D> + Type<D>,
        i64: Encode<'a, D> + Type<D>,
        Option<i64>: Encode<'a, D> + Type<D>,
        ChangeRow: for<'r> FromRow<'r, D::Row>,
    {
        let Self { scope, operation, now_ms } = self;
        let start = |sql| {
            let query = sqlx::query_as::<D, ChangeRow>(sql);
            query.bind(&*scope.plugin).bind(scope.tenant_column()).bind(operation.key())
        };
        match operation {
            DataOperation::Put { value, expected, expires_ms, .. } => {
                let sql = match expected {
                    None => statements.put,
                    Some(0) => statements.create,
                    Some(_) => statements.replace,
                };
                let query = start(sql).bind(clock).bind(&**value).bind(*expires_ms);
                match expected {
                    None => query,
                    Some(0) => query.bind(now_ms),
                    Some(version) => query.bind(now_ms).bind(rows::key(*version)),
                }
            }
            DataOperation::Delete { expected: None, .. } => start(statements.delete),
            DataOperation::Delete { expected: Some(version), .. } => {
                start(statements.delete_version).bind(now_ms).bind(rows::key(*version))
            }
            DataOperation::Add { delta, limit, expires_ms, .. } => {
                let before = CounterBounds::new(*delta, *limit);
                let sql = if before.contains(0) { statements.add } else { statements.add_existing };
                let query =
                    start(sql).bind(clock).bind(*delta).bind(now_ms).bind(before.min).bind(before.max);
                if before.contains(0) { query.bind(*expires_ms) } else { query }
            }
        }
    }

    /// The result of the operation, whose statement returned `row`.
    pub(super) fn change(self, row: ChangeRow) -> Result<DataChange, StoreError> {
        let (counter, version, expires_ms) = row;
        Ok(match self.operation {
            DataOperation::Put { .. } => DataChange::Written { version: number(version)? },
            DataOperation::Delete { .. } => {
                DataChange::Deleted { existed: expires_ms.is_none_or(|expires| expires > self.now_ms) }
            }
            DataOperation::Add { key, .. } => {
                let counter = counter.ok_or_else(|| unusable(key))?;
                DataChange::Added { counter, version: number(version)?, expires_ms }
            }
        })
    }

    /// Why the operation changes nothing if the entry is `state`. Returns `None` if the operation can be made.
    pub(super) fn rejection(self, state: Option<ChangeRow>) -> Result<Option<RejectedReason>, StoreError> {
        let version = state.map(|(_, version, _)| number(version)).transpose()?;
        Ok(match self.operation {
            DataOperation::Put { expected: None, .. } | DataOperation::Delete { expected: None, .. } => None,
            DataOperation::Put { expected: Some(0), .. } => {
                version.map(|version| RejectedReason::Conflict { version })
            }
            DataOperation::Put { expected, .. } | DataOperation::Delete { expected, .. } => (version
                != *expected)
                .then(|| RejectedReason::Conflict { version: version.unwrap_or_default() }),
            DataOperation::Add { delta, limit, .. } => {
                let (counter, expires_ms) = match state {
                    Some((None, ..)) => return Ok(Some(RejectedReason::NotACounter)),
                    Some((Some(counter), _, expires_ms)) => (counter, expires_ms),
                    None => (0, None),
                };
                let fits = CounterBounds::new(*delta, *limit).contains(counter);
                (!fits).then_some(RejectedReason::LimitReached { counter, expires_ms })
            }
        })
    }
}

/// The counters to which a delta may be added.
struct CounterBounds {
    min: i64,
    max: i64,
}

impl CounterBounds {
    fn new(delta: i64, limit: i64) -> Self {
        Self { min: (-MAX_COUNTER).saturating_sub(delta), max: limit.min(MAX_COUNTER).saturating_sub(delta) }
    }

    fn contains(&self, counter: i64) -> bool {
        (self.min..=self.max).contains(&counter)
    }
}

/// The keys of a page: at least the first, but not `after`, and before the end if there is one. It is written such that
/// the databases read no other entries.
pub(super) struct KeyRange<'a> {
    pub(super) first: &'a str,
    pub(super) after: &'a str,
    pub(super) end: Option<String>,
    pub(super) most: i64,
}

impl<'a> KeyRange<'a> {
    pub(super) fn new(range: ListRange<'a>) -> Self {
        let ListRange { prefix, after, limit } = range;
        Self { first: prefix.max(after), after, end: prefix_end(prefix), most: rows::limit(limit) }
    }

    pub(super) fn sql(&self) -> &'static str {
        if self.end.is_some() { SELECT_PAGE_BEFORE } else { SELECT_PAGE }
    }
}

/// The first text after all that begin with `prefix`, by bytes. Returns `None` if there is none.
fn prefix_end(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// The sizes of statements that together delete at most `most` rows.
pub(super) fn batches(most: usize) -> impl Iterator<Item = usize> + Send {
    let sizes = (0..most).step_by(MAX_DELETED_ROWS);
    sizes.map(move |deleted| MAX_DELETED_ROWS.min(most - deleted))
}

pub(super) fn entry((key, value, counter, version, expires_ms): EntryRow) -> Result<DataEntry, StoreError> {
    let content = match (value, counter) {
        (Some(value), None) => EntryContent::Value(Bytes::from(value)),
        (None, Some(counter)) => EntryContent::Counter(counter),
        _ => return Err(unusable(&key)),
    };
    Ok(DataEntry { key, content, version: number(version)?, expires_ms })
}

pub(super) fn usage((entries, bytes): (i64, i64)) -> Result<DataUsage, StoreError> {
    Ok(DataUsage { entries: number(entries)?, bytes: number(bytes)? })
}

pub(super) fn signing_key((generation, created_ms, secret): SigningKeyRow) -> Result<SigningKey, StoreError> {
    let secret = <[u8; 32]>::try_from(secret)
        .map_err(|_| StoreError::Unusable(format!("signing key {generation} is not of 32 bytes")))?;
    Ok(SigningKey { generation: number(generation)?, created_ms, secret })
}

fn number(column: i64) -> Result<u64, StoreError> {
    u64::try_from(column)
        .map_err(|_| StoreError::Unusable("a number of plugins' data is negative".to_owned()))
}

fn unusable(key: &str) -> StoreError {
    StoreError::Unusable(format!("the entry {key:?} of plugins' data is neither a value nor a counter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_prefix_is_the_next_text_that_does_not_begin_with_it() {
        for (prefix, end) in [
            ("", None),
            ("a", Some("b")),
            ("a\u{7f}", Some("a\u{80}")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{ffff}", Some("a\u{10000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}\u{10ffff}", None),
        ] {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    #[test]
    fn batches_add_up_to_the_most() {
        assert_eq!(batches(0).count(), 0);
        assert_eq!(batches(2500).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert_eq!(batches(usize::MAX).next(), Some(1000));
    }

    #[test]
    fn bounds_of_counters_do_not_overflow() {
        for number in [i64::MIN, -MAX_COUNTER, -1, 0, 1, MAX_COUNTER, i64::MAX] {
            for limit in [i64::MIN, -MAX_COUNTER, -1, 0, 1, MAX_COUNTER, i64::MAX] {
                let bounds = CounterBounds::new(number, limit);
                for counter in [-MAX_COUNTER, -MAX_COUNTER + 1, -1, 0, 1, MAX_COUNTER - 1, MAX_COUNTER] {
                    let sum = i128::from(counter) + i128::from(number);
                    let max = i128::from(limit.min(MAX_COUNTER));
                    let fits = (-i128::from(MAX_COUNTER)..=max).contains(&sum);
                    assert_eq!(bounds.contains(counter), fits, "{counter} + {number}, {limit}");
                }
            }
        }
    }
}
