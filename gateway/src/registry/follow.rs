//! Follows the store as others write to it, saves the last good table, and tracks the store's status.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{Contents, Registry};
use crate::store::StoreError;

/// How often the store is asked for its revision, even if it sends hints.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum interval between saves of the last good table.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between attempts after a save failed.
const SAVE_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The status of the store.
#[derive(Debug, Clone)]
pub struct StoreStatus {
    /// Its revision when it last answered; `None` if it never did.
    pub revision: Option<u64>,
    /// Why it was unreachable at the last request; `None` if it answered.
    pub unreachable: Option<String>,
    /// When it became reachable, or unreachable.
    pub since: Instant,
    /// Whether the contents came from the local file and the store has not confirmed them yet.
    pub is_stale: bool,
    /// Why the active contents can't be saved for a start without the store; `None` if they are saved.
    pub unkept: Option<String>,
}

impl StoreStatus {
    pub(super) fn new() -> Self {
        StoreStatus {
            revision: None,
            unreachable: None,
            since: Instant::now(),
            is_stale: false,
            unkept: None,
        }
    }
}

impl Registry {
    /// The status of the store.
    pub fn status(&self) -> Arc<StoreStatus> {
        self.standing.load_full()
    }

    /// Notifies `moved` when the store has a new revision or becomes reachable again, until `ended`.
    pub async fn follow(&self, moved: Arc<Notify>, ended: CancellationToken) {
        let follow = async {
            let mut hints = self.store.hints();
            let mut is_hinted = true;
            // Notify once for each new state, even if it can't be applied. Comparing with the contents read
            // last would miss some, because other tasks read too.
            let mut told = None;
            loop {
                tokio::select! {
                    hint = hints.changed(), if is_hinted => is_hinted = hint.is_ok(),
                    () = sleep(POLL_INTERVAL) => {}
                }
                let was_unreachable = self.status().unreachable.is_some();
                if let Ok(head) = self.noted(self.store.head().await) {
                    self.note_head(head);
                    let is_read = self.is_read.load(Ordering::Acquire);
                    if told != Some(head) || was_unreachable || !is_read {
                        told = Some(head);
                        // Also read here: the task that applies contents may be blocked, but bypasses must
                        // apply at once. Errors are reported by that task, which reads again.
                        let _ = self.catch_up().await;
                        moved.notify_one();
                    }
                }
            }
        };
        ended.run_until_cancelled(follow).await;
    }

    /// Saves `contents`, which are active now, for a start without the store.
    pub fn keep(&self, contents: Arc<Contents>) {
        self.good.send_replace(Some(contents));
    }

    /// Saves the contents given to [`Self::keep`], until `ended`.
    pub async fn keep_last_good(self: Arc<Self>, ended: CancellationToken) {
        let mut good = self.good.subscribe();
        loop {
            let kept = good.borrow_and_update().clone();
            if let Some(contents) = kept {
                self.write_last_good(contents).await;
                ended.run_until_cancelled(sleep(SAVE_INTERVAL)).await;
            }
            if !good.has_changed().unwrap_or(false) {
                let is_unkept = self.status().unkept.is_some();
                let again = tokio::select! {
                    () = ended.cancelled() => false,
                    changed = good.changed() => changed.is_ok(),
                    () = sleep(SAVE_RETRY_INTERVAL), if is_unkept => true,
                };
                if !again {
                    return;
                }
            }
        }
    }

    async fn write_last_good(self: &Arc<Self>, contents: Arc<Contents>) {
        let (registry, kept) = (Arc::clone(self), Arc::clone(&contents));
        let written = tokio::task::spawn_blocking(move || registry.last_good.write(&kept.snapshot())).await;
        let unkept = match written {
            Ok(Ok(())) => {
                self.kept.store(Some(contents));
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(format!("writing failed: {error}")),
        };
        let path = self.last_good.path().display();
        let unkept = unkept.map(|why| format!("{path} can't be written (`store.last_good`): {why}"));
        let before = self.status();
        if before.unkept != unkept {
            match &unkept {
                Some(why) => tracing::warn!("the last good table {why}"),
                None => tracing::info!("the last good table can be written again"),
            }
            self.stands(|before| StoreStatus { unkept: unkept.clone(), ..before.clone() });
        }
    }

    /// Closes the store, and saves contents that became active at the very end.
    pub async fn close(self: &Arc<Self>) {
        let last = self.good.borrow().clone();
        let kept = self.kept.load_full();
        if let Some(contents) = last.filter(|last| kept.is_none_or(|kept| !Arc::ptr_eq(&kept, last))) {
            self.write_last_good(contents).await;
        }
        self.store.close().await;
    }

    /// Records whether the store answered.
    pub(super) fn noted<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        let before = self.status();
        let unreachable = answer.as_ref().err().map(ToString::to_string);
        if before.unreachable.is_some() != unreachable.is_some() {
            match &unreachable {
                Some(why) => tracing::error!("{why}; the current configuration stays active"),
                None => tracing::info!("the store can be reached again"),
            }
            let since = Instant::now();
            self.stands(|before| StoreStatus { unreachable: unreachable.clone(), since, ..before.clone() });
        }
        answer
    }

    pub(super) fn note_head(&self, head: u64) {
        let before = self.status();
        if before.revision != Some(head) {
            self.stands(|before| StoreStatus { revision: Some(head), ..before.clone() });
        }
    }

    /// Records that the contents came from the store.
    pub(super) fn note_confirmed(&self) {
        self.set_stale(false);
    }

    /// Records that the contents came from the local file.
    pub(super) fn note_assumed(&self) {
        self.set_stale(true);
    }

    fn set_stale(&self, is_stale: bool) {
        let before = self.status();
        if before.is_stale != is_stale {
            self.stands(|before| StoreStatus { is_stale, ..before.clone() });
        }
    }

    /// Updates the status atomically, because several tasks may do so at once.
    fn stands(&self, changed: impl Fn(&StoreStatus) -> StoreStatus) {
        self.standing.rcu(|before| changed(before));
    }
}
