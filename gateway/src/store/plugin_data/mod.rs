//! Data of plugins in the registry's database: entries by plugin, tenant and key, and the keys that sign plugins'
//! tokens. One test suite checks both databases.
//!
//! The store doesn't check sizes, quotas or capabilities; [`crate::host`] does.

mod postgres;
mod sql;
mod sqlite;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;

/// Counters stay between minus this and this, so that every JSON parser reads them exactly.
pub const MAX_COUNTER: i64 = 1 << 53;

/// Whose data an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataScope {
    pub plugin: Arc<str>,
    /// `None` for the plugin's own data, which belongs to no tenant.
    pub tenant: Option<Arc<str>>,
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryContent {
    Value(Bytes),
    Counter(i64),
}

/// An entry that has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataEntry {
    pub key: String,
    pub content: EntryContent,
    /// At least 1. A later write of the key has a greater one. That includes a write after a deletion, unless the
    /// database's clock was set back in between.
    pub version: u64,
    /// Milliseconds since 1970; `None` if it never expires. At this moment, the entry no longer exists.
    pub expires_ms: Option<i64>,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataOperation {
    /// Writes a value, also in place of a counter.
    Put {
        key: String,
        value: Bytes,
        /// Write only over this version; `Some(0)`: only if there is no entry.
        expected: Option<u64>,
        expires_ms: Option<i64>,
    },
    Delete {
        key: String,
        /// Delete only this version.
        expected: Option<u64>,
    },
    /// Adds to a counter. One that doesn't exist, or has expired, is 0.
    Add {
        key: String,
        /// Between minus [`MAX_COUNTER`] and it.
        delta: i64,
        /// Add nothing if the counter would exceed this; at most [`MAX_COUNTER`].
        limit: i64,
        /// For a counter that this creates. An existing one keeps its own.
        expires_ms: Option<i64>,
    },
}

impl DataOperation {
    pub fn key(&self) -> &str {
        match self {
            DataOperation::Put { key, .. }
            | DataOperation::Delete { key, .. }
            | DataOperation::Add { key, .. } => key,
        }
    }
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataChange {
    Written { version: u64 },
    Deleted { existed: bool },
    Added { counter: i64, version: u64, expires_ms: Option<i64> },
}

/// Why a write changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectedReason {
    /// The entry's version is another than expected; 0 if there is none.
    Conflict { version: u64 },
    /// The counter would exceed the limit, or leave the range of counters.
    LimitReached { counter: i64, expires_ms: Option<i64> },
    /// The key holds a value.
    NotACounter,
}

/// The operation that made a write change nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedWrite {
    /// Its index in the request.
    pub index: usize,
    pub reason: RejectedReason,
}

/// How much of its quota a scope uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DataUsage {
    pub entries: u64,
    /// Of keys and values. A counter counts as 8.
    pub bytes: u64,
}

/// A key that signs plugins' tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// From 1, without gaps.
    pub generation: u64,
    /// Milliseconds since 1970, by the clock of the gateway that made it.
    pub created_ms: i64,
    pub secret: [u8; 32],
}

/// A page of [`PluginData::list`].
#[derive(Debug, Clone, Copy)]
pub struct ListRange<'a> {
    pub prefix: &'a str,
    /// Keys after this one; empty: from the first on.
    pub after: &'a str,
    /// Most entries.
    pub limit: usize,
}

/// The contract of both databases. `now_ms` is the caller's clock, in milliseconds since 1970. As with
/// [`super::Store`], a method takes at most about five seconds to detect that the database doesn't respond.
#[async_trait]
pub trait PluginData: Send + Sync {
    /// The entries of `keys` that exist, as of one moment, in no particular order.
    async fn read(
        &self,
        scope: &DataScope,
        keys: &[String],
        now_ms: i64,
    ) -> Result<Vec<DataEntry>, StoreError>;

    /// Entries in the order of their keys' bytes.
    async fn list(
        &self,
        scope: &DataScope,
        range: ListRange<'_>,
        now_ms: i64,
    ) -> Result<Vec<DataEntry>, StoreError>;

    /// Makes all of `operations`, each on another key, or none. Returns their results in order. One operation alone is
    /// one statement, unless it is rejected. After an error, the write may or may not have happened.
    async fn write(
        &self,
        scope: &DataScope,
        operations: &[DataOperation],
        now_ms: i64,
    ) -> Result<Result<Vec<DataChange>, RejectedWrite>, StoreError>;

    /// What the entries that have not expired use.
    async fn usage(&self, scope: &DataScope, now_ms: i64) -> Result<DataUsage, StoreError>;

    /// Deletes at most `most` entries that have expired, and returns how many.
    async fn delete_expired(&self, now_ms: i64, most: usize) -> Result<u64, StoreError>;

    /// Deletes all data of a plugin, for every tenant, and returns how many entries. Not atomic: others see some entries
    /// before the last is gone, and what is written meanwhile may stay.
    async fn delete_plugin(&self, plugin: &str) -> Result<u64, StoreError>;

    /// The two newest keys, the newest first.
    async fn signing_keys(&self) -> Result<Vec<SigningKey>, StoreError>;

    /// Adds `key`, unless its generation exists already, and deletes all but the two newest.
    async fn add_signing_key(&self, key: &SigningKey) -> Result<(), StoreError>;
}
