//! Where the registry is kept: plugins, tenants and bindings as they were written, and every revision that they went
//! through. SQLite in a file for one process, PostgreSQL for several; both keep the promises of [`Store`], and one suite
//! of tests holds both to them.
//!
//! Knows nothing of what is in an object. What may be written is the registry's matter; here it is only made sure that
//! whoever writes knew the revision that they wrote upon.

mod connections;
mod error;
mod location;
mod migrations;
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

pub use self::spec::Spec;
use self::{location::StoreLocation, postgres::Postgres, sqlite::Sqlite};

impl StoreInspection {
    /// Of a store that nothing was ever written to.
    fn nothing() -> Self {
        StoreInspection { snapshot: Snapshot { revision: 0, objects: Vec::new() }, tables: Tables::Absent }
    }
}

/// What is stored of an object beside its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectContent {
    /// Who may write it.
    pub owner: Owner,
    /// As an entry of the file would have it where files have its kind; references of plugins' config
    /// unresolved.
    pub spec: Spec,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// Unique among its kind.
    pub name: Arc<str>,
    /// The revision that wrote it last: never the same again, even where it was deleted in between.
    pub version: u64,
    /// What it says.
    #[serde(flatten)]
    pub content: ObjectContent,
}

/// All objects as they were at one revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// 0: nothing was ever written.
    pub revision: u64,
    /// By kind, then by name in the order of its bytes.
    #[serde(deserialize_with = "unknown_kinds::objects")]
    pub objects: Vec<Object>,
}

/// What a revision did to one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: Arc<str>,
    /// None: it was not there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<ObjectContent>,
    /// None: it is there no more.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<ObjectContent>,
}

/// One step in the life of the registry. Immutable.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// From 1, without gaps: the order in which they were committed.
    pub number: u64,
    /// When, by the clock of who wrote it; to the millisecond.
    pub at: OffsetDateTime,
    /// Who: an operator's name out of a token, or what stands for the file.
    pub author: String,
    /// Why, in the writer's words; may be empty.
    pub reason: String,
    /// At least one, each object once; in the order of [`Snapshot::objects`].
    pub changes: Vec<Change>,
}

/// What is to become a revision.
#[derive(Debug, Clone)]
pub struct RevisionDraft {
    /// Tells this write from every other, so that a lost answer to it can be found again.
    pub id: Uuid,
    /// The revision that it was made upon.
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

/// What was found in a store that nobody prepared.
#[derive(Debug, Clone)]
pub struct StoreInspection {
    /// Everything, as of one moment.
    pub snapshot: Snapshot,
    /// How its tables are.
    pub tables: Tables,
}

/// A store's tables, as this version sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tables {
    /// There are none yet: [`Store::prepare`] makes them.
    Absent,
    /// They lack what [`Store::prepare`] adds.
    Older,
    /// They are this version's.
    Current,
    /// A later version added to them, which this one works on with.
    Newer,
}

/// Why a store can't answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It can't be reached, or doesn't answer; it may later.
    #[error("the store can't be reached: {0}")]
    Unavailable(String),
    /// What is in it can't be what this version wrote, or it refuses what this version asks.
    #[error("the store is not usable: {0}")]
    Unusable(String),
}

/// Why a draft did not become a revision.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Others wrote in between: the draft has to be looked at again upon what is there now.
    #[error("the registry is already at revision {head}")]
    Moved {
        /// What is there now.
        head: u64,
    },
    /// Nothing was written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The connection was lost while it was written: nobody knows whether it was.
    #[error("the result of the write is unknown: {0}")]
    Unknown(String),
}

/// The store at `url`: `sqlite:PATH`, `postgres://...` or `postgresql://...`. No connection is made;
/// that is for [`Store::prepare`] to do. The error is a sentence that shows nothing secret.
pub fn open(url: &str) -> Result<Arc<dyn Store>, String> {
    Ok(match location::parse(url)? {
        StoreLocation::File(path) => Arc::new(Sqlite::new(path)),
        StoreLocation::Postgres(options) => Arc::new(Postgres::new(*options)),
    })
}

/// What [`open`] would say against `url`.
pub fn url_error(url: &str) -> Option<String> {
    location::parse(url).err()
}

/// What both databases promise. Nothing takes longer than some five seconds to find out that the database does not
/// answer.
#[async_trait]
pub trait Store: Send + Sync {
    /// Brings the tables up to this version; does nothing where they are, or are newer. Several processes may do so at
    /// once.
    async fn prepare(&self) -> Result<(), StoreError>;

    /// What is there, for whoever must not change it: nothing is made, nothing brought up to this version.
    async fn look(&self) -> Result<StoreInspection, StoreError>;

    /// The number of the last revision; 0 before the first.
    async fn head(&self) -> Result<u64, StoreError>;

    /// Everything, as of one moment.
    async fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// The revisions after `revision`, oldest first, `most` at most.
    async fn since(&self, revision: u64, most: usize) -> Result<Vec<Revision>, StoreError>;

    /// The revisions before `before` (none: from the last on), newest first, `most` at most.
    async fn before(&self, before: Option<u64>, most: usize) -> Result<Vec<Revision>, StoreError>;

    /// One revision; none: there is no such number.
    async fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError>;

    /// The number of the revision that the draft `id` became; none: it did not become one.
    async fn find_revision(&self, id: Uuid) -> Result<Option<u64>, StoreError>;

    /// Makes a revision of `draft`, whole or not at all, and gives its number: one more than [`RevisionDraft::base`]. A draft
    /// that became a revision before gives that one's number, and nothing is written.
    async fn commit(&self, draft: &RevisionDraft) -> Result<u64, CommitError>;

    /// Changes whenever a revision may have been written, by whomever: a hint that may be missing, and may say nothing
    /// new. Who follows asks for [`Store::head`] now and then as well. To be called on the runtime: the first call may
    /// start a task.
    fn hints(&self) -> watch::Receiver<u64>;

    /// Lets go of all connections.
    async fn close(&self);
}
