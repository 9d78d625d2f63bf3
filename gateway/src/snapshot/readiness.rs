//! Whether the gateway should get traffic.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwapOption;
use serde::{Serialize, Serializer};
use tokio_util::sync::CancellationToken;

use super::SnapshotCell;

/// Whether the gateway should get traffic (docs/protocol.md, section 2): the start is finished, every issuer has
/// keys, and it is not draining. Plugin health never changes it.
pub struct Readiness {
    snapshots: Arc<SnapshotCell>,
    started: AtomicBool,
    /// The plugin of the registry that a start waits for while it serves already.
    missing: ArcSwapOption<String>,
    draining: CancellationToken,
}

/// What is being waited for.
pub struct Waits {
    /// For everybody.
    pub what: &'static str,
    /// Whom it is about and why, for operators.
    pub which: Option<Arc<String>>,
}

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.which {
            Some(which) => serializer.collect_str(&format_args!("{}: {which}", self.what)),
            None => serializer.serialize_str(self.what),
        }
    }
}

impl Readiness {
    /// Not ready yet; never again once `draining` is cancelled.
    pub fn new(snapshots: Arc<SnapshotCell>, draining: CancellationToken) -> Arc<Self> {
        let (started, missing) = (AtomicBool::new(false), ArcSwapOption::empty());
        Arc::new(Readiness { snapshots, started, missing, draining })
    }

    /// Listeners are bound, the table is published, the file's required plugins are there; `missing`: one of the registry
    /// isn't, and why.
    pub fn started(&self, missing: Option<String>) {
        self.missing.store(missing.map(Arc::new));
        self.started.store(true, Ordering::Release);
    }

    /// What is being waited for; none: ready.
    pub fn waiting_for(&self) -> Option<Waits> {
        let alone = |what| Some(Waits { what, which: None });
        if self.draining.is_cancelled() {
            alone("draining")
        } else if !self.started.load(Ordering::Acquire) {
            alone("the start is not finished")
        } else if self.snapshots.current().is_absent {
            alone("the store can't be reached, and there is no last good table")
        } else if let Some(missing) = self.missing.load_full() {
            Some(Waits { what: "a plugin that the registry requires is missing", which: Some(missing) })
        } else if !self.snapshots.current().auth.ready() {
            alone("an issuer has no keys")
        } else {
            None
        }
    }
}
