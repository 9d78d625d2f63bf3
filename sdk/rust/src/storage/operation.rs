//! Writes, and their results.

use std::time::Duration;

use bytes::Bytes;
use hookgate_proto::host::v1 as wire;

use crate::HostError;

/// Writes a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Put(wire::PutRequest);

/// Deletes an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete(wire::DeleteRequest);

/// Adds to a counter.
#[derive(Debug, Clone, PartialEq)]
pub struct Add(wire::AddRequest);

/// One change of [`Storage::transact`](super::Storage::transact). Made from a [`Put`], a [`Delete`] or an [`Add`]
/// with `into()`.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    pub(super) wire: wire::Operation,
    /// The limit of an addition, for its result.
    limit: Option<i64>,
}

impl Put {
    /// Writes `value`, at most 64 KiB, under `key`: 1 to 512 bytes, no control characters.
    pub fn new(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Put(wire::PutRequest { key: key.into(), value: value.into(), expected_version: None, ttl_ms: None })
    }

    /// Writes only if the entry has this version; 0: only if there is no entry.
    #[must_use]
    pub fn expected_version(mut self, version: u64) -> Self {
        self.0.expected_version = Some(version);
        self
    }

    /// The entry expires after this time, 1 ms to 366 days, rounded up to milliseconds. Without it, never.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl_ms = Some(milliseconds(ttl));
        self
    }

    pub(super) fn into_wire(self) -> wire::PutRequest {
        self.0
    }
}

impl Delete {
    /// Deletes the entry of `key`.
    pub fn new(key: impl Into<String>) -> Self {
        Delete(wire::DeleteRequest { key: key.into(), expected_version: None })
    }

    /// Deletes only if the entry has this version, at least 1.
    #[must_use]
    pub fn expected_version(mut self, version: u64) -> Self {
        self.0.expected_version = Some(version);
        self
    }

    pub(super) fn into_wire(self) -> wire::DeleteRequest {
        self.0
    }
}

impl Add {
    /// Adds `delta`, between -2^53 and 2^53, to the counter under `key`. A counter that doesn't exist is 0.
    pub fn new(key: impl Into<String>, delta: i64) -> Self {
        Add(wire::AddRequest { key: key.into(), delta, limit: None, window_ms: None })
    }

    /// Adds nothing if the counter would exceed `limit`, between -2^53 and 2^53.
    #[must_use]
    pub fn limit(mut self, limit: i64) -> Self {
        self.0.limit = Some(limit);
        self
    }

    /// The counter expires at the end of the window in which it was created. Windows of this length, 1 ms to
    /// 366 days, follow each other from 1970-01-01T00:00:00Z on: 24 h are UTC days, 60 s are full minutes. Without
    /// a window, the counter never expires.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.0.window_ms = Some(milliseconds(window));
        self
    }

    pub(super) fn limit_value(&self) -> Option<i64> {
        self.0.limit
    }

    pub(super) fn into_wire(self) -> wire::AddRequest {
        self.0
    }
}

impl Operation {
    fn new(operation: wire::operation::Operation, limit: Option<i64>) -> Self {
        Operation { wire: wire::Operation { operation: Some(operation) }, limit }
    }

    pub(super) fn limit_value(&self) -> Option<i64> {
        self.limit
    }
}

impl From<Put> for Operation {
    fn from(put: Put) -> Self {
        Operation::new(wire::operation::Operation::Put(put.0), None)
    }
}

impl From<Delete> for Operation {
    fn from(delete: Delete) -> Self {
        Operation::new(wire::operation::Operation::Delete(delete.0), None)
    }
}

impl From<Add> for Operation {
    fn from(add: Add) -> Self {
        let limit = add.0.limit;
        Operation::new(wire::operation::Operation::Add(add.0), limit)
    }
}

/// Rounds up, so that no positive time becomes 0.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The result of a [`Put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutResult {
    /// The value was written.
    Written {
        /// The entry's new version.
        version: u64,
    },
    /// The entry has another version than expected. Nothing was written. Impossible without an expected version.
    Conflict {
        /// The entry's version; 0 if there is none.
        version: u64,
    },
}

impl PutResult {
    /// Whether the value was written.
    pub fn is_written(self) -> bool {
        matches!(self, PutResult::Written { .. })
    }

    pub(super) fn from_wire(response: wire::PutResponse) -> Result<Self, HostError> {
        match response.result.ok_or_else(no_result)? {
            wire::put_response::Result::Written(wire::Written { version }) => {
                Ok(PutResult::Written { version })
            }
            wire::put_response::Result::Conflict(wire::Conflict { version }) => {
                Ok(PutResult::Conflict { version })
            }
        }
    }
}

/// The result of a [`Delete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteResult {
    /// There is no such entry any more.
    Deleted {
        /// Whether there was one.
        existed: bool,
    },
    /// The entry has another version than expected. Nothing was deleted. Impossible without an expected version.
    Conflict {
        /// The entry's version; 0 if there is none.
        version: u64,
    },
}

