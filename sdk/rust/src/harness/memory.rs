//! The entries of a [`TestHost`](super::TestHost): what the storage's methods do, without tokens and sizes.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    time::Duration,
};

use hookgate_proto::host::v1::{
    self as wire, entry::Content, operation::Operation, operation_result::Result as Done, rejected::Reason,
};
use tokio::time::Instant;

use super::validation::MAX_COUNTER;

/// 2026-01-01T00:00:00Z, in milliseconds since 1970.
const START_MS: u64 = 1_767_225_600_000;
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Whose data an entry is: the plugin's, and the tenant's unless it is the plugin's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub(super) plugin: String,
    pub(super) tenant: Option<String>,
}

#[derive(Debug, Clone)]
struct StoredEntry {
    content: Content,
    version: u64,
    expires_ms: Option<u64>,
}

type Entries = BTreeMap<String, StoredEntry>;

/// Why an operation can't be made.
pub(super) enum Refusal {
    /// The whole write changes nothing.
    Rejected(wire::Rejected),
    /// The key of an addition holds a value.
    NotACounter(String),
    /// The data would exceed the quota.
    QuotaExceeded,
}

/// All entries.
pub(super) struct Memory {
    start: Instant,
    scopes: HashMap<Scope, Entries>,
    version: u64,
    /// The most bytes of a scope's keys and values.
    pub(super) quota_bytes: Option<u64>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Memory { start: Instant::now(), scopes: HashMap::new(), version: 0, quota_bytes: None }
    }

    fn now_ms(&self) -> u64 {
        START_MS + milliseconds(self.start.elapsed())
    }

    pub(super) fn get(&mut self, scope: &Scope, key: &str) -> Option<wire::Entry> {
        let now = self.now_ms();
        let (key, entry) = self.alive(scope, now).get_key_value(key)?;
        Some(entry.to_wire(key, now))
    }

    pub(super) fn list(&mut self, scope: &Scope, request: &wire::ListRequest) -> wire::ListResponse {
        let now = self.now_ms();
        let most = if request.page_size == 0 { 100 } else { request.page_size as usize };
        let after = (Bound::Excluded(request.after.as_str()), Bound::Unbounded);
        let from = (Bound::Included(request.prefix.as_str()), Bound::Unbounded);
        let range = if request.after < request.prefix { from } else { after };
        let entries = self.alive(scope, now);
        let mut found = entries.range::<str, _>(range);
        let mut response = wire::ListResponse::default();
        let mut bytes = 0;
        for (key, entry) in found.by_ref().take_while(|(key, _)| key.starts_with(&request.prefix)) {
            bytes += size(key, entry);
            let is_full = response.entries.len() == most || bytes > MAX_PAGE_BYTES;
            if is_full && let Some(last) = response.entries.last() {
                response.next_after.clone_from(&last.key);
                break;
            }
            response.entries.push(entry.to_wire(key, now));
        }
        response
    }

    /// Makes all of the operations or none.
    pub(super) fn write(&mut self, scope: &Scope, operations: Vec<Operation>) -> Result<Vec<Done>, Refusal> {
        let now = self.now_ms();
        let mut version = self.version;
        let mut entries = self.alive(scope, now).clone();
        let mut results = Vec::with_capacity(operations.len());
        for (index, operation) in operations.into_iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            version += 1;
            let done = match operation {
                Operation::Put(put) => entries.put(put, version, now),
                Operation::Delete(delete) => entries.delete(&delete),
                Operation::Add(add) => entries.add(add, version, now)?,
            };
            let rejected = |reason| Refusal::Rejected(wire::Rejected { index, reason: Some(reason) });
            results.push(done.map_err(rejected)?);
        }
        let used: u64 = entries.iter().map(|(key, entry)| size(key, entry) as u64).sum();
        if self.quota_bytes.is_some_and(|quota| used > quota) {
            return Err(Refusal::QuotaExceeded);
        }
        self.version = version;
        self.scopes.insert(scope.clone(), entries);
        Ok(results)
    }

    /// The entries that have not expired.
    fn alive(&mut self, scope: &Scope, now: u64) -> &Entries {
        let entries = self.scopes.entry(scope.clone()).or_default();
        entries.retain(|_, entry| entry.expires_ms.is_none_or(|expires| expires > now));
        entries
    }
}

trait Writes {
    fn put(&mut self, put: wire::PutRequest, version: u64, now: u64) -> Result<Done, Reason>;
    fn delete(&mut self, delete: &wire::DeleteRequest) -> Result<Done, Reason>;
    fn add(&mut self, add: wire::AddRequest, version: u64, now: u64)
    -> Result<Result<Done, Reason>, Refusal>;
    fn check_version(&self, key: &str, expected: Option<u64>) -> Result<(), Reason>;
}

impl Writes for Entries {
    fn put(&mut self, put: wire::PutRequest, version: u64, now: u64) -> Result<Done, Reason> {
        self.check_version(&put.key, put.expected_version)?;
        let expires_ms = put.ttl_ms.map(|ttl| now + ttl);
        self.insert(put.key, StoredEntry { content: Content::Value(put.value), version, expires_ms });
        Ok(Done::Written(wire::Written { version }))
    }

    fn delete(&mut self, delete: &wire::DeleteRequest) -> Result<Done, Reason> {
        self.check_version(&delete.key, delete.expected_version)?;
        Ok(Done::Deleted(wire::Deleted { existed: self.remove(&delete.key).is_some() }))
    }

    fn add(
        &mut self,
        add: wire::AddRequest,
        version: u64,
        now: u64,
    ) -> Result<Result<Done, Reason>, Refusal> {
        let (counter, expires_ms) = match self.get(&add.key) {
            Some(StoredEntry { content: Content::Counter(counter), expires_ms, .. }) => {
                (*counter, *expires_ms)
            }
            Some(_) => return Err(Refusal::NotACounter(add.key)),
            None => (0, add.window_ms.map(|window| (now / window + 1) * window)),
        };
        let resets_in_ms = expires_ms.map(|expires| expires - now);
        let sum = counter.saturating_add(add.delta);
        if sum > add.limit.unwrap_or(MAX_COUNTER) || !(-MAX_COUNTER..=MAX_COUNTER).contains(&sum) {
            return Ok(Err(Reason::LimitReached(wire::LimitReached { counter, resets_in_ms })));
        }
        self.insert(add.key, StoredEntry { content: Content::Counter(sum), version, expires_ms });
        Ok(Ok(Done::Added(wire::Added { counter: sum, version, resets_in_ms })))
    }

    fn check_version(&self, key: &str, expected: Option<u64>) -> Result<(), Reason> {
        let version = self.get(key).map_or(0, |entry| entry.version);
        match expected {
            Some(expected) if expected != version => Err(Reason::Conflict(wire::Conflict { version })),
            _ => Ok(()),
        }
    }
}

impl StoredEntry {
    fn to_wire(&self, key: &str, now: u64) -> wire::Entry {
        wire::Entry {
            key: key.to_owned(),
            content: Some(self.content.clone()),
            version: self.version,
            expires_in_ms: self.expires_ms.map(|expires| expires - now),
        }
    }
}

/// A counter counts as 8 bytes.
fn size(key: &str, entry: &StoredEntry) -> usize {
    key.len()
        + match &entry.content {
            Content::Value(value) => value.len(),
            Content::Counter(_) => 8,
        }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
