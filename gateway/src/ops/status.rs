//! How the gateway is as a whole. Asked by operators with a token (`admin`) and by people at the ops port (`page`), who
//! must not see more than counts: no name, no address, no tenant. Passes no chain and asks no plugin.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    dataplane::call::Gateway,
    registry::{Registry, Standing},
    snapshot::{
        readiness::{Readiness, Waits},
        reload_status::ReloadStatus,
    },
    upstream::State,
};

/// Everything that is looked at for it.
pub struct StatusSource {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) readiness: Arc<Readiness>,
    registry: Option<Arc<Registry>>,
    started: Instant,
}

impl StatusSource {
    /// Of `gateway`. It counts from now how long it is up.
    pub fn new(gateway: Arc<Gateway>, readiness: Arc<Readiness>, registry: Option<Arc<Registry>>) -> Self {
        StatusSource { gateway, readiness, registry, started: Instant::now() }
    }

    /// How it is now.
    pub(crate) fn status(&self) -> Status<'_> {
        let in_force = self.gateway.snapshots.in_force();
        let routes = in_force.invoker.routes();
        let (listed, disabled) = routes.table.listed();
        let mut states: BTreeMap<_, usize> = State::ALL.iter().map(|state| (state.as_str(), 0)).collect();
        for client in &routes.clients {
            *states.entry(client.status().state.as_str()).or_default() += 1;
        }
        let waiting_for = self.readiness.waiting_for();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            instance: self.gateway.telemetry.instance(),
            uptime_s: self.started.elapsed().as_secs(),
            ready: waiting_for.is_none(),
            waiting_for,
            revision: routes.table.revision(),
            tenants: Tenants { listed, disabled, accepts_unlisted: routes.table.serves_others() },
            plugins: states,
            configuration: ConfigurationReport::of(&self.gateway.snapshots.reload_status()),
            store: self.registry.as_ref().map(|registry| Store::of(&registry.standing())),
        }
    }
}

/// The answer of `/admin/v1/status`.
#[derive(Serialize)]
pub(crate) struct Status<'a> {
    pub(crate) version: &'static str,
    /// Names this process, in telemetry and to plugins.
    pub(crate) instance: &'a str,
    pub(crate) uptime_s: u64,
    pub(crate) ready: bool,
    /// Why it isn't.
    pub(crate) waiting_for: Option<Waits>,
    pub(crate) revision: u64,
    pub(crate) tenants: Tenants,
    /// By state.
    pub(crate) plugins: BTreeMap<&'static str, usize>,
    pub(crate) configuration: ConfigurationReport,
    /// Null: the file alone says what is in force.
    pub(crate) store: Option<Store>,
}

/// How the registry's database stands.
#[derive(Serialize)]
pub(crate) struct Store {
    /// Null: it never answered.
    revision: Option<u64>,
    reachable: bool,
    /// Why it isn't; null: it is.
    problem: Option<String>,
    /// Since when it is, or isn't.
    age_s: u64,
    /// Whether what is in force came from the local file of a start without it.
    stale: bool,
    /// Why the last good table can't be written; null: it is.
    last_good_problem: Option<String>,
}

impl Store {
    fn of(standing: &Standing) -> Self {
        Store {
            revision: standing.revision,
            reachable: standing.unreachable.is_none(),
            problem: standing.unreachable.clone(),
            age_s: standing.since.elapsed().as_secs(),
            stale: standing.is_stale,
            last_good_problem: standing.unkept.clone(),
        }
    }
}

/// How the configuration file stands to what is in force.
#[derive(Serialize)]
pub(crate) struct ConfigurationReport {
    /// Since when what is in force is.
    pub(crate) age_s: u64,
    /// Null: it is what the file says.
    pub(crate) rejected: Option<Refused>,
    /// What the newest that was read waits for; null: for nothing, or not yet for a second.
    waiting_for: Option<String>,
    /// Keys that wait for the process to be started again.
    restart_required: Vec<&'static str>,
}

/// Why the file is not in force.
#[derive(Serialize)]
pub(crate) struct Refused {
    /// Since when it is known.
    pub(crate) age_s: u64,
    /// As `hookgate config check` says them. They name what is in the file, so that only an operator may see them.
    problems: Vec<String>,
}

impl ConfigurationReport {
    pub(crate) fn of(status: &ReloadStatus) -> Self {
        let rejected = status.rejected.as_ref().map(|refused| Refused {
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
pub(crate) struct Tenants {
    pub(crate) listed: usize,
    /// Of those listed.
    pub(crate) disabled: usize,
    /// Whether those not listed are served.
    pub(crate) accepts_unlisted: bool,
}
