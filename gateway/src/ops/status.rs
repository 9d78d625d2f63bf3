//! The status of the whole gateway. `admin` shows it to operators with a token. `page` shows it on the ops
//! port, which must reveal only counts: no name, address or tenant. It contacts no plugin.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    dataplane::call::Gateway,
    registry::{Registry, StoreStatus},
    snapshot::{
        readiness::{Readiness, Waits},
        reload_status::ReloadStatus,
    },
    upstream::State,
};

/// The sources of the status.
pub struct StatusSource {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) readiness: Arc<Readiness>,
    registry: Option<Arc<Registry>>,
    started: Instant,
}

impl StatusSource {
    /// Uptime is counted from this call.
    pub fn new(gateway: Arc<Gateway>, readiness: Arc<Readiness>, registry: Option<Arc<Registry>>) -> Self {
        StatusSource { gateway, readiness, registry, started: Instant::now() }
    }

    pub(crate) fn status(&self) -> StatusView<'_> {
        let snapshot = self.gateway.snapshots.current();
        let routes = snapshot.invoker.routes();
        let (listed, disabled) = routes.table.listed();
        let mut states: BTreeMap<_, usize> = State::ALL.iter().map(|state| (state.as_str(), 0)).collect();
        for client in &routes.clients {
            *states.entry(client.status().state.as_str()).or_default() += 1;
        }
        let waiting_for = self.readiness.waiting_for();
        StatusView {
            version: env!("CARGO_PKG_VERSION"),
            instance: self.gateway.telemetry.instance(),
            uptime_s: self.started.elapsed().as_secs(),
            ready: waiting_for.is_none(),
            waiting_for,
            revision: routes.table.revision(),
            tenants: TenantsView { listed, disabled, accepts_unlisted: routes.table.serves_others() },
            plugins: states,
            configuration: ConfigurationReport::of(&self.gateway.snapshots.reload_status()),
            store: self.registry.as_ref().map(|registry| StoreView::from_status(&registry.status())),
        }
    }
}

/// The answer of `/admin/v1/status`.
#[derive(Serialize)]
pub(crate) struct StatusView<'a> {
    pub(crate) version: &'static str,
    /// Names this process, in telemetry and to plugins.
    pub(crate) instance: &'a str,
    pub(crate) uptime_s: u64,
    pub(crate) ready: bool,
    /// Why it is not ready.
    pub(crate) waiting_for: Option<Waits>,
    pub(crate) revision: u64,
    pub(crate) tenants: TenantsView,
    /// The number of plugins by state.
    pub(crate) plugins: BTreeMap<&'static str, usize>,
    pub(crate) configuration: ConfigurationReport,
    /// Null if there is no registry.
    pub(crate) store: Option<StoreView>,
}

/// The status of the registry's database.
#[derive(Serialize)]
pub(crate) struct StoreView {
    /// Null if it never answered.
    revision: Option<u64>,
    reachable: bool,
    /// Why it is unreachable; null if it is reachable.
    problem: Option<String>,
    /// How long it has been reachable or unreachable.
    age_s: u64,
    /// Whether the active contents come from the local file of a start without the database.
    stale: bool,
    /// Why the last good table can't be saved; null if it can.
    last_good_problem: Option<String>,
}

impl StoreView {
    fn from_status(standing: &StoreStatus) -> Self {
        StoreView {
            revision: standing.revision,
            reachable: standing.unreachable.is_none(),
            problem: standing.unreachable.clone(),
            age_s: standing.since.elapsed().as_secs(),
            stale: standing.is_stale,
            last_good_problem: standing.unkept.clone(),
        }
    }
}

/// How the configuration file relates to the active configuration.
#[derive(Serialize)]
pub(crate) struct ConfigurationReport {
    /// How long the active configuration has been active.
    pub(crate) age_s: u64,
    /// Null if the active configuration is the file's.
    pub(crate) rejected: Option<RejectedFileView>,
    /// What the newest configuration waits for; null if for nothing, or for less than a second.
    waiting_for: Option<String>,
    /// Keys whose changed values apply only after a restart.
    restart_required: Vec<&'static str>,
}

/// Why the file's configuration is not active.
#[derive(Serialize)]
pub(crate) struct RejectedFileView {
    /// How long this has been known.
    pub(crate) age_s: u64,
    /// In the words of `hookgate config check`. They quote the file, so only operators may see them.
    problems: Vec<String>,
}

impl ConfigurationReport {
    pub(crate) fn of(status: &ReloadStatus) -> Self {
        let rejected = status.rejected.as_ref().map(|refused| RejectedFileView {
            age_s: refused.at.elapsed().as_secs(),
            problems: refused.problems.clone(),
        });
        ConfigurationReport {
            age_s: status.at.elapsed().as_secs(),
            rejected,
            waiting_for: status.waiting_for.clone(),
            restart_required: status.restart_required.clone(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct TenantsView {
    pub(crate) listed: usize,
    /// Of the listed tenants.
    pub(crate) disabled: usize,
    /// Whether unlisted tenants are served.
    pub(crate) accepts_unlisted: bool,
}
