//! The configuration that calls use at this moment, as one immutable snapshot.
//!
//! `control` publishes a snapshot; a call takes the current one once and keeps it to its end, so no call mixes two
//! configurations. Readers never wait: [`SnapshotCell`] is an `ArcSwap` with a `watch` for those who wait for a revision.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Authenticator,
    config::{Config, Detail},
    core::{
        block_status::BlockStatuses,
        context::Identity,
        error::{Code, Error},
    },
    invoke::Invoker,
    llm::Llm,
    routing::{RouteTable, TenantPlans, TenantRoute},
    snapshot::{
        draining::{DrainGuard, DrainingList},
        published::{HeldSnapshots, PublishedSnapshot},
        reload_status::ReloadStatus,
    },
    upstream::PluginClient,
};

pub mod draining;
pub mod published;
pub mod readiness;
pub mod reload_status;

/// The current snapshot; one per process.
pub struct SnapshotCell {
    current: ArcSwap<PublishedSnapshot>,
    /// The current one, and earlier ones that calls still use.
    held: HeldSnapshots,
    /// Revision of the current table.
    revision: watch::Sender<u64>,
    reload_status: ArcSwap<ReloadStatus>,
    /// Cancelled when no other revision will be published.
    settled: CancellationToken,
    draining: DrainingList,
}

impl SnapshotCell {
    /// A cell that holds `snapshot`.
    pub fn new(snapshot: ConfigSnapshot) -> Self {
        let revision = watch::Sender::new(snapshot.invoker.routes().table.revision());
        let held = HeldSnapshots::new();
        let current = ArcSwap::from_pointee(held.publish(0, snapshot));
        let reload_status = ArcSwap::from_pointee(ReloadStatus::now(Vec::new()));
        let (settled, draining) = Default::default();
        SnapshotCell { current, held, revision, reload_status, settled, draining }
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<PublishedSnapshot> {
        self.current.load_full()
    }

    /// Makes `snapshot` current for all later calls. There must be only one publisher at a time.
    pub fn publish(&self, snapshot: ConfigSnapshot) {
        let revision = snapshot.invoker.routes().table.revision();
        let number = self.current.load().number() + 1;
        self.current.store(Arc::new(self.held.publish(number, snapshot)));
        self.revision.send_replace(revision);
    }

    /// Resolves when no call uses a snapshot that was replaced before this function was called.
    pub fn earlier_calls_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.held.released_below(self.current.load().number())
    }

    /// Returns whether `revision`, or a later one, becomes active within `patience`. Returns at once if no
    /// other revision will be published.
    pub async fn reaches(&self, revision: u64, patience: Duration) -> bool {
        let mut revisions = self.revision.subscribe();
        let reached = timeout(patience, revisions.wait_for(|now| *now >= revision));
        tokio::select! {
            biased;
            reached = reached => reached.is_ok_and(|reached| reached.is_ok()),
            () = self.settled.cancelled() => false,
        }
    }

    /// Announces that no other revision will be published.
    pub fn settle(&self) {
        self.settled.cancel();
    }

    /// Returns when [`Self::settle`] was called.
    pub async fn settled(&self) {
        self.settled.cancelled().await;
    }

    /// Lists `client`, which gets no more calls, among the draining ones until the guard is dropped.
    pub fn drain(&self, client: &Arc<PluginClient>) -> DrainGuard {
        self.draining.add(client)
    }

    /// The draining clients of the plugin `name`.
    pub fn draining(&self, name: &str) -> Vec<Arc<PluginClient>> {
        self.draining.of_plugin(name)
    }

    /// The status of the last reload.
    pub fn reload_status(&self) -> Arc<ReloadStatus> {
        self.reload_status.load_full()
    }

    /// Replaces the status of the last reload.
    pub fn set_reload_status(&self, status: ReloadStatus) {
        self.reload_status.store(Arc::new(status));
    }
}

/// Everything that calls need of a configuration.
pub struct ConfigSnapshot {
    /// The configuration.
    pub config: Arc<Config>,
    /// Who may call.
    pub auth: Arc<Authenticator>,
    /// Runs the chains.
    pub invoker: Invoker,
    /// The limits at the edge.
    pub limits: EdgeLimits,
    /// The statuses of block codes.
    pub statuses: Arc<BlockStatuses>,
    /// The LLM proxy. `None` if it is not served.
    pub llm: Option<Arc<Llm>>,
    /// Whether the registry could not be read since the start, so that tenants and chains are unknown.
    pub is_absent: bool,
    /// Rejected entries: their plugins keep the previous one.
    pub rejected: Vec<RejectedEntry>,
}

/// An entry that its plugin rejected. The plugin keeps the previous entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectedEntry {
    /// The plugin's name.
    pub plugin: String,
    /// The reason.
    #[serde(flatten)]
    pub refusal: EntryRefusal,
}

/// Why a plugin rejected its entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryRefusal {
    /// The reason as in the plugin's own state.
    pub reason: &'static str,
    /// One sentence for the operator.
    pub detail: String,
}

impl ConfigSnapshot {
    /// The plans of the calling tenant.
    ///
    /// # Errors
    /// The tenant is unknown or disabled, or the registry was never read.
    pub(crate) fn tenant(&self, identity: &Identity) -> Result<&TenantPlans, Error> {
        if self.is_absent {
            let detail = "The gateway has not been able to read its registry since it started";
            return Err(Error::new(Code::StoreUnavailable, detail).retry_after(Duration::from_secs(1)));
        }
        tenant(&self.invoker.routes().table, identity)
    }
}

/// Limits at the edge.
#[derive(Debug, Clone, Copy)]
pub struct EdgeLimits {
    /// Largest request, in bytes.
    pub request: usize,
    /// Most calls in flight.
    pub in_flight: usize,
    /// Most payload bytes in flight.
    pub bytes_in_flight: usize,
    /// The detail of answers to callers whose tenant is not known yet.
    pub detail: Detail,
}

/// The plans in `table` for the caller. An error if the tenant is unknown or disabled.
pub fn tenant<'a>(table: &'a RouteTable, identity: &Identity) -> Result<&'a TenantPlans, Error> {
    match table.tenant(&identity.tenant) {
        TenantRoute::Known(plans) => Ok(plans),
        TenantRoute::Disabled => Err(Error::new(Code::TenantDisabled, "The tenant is disabled")),
        TenantRoute::Unknown => {
            Err(Error::new(Code::TenantUnknown, "The tenant is not configured at this gateway"))
        }
    }
}
