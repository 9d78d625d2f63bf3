//! The configuration that calls use at this moment, as one immutable snapshot.
//!
//! `control` publishes a snapshot; a call takes the current one once and keeps it to its end, so no call mixes two
//! configurations. Readers never wait: [`SnapshotCell`] is an `ArcSwap` with a `watch` for those who wait for a revision.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

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
    routing::{RouteTable, TenantPlans, TenantRoute},
    upstream::PluginClient,
};

pub mod readiness;
pub mod reload_status;

use reload_status::Applied;

/// The current snapshot; one per process.
pub struct SnapshotCell {
    in_force: ArcSwap<InForce>,
    /// Revision of the current table.
    revision: watch::Sender<u64>,
    applied: ArcSwap<Applied>,
    /// Cancelled when no other revision will be published.
    settled: CancellationToken,
    /// Draining clients: plugins' clients that get no more calls, as long as anything holds them.
    leaving: Mutex<Vec<Weak<PluginClient>>>,
}

impl SnapshotCell {
    /// A cell that holds `in_force`.
    pub fn new(in_force: InForce) -> Self {
        let revision = watch::Sender::new(in_force.invoker.routes().table.revision());
        let (in_force, applied) =
            (ArcSwap::from_pointee(in_force), ArcSwap::from_pointee(Applied::now(Vec::new())));
        let (settled, leaving) = Default::default();
        SnapshotCell { in_force, revision, applied, settled, leaving }
    }

    /// The current snapshot.
    pub fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// Makes `in_force` the snapshot of the calls that come, and returns the previous one.
    pub fn publish(&self, in_force: InForce) -> Arc<InForce> {
        let revision = in_force.invoker.routes().table.revision();
        let before = self.in_force.swap(Arc::new(in_force));
        self.revision.send_replace(revision);
        before
    }

    /// Whether `revision`, or a later one, becomes active within `patience`. Returns at once when no other revision will be
    /// published.
    pub async fn reaches(&self, revision: u64, patience: Duration) -> bool {
        let mut revisions = self.revision.subscribe();
        let reached = timeout(patience, revisions.wait_for(|now| *now >= revision));
        tokio::select! {
            biased;
            reached = reached => reached.is_ok_and(|reached| reached.is_ok()),
            () = self.settled.cancelled() => false,
        }
    }

    /// Says that no other revision will be published.
    pub fn settle(&self) {
        self.settled.cancel();
    }

    /// Returns when [`Self::settle`] was called.
    pub async fn settled(&self) {
        self.settled.cancelled().await;
    }

    /// Says that `client` gets no more calls.
    pub fn add_leaving(&self, client: &Arc<PluginClient>) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|client| client.strong_count() > 0);
        leaving.push(Arc::downgrade(client));
    }

    /// The draining clients of the plugin `name`.
    pub fn leaving(&self, name: &str) -> Vec<Arc<PluginClient>> {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.iter().filter_map(Weak::upgrade).filter(|client| client.name() == name).collect()
    }

    /// The status of the last reload.
    pub fn applied(&self) -> Arc<Applied> {
        self.applied.load_full()
    }

    /// Replaces the status of the last reload.
    pub fn set_applied(&self, applied: Applied) {
        self.applied.store(Arc::new(applied));
    }
}

/// Everything that a configuration says about a call.
pub struct InForce {
    /// The configuration.
    pub config: Arc<Config>,
    /// Who may call.
    pub auth: Arc<Authenticator>,
    /// Runs the chains.
    pub invoker: Invoker,
    /// Limits at the edge.
    pub limits: Limits,
    /// Statuses of block codes.
    pub statuses: Arc<BlockStatuses>,
    /// The registry could not be read since the start, so tenants and chains are unknown.
    pub is_absent: bool,
    /// Rejected entries: their plugins keep the previous one.
    pub rejected: Vec<HeldBack>,
}

/// An entry that its plugin rejected. The plugin keeps the previous entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// Whose.
    pub plugin: String,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refused,
}

/// Why a plugin refuses its entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// As in the plugin's own state.
    pub reason: &'static str,
    /// One sentence for the operator.
    pub detail: String,
}

impl InForce {
    /// The plans of the tenant that calls.
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
pub struct Limits {
    /// Largest request, in bytes.
    pub request: usize,
    /// Most calls under way.
    pub in_flight: usize,
    /// Most payload bytes of all calls under way.
    pub bytes_in_flight: usize,
    /// What answers tell a caller whose tenant is not known yet.
    pub detail: Detail,
}

/// What the table has for who calls; an error where the tenant is unknown or switched off.
pub fn tenant<'a>(table: &'a RouteTable, identity: &Identity) -> Result<&'a TenantPlans, Error> {
    match table.tenant(&identity.tenant) {
        TenantRoute::Known(plans) => Ok(plans),
        TenantRoute::Disabled => Err(Error::new(Code::TenantDisabled, "The tenant is disabled")),
        TenantRoute::Unknown => {
            Err(Error::new(Code::TenantUnknown, "The tenant is not configured at this gateway"))
        }
    }
}
