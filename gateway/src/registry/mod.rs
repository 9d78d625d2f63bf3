//! Plugins, tenants and bindings as several gateways share them: read from a store, written to it in revisions, followed
//! as others write. Knows what may be written and upon what; where it is kept is [`crate::store`]'s, what is made of it
//! [`crate::app`]'s.
//!
//! A write looks at one revision and is committed upon that very one: whoever wrote in between makes it look again. So
//! what is committed was checked as a whole, and the order of revisions is the order of commits.

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
use uuid::Uuid;

pub use crate::registry::masking::masked;
pub use crate::registry::snapshot::{Contents, Entry, TypedObject, Unreadable};
use crate::{
    config::{self, LoadedConfig, Problems},
    core::object::{ObjectKind, Owner},
    store::{self, Change, CommitError, RevisionDraft, Store, StoreError, StoreInspection, Tables},
    task::join::joined,
};
use file::OfFile;
pub use follow::StoreStatus;
use last_good::LastGood;

/// Most revisions that are fetched one by one; who is further behind reads everything.
const MAX_INCREMENTAL_REVISIONS: u64 = 200;
/// How often a write looks again when others were faster.
const MAX_WRITE_ATTEMPTS: u32 = 50;
/// Longest pause before it looks again, in milliseconds.
const MAX_RETRY_PAUSE_MS: u64 = 50;
/// How long it is asked whether a write was made whose answer was lost.
const MAX_COMMIT_LOOKUP: Duration = Duration::from_secs(5);

/// The registry as this process has it.
pub struct Registry {
    store: Arc<dyn Store>,
    /// As it was read last.
    contents: ArcSwap<Contents>,
    /// Told whenever that is something else.
    news: watch::Sender<()>,
    /// One reads at a time.
    reading: Mutex<()>,
    /// The store's tables are there.
    is_prepared: AtomicBool,
    /// `contents` came from the store.
    is_read: AtomicBool,
    standing: ArcSwap<StoreStatus>,
    last_good: LastGood,
    /// What is to be kept as the last good table.
    good: watch::Sender<Option<Arc<Contents>>>,
    /// What is.
    kept: ArcSwapOption<Contents>,
}

/// Why the registry can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The store doesn't answer, or is of no use.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A newer version wrote it.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The store holds less than was read from it already.
    #[error(
        "the store is at revision {head} and was at {seen} before: it was restored from a backup, or is another \
         database; restart the process to use its contents"
    )]
    WentBack {
        /// Where it is.
        head: u64,
        /// Where it was.
        seen: u64,
    },
    /// Others wrote every time.
    #[error("too many concurrent writes to the registry: try again")]
    Busy,
    /// The answer to a write was lost for good.
    #[error("{0}: check the registry before you try again")]
    Unknown(String),
    /// What is to be written is not right.
    #[error("{0}")]
    Invalid(Problems),
}

/// Who writes, and why.
#[derive(Debug, Clone)]
pub struct Writer {
    /// An operator's name out of a token, or what stands for the file.
    pub author: String,
    /// In the writer's words; may be empty.
    pub reason: String,
    /// The revision that it is meant upon: where there is another by then, nothing is written. None: whichever there is.
    pub upon: Option<u64>,
}

/// What a start would find, and make of it.
pub struct ApplyPreview {
    /// What there would be.
    pub contents: Contents,
    /// The last revision.
    pub revision: u64,
    /// How the store's tables are.
    pub tables: Tables,
    /// How many plugins, tenants and bindings the API owns.
    pub of_api: usize,
    /// How many objects would be written, because the file says something else.
    pub to_write: usize,
}

/// What somebody wants to write.
pub struct WriteProposal<T> {
    /// Nothing: it is so already.
    pub changes: Vec<Change>,
    /// What was found on the way.
    pub finding: T,
}

/// What came of a proposal.
pub struct CommitOutcome<T> {
    /// The revision that it became; none: it was a dry run, or nothing had to be changed.
    pub revision: Option<u64>,
    /// What it changed, or would.
    pub changes: Vec<Change>,
    /// See [`WriteProposal::finding`].
    pub finding: T,
}

/// Says what is wrong with the whole of what would be there after a write.
pub type ContentsCheck = dyn Fn(&Contents) -> Result<(), Problems> + Send + Sync;

impl Registry {
    /// The registry that `settings` name; nothing is read yet.
    ///
    /// # Errors
    /// The URL is none.
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

    /// What was read last.
    pub fn contents(&self) -> Arc<Contents> {
        self.contents.load_full()
    }

    /// Is told whenever something else was read.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// What the store holds now.
    ///
    /// # Errors
    /// It can't be read, or not by this version; what was read before stays.
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

    /// What `now` became by `head`. None: it is too far behind, or somewhere on the way is what this version can't read,
    /// and which may be gone by now.
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

    /// Writes the result of `propose` as a revision, or previews it with `dry_run`. After a concurrent write, `propose`
    /// runs again on the new contents.
    ///
    /// # Errors
    /// Nothing was written, but for [`RegistryError::Unknown`].
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

    /// Commits `draft`; none: others were faster.
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

    /// Looks for what may have become of the draft `id`.
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

    /// Makes what the file owns what `loaded` says, in one revision at most.
    ///
    /// # Errors
    /// See [`Registry::write`]; objects that the API owns and the file has too are among the problems.
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
            let changes = objects.changes(&now);
            let changes = changes.map_err(|conflicts| RegistryError::Invalid(loaded.render(&conflicts)))?;
            if !changes.is_empty() {
                checked(check, now.after(now.revision() + 1, &changes)?).await?;
            }
            Ok::<_, RegistryError>(WriteProposal { changes, finding: () })
        };
        if let Some(revision) = self.write(&writer, false, propose).await?.revision {
            tracing::info!(revision, file, "the file was written to the registry");
        }
        Ok(())
    }

    /// What a start with `loaded` would find, and, where it `applies` the file, make of it. Nothing is written.
    ///
    /// # Errors
    /// As [`Registry::apply`], and as [`Registry::catch_up`].
    pub async fn foretell(
        &self,
        loaded: &LoadedConfig,
        applies: bool,
    ) -> Result<ApplyPreview, RegistryError> {
        let StoreInspection { snapshot, tables } = self.store.look().await?;
        let now = Contents::read(snapshot)?;
        let revision = now.revision();
        let changes = if applies { OfFile::new(loaded).changes(&now) } else { Ok(Vec::new()) };
        let changes = changes.map_err(|conflicts| RegistryError::Invalid(loaded.render(&conflicts)))?;
        let is_of_api = |entry: &&Arc<Entry>| {
            entry.object.content.owner == Owner::Api && ObjectKind::LISTED.contains(&entry.object.kind)
        };
        let of_api = now.entries().iter().filter(is_of_api).count();
        let contents = now.after(revision + u64::from(!changes.is_empty()), &changes)?;
        Ok(ApplyPreview { contents, revision, tables, of_api, to_write: changes.len() })
    }

    /// What was in force last, as the local file has it, for a start while the store can't be reached. None: there is
    /// nothing that could be used; the log says why.
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

/// On a thread that may take its time.
async fn checked(check: &Arc<ContentsCheck>, next: Contents) -> Result<(), RegistryError> {
    let check = Arc::clone(check);
    joined(spawn_blocking(move || check(&next))).await.map_err(RegistryError::Invalid)
}

#[cfg(test)]
#[path = "foretold_tests.rs"]
mod foretold;
