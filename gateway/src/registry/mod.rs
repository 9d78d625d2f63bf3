//! The registry: the objects that several gateways share, such as plugins. They are read from a store,
//! written to it in revisions, and followed as others write. This module knows what may be written and
//! under which preconditions. [`crate::store`] stores it, and [`crate::app`] uses it.
//!
//! Writes are optimistic: a write reads one revision and commits only if that is still the latest one;
//! otherwise it starts over. So each commit was validated as a whole, and the order of revisions is the
//! order of commits.

pub mod bypass;
mod consent;
pub mod document;
pub mod edit;
pub mod effect;
mod file;
mod follow;
mod history;
mod last_good;
pub mod listing;
mod masking;
pub mod operations;
mod snapshot;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use time::OffsetDateTime;
use tokio::{
    sync::{Mutex, watch},
    task::spawn_blocking,
    time::sleep,
};
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

pub use crate::registry::masking::masked;
pub use crate::registry::snapshot::{Contents, Entry, TypedObject, Unreadable};
use crate::{
    config::{self, LoadedConfig, Problems},
    core::{
        control_span::{control_span, record_error},
        object::{ObjectKind, Owner},
    },
    store::{
        self, Change, CommitError, PluginData, RevisionDraft, Store, StoreError, StoreInspection, Tables,
    },
    task::join::joined,
};
use file::OfFile;
pub use follow::StoreStatus;
use last_good::LastGood;

/// The maximum number of revisions to fetch one by one. A process further behind reads everything.
const MAX_INCREMENTAL_REVISIONS: u64 = 200;
/// How often a write is retried after a conflict.
const MAX_WRITE_ATTEMPTS: u32 = 50;
/// The maximum pause between retries, in milliseconds.
const MAX_RETRY_PAUSE_MS: u64 = 50;
/// How long to look for the revision of a write whose answer was lost.
const MAX_COMMIT_LOOKUP: Duration = Duration::from_secs(5);

/// The registry as this process knows it.
pub struct Registry {
    store: Arc<dyn Store>,
    /// As last read.
    contents: ArcSwap<Contents>,
    /// Notified on every change of `contents`.
    news: watch::Sender<()>,
    /// Held by the one reader.
    reading: Mutex<()>,
    /// Whether the store's tables exist.
    is_prepared: AtomicBool,
    /// Whether `contents` came from the store.
    is_read: AtomicBool,
    standing: ArcSwap<StoreStatus>,
    last_good: LastGood,
    /// What to save as the last good table.
    good: watch::Sender<Option<Arc<Contents>>>,
    /// What is saved.
    kept: ArcSwapOption<Contents>,
}

/// Why the registry can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The store doesn't answer, or can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A newer version wrote an object.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The store is at an older revision than before.
    #[error(
        "the store is at revision {head} and was at {seen} before: it was restored from a backup, or is another \
         database; restart the process to use its contents"
    )]
    WentBack {
        /// The store's revision.
        head: u64,
        /// The latest revision that this process has seen.
        seen: u64,
    },
    /// Others wrote every time.
    #[error("too many concurrent writes to the registry: try again")]
    Busy,
    /// The answer to a write was lost for good.
    #[error("{0}: check the registry before you try again")]
    Unknown(String),
    /// The contents would be invalid after the write.
    #[error("{0}")]
    Invalid(Problems),
}

impl RegistryError {
    /// The name of the kind, for telemetry.
    const fn as_str(&self) -> &'static str {
        match self {
            RegistryError::Store(error) => error.as_str(),
            RegistryError::Unreadable(_) => "unreadable",
            RegistryError::WentBack { .. } => "went_back",
            RegistryError::Busy => "busy",
            RegistryError::Unknown(_) => "unknown",
            RegistryError::Invalid(_) => "invalid",
        }
    }
}

/// The span of a write.
fn write_span(writer: &Writer, dry_run: bool) -> Span {
    control_span!(
        "registry write",
        "hookgate.operator.id" = writer.author,
        "hookgate.dry_run" = dry_run,
        "hookgate.revision" = Empty,
    )
}

/// Who writes, and why.
#[derive(Debug, Clone)]
pub struct Writer {
    /// The name of an operator in the token, or the file's stand-in.
    pub author: String,
    /// In the writer's words; may be empty.
    pub reason: String,
    /// A precondition: nothing is written unless this is the current revision.
    pub upon: Option<u64>,
}

/// What a start would find in the store, and make of it.
pub struct ApplyDryRun {
    /// What there would be.
    pub contents: Contents,
    /// The current revision.
    pub revision: u64,
    /// The state of the store's tables.
    pub tables: Tables,
    /// How many objects the API owns.
    pub of_api: usize,
    /// How many objects the start would write because the file differs.
    pub to_write: usize,
}

/// The changes that a writer proposes.
pub struct WriteProposal<T> {
    /// Empty if nothing needs to change.
    pub changes: Vec<Change>,
    /// Anything else that the proposal found out.
    pub finding: T,
}