impl DeleteResult {
    pub(super) fn from_wire(response: wire::DeleteResponse) -> Result<Self, HostError> {
        match response.result.ok_or_else(no_result)? {
            wire::delete_response::Result::Deleted(wire::Deleted { existed }) => {
                Ok(DeleteResult::Deleted { existed })
            }
            wire::delete_response::Result::Conflict(wire::Conflict { version }) => {
                Ok(DeleteResult::Conflict { version })
            }
        }
    }
}

/// The result of an [`Add`]. With a limit, ask [`is_added`](Self::is_added).
#[must_use = "an addition beyond the limit adds nothing"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddResult {
    counter: i64,
    limit: Option<i64>,
    version: Option<u64>,
    resets_in: Option<Duration>,
}

impl AddResult {
    /// Whether the delta was added. If not, the counter would have exceeded the limit.
    pub fn is_added(self) -> bool {
        self.version.is_some()
    }

    /// The counter after the addition; unchanged if nothing was added.
    pub fn counter(self) -> i64 {
        self.counter
    }

    /// How much more can be added before the limit is reached, at least 0; `None` without a limit.
    pub fn remaining(self) -> Option<u64> {
        self.limit.map(|limit| u64::try_from(limit.saturating_sub(self.counter)).unwrap_or(0))
    }

    /// The entry's new version; `None` if nothing was added.
    pub fn version(self) -> Option<u64> {
        self.version
    }

    /// Time until the counter expires and starts again from 0, in whole milliseconds; `None` if it never does.
    pub fn resets_in(self) -> Option<Duration> {
        self.resets_in
    }

    pub(super) fn from_wire(response: wire::AddResponse, limit: Option<i64>) -> Result<Self, HostError> {
        match response.result.ok_or_else(no_result)? {
            wire::add_response::Result::Added(added) => Ok(AddResult::from_added(added, limit)),
            wire::add_response::Result::LimitReached(reached) => Ok(AddResult::from_limit(reached, limit)),
        }
    }

    fn from_added(added: wire::Added, limit: Option<i64>) -> Self {
        AddResult {
            counter: added.counter,
            limit,
            version: Some(added.version),
            resets_in: added.resets_in_ms.map(Duration::from_millis),
        }
    }

    fn from_limit(reached: wire::LimitReached, limit: Option<i64>) -> Self {
        let resets_in = reached.resets_in_ms.map(Duration::from_millis);
        AddResult { counter: reached.counter, limit, version: None, resets_in }
    }
}

/// The result of [`Storage::transact`](super::Storage::transact).
#[must_use = "a rejected transaction changes nothing"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactResult {
    /// Every change was made. One result for each operation, in their order.
    Committed(Vec<OperationResult>),
    /// No change was made.
    Rejected {
        /// The operation that could not be made, from 0.
        index: usize,
        /// Why.
        reason: RejectedReason,
    },
}

/// The result of one operation of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationResult {
    /// Of a [`Put`].
    Written {
        /// The entry's new version.
        version: u64,
    },
    /// Of a [`Delete`].
    Deleted {
        /// Whether there was an entry.
        existed: bool,
    },
    /// Of an [`Add`].
    Added(AddResult),
}

/// Why a transaction changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedReason {
    /// The entry of a [`Put`] or a [`Delete`] has another version than expected.
    Conflict {
        /// The entry's version; 0 if there is none.
        version: u64,
    },
    /// The counter of an [`Add`] would have exceeded the limit. It is unchanged.
    LimitReached(AddResult),
}

impl TransactResult {
    /// `limits` are those of the operations.
    pub(super) fn from_wire(
        response: wire::TransactResponse,
        limits: &[Option<i64>],
    ) -> Result<Self, HostError> {
        match response.result.ok_or_else(no_result)? {
            wire::transact_response::Result::Committed(wire::Committed { results }) => {
                if results.len() != limits.len() {
                    return Err(no_result());
                }
                let results = results.into_iter().zip(limits);
                let results = results.map(|(result, limit)| OperationResult::from_wire(result, *limit));
                Ok(TransactResult::Committed(results.collect::<Result<_, _>>()?))
            }
            wire::transact_response::Result::Rejected(rejected) => {
                let index = rejected.index as usize;
                let limit = limits.get(index).copied().flatten();
                let reason = match rejected.reason.ok_or_else(no_result)? {
                    wire::rejected::Reason::Conflict(wire::Conflict { version }) => {
                        RejectedReason::Conflict { version }
                    }
                    wire::rejected::Reason::LimitReached(reached) => {
                        RejectedReason::LimitReached(AddResult::from_limit(reached, limit))
                    }
                };
                Ok(TransactResult::Rejected { index, reason })
            }
        }
    }
}

impl OperationResult {
    fn from_wire(result: wire::OperationResult, limit: Option<i64>) -> Result<Self, HostError> {
        match result.result.ok_or_else(no_result)? {
            wire::operation_result::Result::Written(wire::Written { version }) => {
                Ok(OperationResult::Written { version })
            }
            wire::operation_result::Result::Deleted(wire::Deleted { existed }) => {
                Ok(OperationResult::Deleted { existed })
            }
            wire::operation_result::Result::Added(added) => {
                Ok(OperationResult::Added(AddResult::from_added(added, limit)))
            }
        }
    }
}

fn no_result() -> HostError {
    HostError::Failed("an answer without its result".to_owned())
}
