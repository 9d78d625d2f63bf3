//! Whether the gateway should get traffic.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwapOption;
use serde::{Serialize, Serializer};
use tokio_util::sync::CancellationToken;

use super::SnapshotCell;

/// Whether the gateway should get traffic (docs/protocol.md, section 2): the start has finished, every issuer
/// has keys, and the gateway is not draining. Plugin health never changes it.
pub struct Readiness {
    snapshots: Arc<SnapshotCell>,
    started: AtomicBool,
    /// The plugin required by the registry that is missing, while the gateway already serves.
    missing: ArcSwapOption<String>,
    draining: CancellationToken,
}

/// What readiness waits for.
pub struct Waits {
    /// The description for everybody.
    pub what: &'static str,
    /// The details for operators: which plugin or issuer, and why.
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
    /// Not ready yet. After `draining` is cancelled, never ready again.
    pub fn new(snapshots: Arc<SnapshotCell>, draining: CancellationToken) -> Arc<Self> {
        let (started, missing) = (AtomicBool::new(false), ArcSwapOption::empty());
        Arc::new(Readiness { snapshots, started, missing, draining })
    }

    /// The listeners are bound, the table is published, and the file's required plugins are ready. `missing`
    /// describes a plugin required by the registry that isn't ready.
    pub fn started(&self, missing: Option<String>) {
        self.missing.store(missing.map(Arc::new));
        self.started.store(true, Ordering::Release);
    }

    /// What readiness waits for. `None` if the gateway is ready.
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