/// The result of a proposal.
pub struct CommitOutcome<T> {
    /// The new revision; `None` for a dry run, or if nothing needed to change.
    pub revision: Option<u64>,
    /// The changes that were made, or would be.
    pub changes: Vec<Change>,
    /// See [`WriteProposal::finding`].
    pub finding: T,
}

/// Validates the contents as they would be after a write.
pub type ContentsCheck = dyn Fn(&Contents) -> Result<(), Problems> + Send + Sync;

impl Registry {
    /// Plugins' data, in the same database.
    pub fn plugin_data(&self) -> Arc<dyn PluginData> {
        Arc::clone(&self.store) as Arc<dyn PluginData>
    }

    /// Opens the registry in `settings` without reading it.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn open(settings: &config::Store) -> Result<Arc<Self>, String> {
        let store = store::open(&settings.url.0)?;
        Ok(Arc::new(Registry {
            store,
            contents: ArcSwap::default(),
            news: watch::Sender::new(()),
            reading: Mutex::new(()),
            is_prepared: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            standing: ArcSwap::from_pointee(StoreStatus::new()),
            last_good: LastGood::new(&settings.last_good, &settings.url.display()),
            good: watch::Sender::new(None),
            kept: ArcSwapOption::empty(),
        }))
    }

    /// The contents as last read.
    pub fn contents(&self) -> Arc<Contents> {
        self.contents.load_full()
    }

    /// Notified whenever other contents were read.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Reads up to the store's current revision.
    ///
    /// # Errors
    /// If it can't be read, or not by this version. The previous contents stay.
    pub async fn catch_up(&self) -> Result<Arc<Contents>, RegistryError> {
        let _one = self.reading.lock().await;
        if !self.is_prepared.load(Ordering::Acquire) {
            self.noted(self.store.prepare().await)?;
            self.is_prepared.store(true, Ordering::Release);
        }
        let now = self.contents();
        let head = self.noted(self.store.head().await)?;
        self.note_head(head);
        let is_read = self.is_read.load(Ordering::Acquire);
        if head < now.revision() {
            return Err(RegistryError::WentBack { head, seen: now.revision() });
        }
        if is_read && head == now.revision() {
            return Ok(now);
        }
        let next = if is_read { self.step_by_step(&now, head).await? } else { None };
        let next = match next {
            Some(next) => next,
            None => {
                let snapshot = self.noted(self.store.snapshot().await)?;
                let before = Arc::clone(&now);
                joined(spawn_blocking(move || {
                    Ok::<_, Unreadable>(Contents::read(snapshot)?.recalling(&before))
                }))
                .await?
            }
        };
        let next = Arc::new(next);
        self.contents.store(Arc::clone(&next));
        self.news.send_replace(());
        self.is_read.store(true, Ordering::Release);
        self.note_confirmed();
        Ok(next)
    }

    /// Applies the revisions after `now` up to `head` one by one. Returns `None` if it is too far behind,
    /// or if a revision on the way can't be read by this version: a full read may not contain that object
    /// any more.
    async fn step_by_step(&self, now: &Arc<Contents>, head: u64) -> Result<Option<Contents>, RegistryError> {
        if head - now.revision() > MAX_INCREMENTAL_REVISIONS {
            return Ok(None);
        }
        let revisions =
            self.noted(self.store.since(now.revision(), MAX_INCREMENTAL_REVISIONS as usize).await)?;
        let now = Arc::clone(now);
        let steps = move || {
            let mut next = Contents::clone(&now);
            for revision in revisions {
                next = next.after(revision.number, &revision.changes).ok()?;
            }
            Some(next)
        };
        Ok(joined(spawn_blocking(steps)).await)
    }

    /// Commits what `propose` returns as a revision; a `dry_run` stops before the commit. After a conflict,
    /// `propose` is called again with the new contents.
    ///
    /// # Errors
    /// Nothing was written, except perhaps for [`RegistryError::Unknown`].
    pub async fn write<T, E: From<RegistryError>, F>(
        &self,
        writer: &Writer,
        dry_run: bool,
        propose: impl Fn(Arc<Contents>) -> F,
    ) -> Result<CommitOutcome<T>, E>
    where
        F: Future<Output = Result<WriteProposal<T>, E>>,
    {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let now = self.catch_up().await?;
            let WriteProposal { changes, finding } = propose(Arc::clone(&now)).await?;
            if dry_run || changes.is_empty() {
                return Ok(CommitOutcome { revision: None, changes, finding });
            }
            let draft = RevisionDraft {
                id: Uuid::now_v7(),
                base: now.revision(),
                at: OffsetDateTime::now_utc(),
                author: writer.author.clone(),
                reason: writer.reason.clone(),
                changes,
            };
            if let Some(number) = self.commit(&draft).await? {
                return Ok(CommitOutcome { revision: Some(number), changes: draft.changes, finding });
            }
            sleep(Duration::from_millis(fastrand::u64(1..=MAX_RETRY_PAUSE_MS))).await;
        }
        Err(RegistryError::Busy.into())
    }

    /// Commits `draft`; returns `None` on a conflict.
    async fn commit(&self, draft: &RevisionDraft) -> Result<Option<u64>, RegistryError> {
        match self.store.commit(draft).await {
            Ok(number) => {
                self.note_head(number);
                Ok(Some(number))
            }
            Err(CommitError::Moved { .. }) => Ok(None),
            Err(CommitError::Store(error)) => {
                Err(self.noted::<()>(Err(error)).expect_err("it is one").into())
            }
            Err(CommitError::Unknown(why)) => self.find(draft.id, why).await.map(Some),
        }
    }

    /// Finds out whether the draft `id` was committed after its answer was lost.
    async fn find(&self, id: Uuid, why: String) -> Result<u64, RegistryError> {
        let looking = async {
            loop {
                match self.store.find_revision(id).await {
                    Ok(found) => return found,
                    Err(_) => sleep(Duration::from_millis(MAX_RETRY_PAUSE_MS)).await,
                }
            }
        };
        match tokio::time::timeout(MAX_COMMIT_LOOKUP, looking).await {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(StoreError::Unavailable(why).into()),
            Err(_) => Err(RegistryError::Unknown(why)),
        }
    }

    /// Makes the objects that the file owns equal to `loaded`, in at most one revision.
    ///
    /// # Errors
    /// See [`Registry::write`]. Objects that are in the file but owned by the API are among the problems.
    pub async fn apply(
        &self,
        loaded: &LoadedConfig,
        file: &str,
        check: Arc<ContentsCheck>,
    ) -> Result<(), RegistryError> {
        let objects = OfFile::new(loaded);
        let writer = Writer { author: "file".into(), reason: format!("applied {file}"), upon: None };
        let (objects, check) = (&objects, &check);
        let propose = |now: Arc<Contents>| async move {
            let changes = file_changes(loaded, objects, &now)?;
            if !changes.is_empty() {
                checked(check, now.after(now.revision() + 1, &changes)?).await?;
            }
            Ok::<_, RegistryError>(WriteProposal { changes, finding: () })
        };
        let span = write_span(&writer, false);
        let written = self.write(&writer, false, propose).instrument(span.clone()).await;
        let revision = written.inspect_err(|error| record_error(&span, error.as_str()))?.revision;
        span.record("hookgate.revision", revision);
        if let Some(revision) = revision {
            tracing::info!(revision, file, "the file was written to the registry");
        }
        Ok(())
    }

    /// Previews what a start with `loaded` would find and, if it `applies` the file, write. Writes nothing.
    ///
    /// # Errors
    /// As [`Registry::apply`], and as [`Registry::catch_up`].
    pub async fn dry_run_apply(
        &self,
        loaded: &LoadedConfig,
        applies: bool,
    ) -> Result<ApplyDryRun, RegistryError> {
        let StoreInspection { snapshot, tables } = self.store.look().await?;
        let now = Contents::read(snapshot)?;
        let revision = now.revision();
        let changes = if applies { file_changes(loaded, &OfFile::new(loaded), &now)? } else { Vec::new() };
        let is_of_api = |entry: &&Arc<Entry>| {
            entry.object.content.owner == Owner::Api && ObjectKind::LISTED.contains(&entry.object.kind)
        };
        let of_api = now.entries().iter().filter(is_of_api).count();
        let contents = now.after(revision + u64::from(!changes.is_empty()), &changes)?;
        Ok(ApplyDryRun { contents, revision, tables, of_api, to_write: changes.len() })
    }

    /// Reads the last good table from the local file, for a start while the store can't be reached. Returns
    /// `None` if there is no usable file, and logs why.
    pub fn last_good(&self) -> Option<Arc<Contents>> {
        let path = self.last_good.path().display();
        let snapshot = match self.last_good.read() {
            Ok(snapshot) => snapshot?,
            Err(why) => {
                tracing::error!(%path, "the last good table {why}");
                return None;
            }
        };
        match Contents::read(snapshot) {
            Ok(contents) => {
                let contents = Arc::new(contents);
                self.contents.store(Arc::clone(&contents));
                self.note_assumed();
                Some(contents)
            }
            Err(error) => {
                tracing::error!(%path, %error, "the last good table can't be used");
                None
            }
        }
    }
}

/// What makes `now` what the file `loaded` says: the one place for a write and for its dry run.
fn file_changes(
    loaded: &LoadedConfig,
    objects: &OfFile,
    now: &Contents,
) -> Result<Vec<Change>, RegistryError> {
    objects.changes(now).map_err(|conflicts| RegistryError::Invalid(loaded.render(&conflicts)))
}

/// Runs the check on a blocking thread, because it can take long.
async fn checked(check: &Arc<ContentsCheck>, next: Contents) -> Result<(), RegistryError> {
    let check = Arc::clone(check);
    joined(spawn_blocking(move || check(&next))).await.map_err(RegistryError::Invalid)
}

#[cfg(test)]
#[path = "dry_run_tests.rs"]
mod dry_run;
