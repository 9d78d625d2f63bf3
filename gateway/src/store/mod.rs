//! The registry's storage: objects as they were written, and every revision of them. Plugins' data
//! is in the same database.
//! SQLite keeps them in a file for one process, PostgreSQL for several. Both implement [`Store`], and one
//! test suite checks both.
//!
//! The store doesn't interpret objects. The registry decides what may be written; the store only checks that
//! the writer knew the revision that the write is based on.

mod connections;
mod error;
mod location;
mod migrations;
mod plugin_data;
mod postgres;
mod rows;
mod spec;
mod sqlite;
mod unknown_kinds;

use crate::core::object::{ObjectKind, Owner};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::watch;
use uuid::Uuid;

use self::{location::StoreLocation, postgres::Postgres, sqlite::Sqlite};
pub use self::{
    plugin_data::{
        DataChange, DataEntry, DataOperation, DataScope, DataUsage, EntryContent, ListRange, MAX_COUNTER,
        PluginData, RejectedReason, RejectedWrite, SigningKey,
    },
    spec::Spec,
};

impl StoreInspection {
    /// The contents of a store that was never written to.
    fn nothing() -> Self {
        StoreInspection { snapshot: Snapshot { revision: 0, objects: Vec::new() }, tables: Tables::Absent }
    }
}

/// The stored contents of an object, apart from its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectContent {
    /// Who may write the object.
    pub owner: Owner,
    /// In the form of an entry in the configuration file, for kinds that it has. References in plugins'
    /// config are unresolved.
    pub spec: Spec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub kind: ObjectKind,
    /// Unique among objects of the same kind.
    pub name: Arc<str>,
    /// The revision that last wrote the object. Never reused, even if the object is deleted and created
    /// again.
    pub version: u64,
    #[serde(flatten)]
    pub content: ObjectContent,
}

/// All objects at one revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// 0 if nothing was ever written.
    pub revision: u64,
    /// Sorted by kind, then by the bytes of the name.
    #[serde(deserialize_with = "unknown_kinds::objects")]
    pub objects: Vec<Object>,
}

/// What a revision changed in one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub kind: ObjectKind,
    pub name: Arc<str>,
    /// `None` if the object was created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<ObjectContent>,
    /// `None` if the object was deleted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<ObjectContent>,
}

/// One revision of the registry. Immutable.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// From 1, without gaps, in the order of commits.
    pub number: u64,
    /// The time by the writer's clock, to the millisecond.
    pub at: OffsetDateTime,
    /// The writer: an operator's name from a token, or a name that stands for the file.
    pub author: String,
    /// The reason in the writer's words; may be empty.
    pub reason: String,
    /// At least one, and one for each object, in the order of [`Snapshot::objects`].
    pub changes: Vec<Change>,
}

/// A write that has not become a revision yet.
#[derive(Debug, Clone)]
pub struct RevisionDraft {
    /// Identifies this write, so that its revision can be found if the answer to the write is lost.
    pub id: Uuid,
    /// The revision that the write is based on.
    pub base: u64,
    /// See [`Revision::at`].
    pub at: OffsetDateTime,
    /// See [`Revision::author`].
    pub author: String,
    /// See [`Revision::reason`].
    pub reason: String,
    /// See [`Revision::changes`].
    pub changes: Vec<Change>,
}

/// The contents of a store that was not prepared.
#[derive(Debug, Clone)]
pub struct StoreInspection {
    /// All objects, as of one moment.
    pub snapshot: Snapshot,
    /// The state of the tables.
    pub tables: Tables,
}

/// The state of a store's tables, compared to this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tables {
    /// There are none yet; [`Store::prepare`] creates them.
    Absent,
    /// Some are missing; [`Store::prepare`] adds them.
    Older,
    /// They are those of this version.
    Current,
    /// A later version has added to them. This version still works with them.
    Newer,
}

/// Why a store can't answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store can't be reached or doesn't respond; it may later.
    #[error("the store can't be reached: {0}")]
    Unavailable(String),
    /// The contents can't have been written by this version, or the store refuses what this version needs.
    #[error("the store is not usable: {0}")]
    Unusable(String),
}

impl StoreError {
    /// The name of the kind, for telemetry.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StoreError::Unavailable(_) => "unavailable",
            StoreError::Unusable(_) => "unusable",
        }
    }
}

/// Why a draft did not become a revision.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Others have written in between. The draft must be checked again against the current contents.
    #[error("the registry is already at revision {head}")]
    Moved {
        /// The current revision.
        head: u64,
    },
    /// Nothing was written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The connection was lost during the write, and its outcome is unknown.
    #[error("the result of the write is unknown: {0}")]
    Unknown(String),
}

/// The store at `url`: `sqlite:PATH`, `postgres://...` or `postgresql://...`. Doesn't connect;
/// [`Store::prepare`] does. The error is a sentence without secrets.
pub fn open(url: &str) -> Result<Arc<dyn Store>, String> {
    Ok(match location::parse(url)? {
        StoreLocation::File(path) => Arc::new(Sqlite::new(path)),
        StoreLocation::Postgres(options) => Arc::new(Postgres::new(*options)),
    })
}

/// The error that [`open`] would return for `url`.
pub fn url_error(url: &str) -> Option<String> {
    location::parse(url).err()
}

/// The contract of both databases. Every method takes at most about five seconds to detect that the database
/// doesn't respond.
#[async_trait]
pub trait Store: PluginData {
    /// Brings the tables up to this version. Does nothing if they are current or newer. Several processes may
    /// call this at the same time.
    async fn prepare(&self) -> Result<(), StoreError>;

    /// Reads the contents without changing anything: creates no tables and runs no migrations.
    async fn look(&self) -> Result<StoreInspection, StoreError>;

    /// The number of the last revision; 0 before the first.
    async fn head(&self) -> Result<u64, StoreError>;

    /// All objects, as of one moment.
    async fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// The revisions after `revision`, oldest first, at most `most`.
    async fn since(&self, revision: u64, most: usize) -> Result<Vec<Revision>, StoreError>;

    /// The revisions before `before`, newest first, at most `most`. `None` starts at the last revision.
    async fn before(&self, before: Option<u64>, most: usize) -> Result<Vec<Revision>, StoreError>;

    /// One revision. Returns `None` if the number doesn't exist.
    async fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError>;

    /// The number of the revision that the draft `id` became. Returns `None` if it did not become one.
    async fn find_revision(&self, id: Uuid) -> Result<Option<u64>, StoreError>;

    /// Writes `draft` as a revision, atomically, and returns its number: [`RevisionDraft::base`] plus one. If
    /// the draft already became a revision, writes nothing and returns that number.
    async fn commit(&self, draft: &RevisionDraft) -> Result<u64, CommitError>;

    /// A counter that changes whenever any process may have written a revision. It is only a hint: changes
    /// may be missed or spurious, so followers should also poll [`Store::head`]. Call this within the
    /// runtime: the first call may start a task.
    fn hints(&self) -> watch::Receiver<u64>;

    /// Closes all connections.
    async fn close(&self);
}
