//! What the storage holds.

use std::time::Duration;

use bytes::Bytes;
use hookgate_proto::host::v1 as wire;

/// An entry. One that has expired is never returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// 1 to 512 bytes, no control characters.
    pub key: String,
    /// What it holds.
    pub content: Content,
    /// Changes with every write of the key, and never returns to an earlier number. At least 1.
    pub version: u64,
    /// Time until it expires, in whole milliseconds; `None` if it never does.
    pub expires_in: Option<Duration>,
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Written by [`Storage::put`](super::Storage::put); at most 64 KiB.
    Value(Bytes),
    /// Written by [`Storage::add`](super::Storage::add); between -2^53 and 2^53.
    Counter(i64),
}

impl Entry {
    /// The value; `None` if the entry holds a counter.
    pub fn value(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Value(value) => Some(value),
            Content::Counter(_) => None,
        }
    }

    /// The counter; `None` if the entry holds a value.
    pub fn counter(&self) -> Option<i64> {
        match &self.content {
            Content::Value(_) => None,
            Content::Counter(counter) => Some(*counter),
        }
    }

    pub(super) fn from_wire(entry: wire::Entry) -> Self {
        let content = match entry.content {
            Some(wire::entry::Content::Counter(counter)) => Content::Counter(counter),
            Some(wire::entry::Content::Value(value)) => Content::Value(value),
            None => Content::Value(Bytes::new()),
        };
        let expires_in = entry.expires_in_ms.map(Duration::from_millis);
        Entry { key: entry.key, content, version: entry.version, expires_in }
    }
}

/// A page of [`Storage::list_page`](super::Storage::list_page).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys' bytes.
    pub entries: Vec<Entry>,
    /// Pass it as `after` for the next page; `None` if this is the last one.
    pub next_after: Option<String>,
}
