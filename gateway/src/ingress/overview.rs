//! How the gateway is as a whole. Asked by operators with a token (`admin`) and by people at the ops port (`page`), who
//! must not see more than counts: no name, no address, no tenant. Passes no chain and asks no plugin.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use tokio::time::Instant;

use super::{
    applied::Applied,
    call::Gateway,
    ops::{Readiness, Waits},
};
use crate::{
    registry::{Registry, Standing},
    upstream::State,
};

/// Everything that is looked at for it.
pub struct Overview {
    pub(super) gateway: Arc<Gateway>,
    pub(super) readiness: Arc<Readiness>,
    registry: Option<Arc<Registry>>,
    started: Instant,
}

impl Overview {
    /// Of `gateway`. It counts from now how long it is up.
    pub fn new(gateway: Arc<Gateway>, readiness: Arc<Readiness>, registry: Option<Arc<Registry>>) -> Self {
        Overview { gateway, readiness, registry, started: Instant::now() }
    }

    /// How it is now.
    pub(super) fn status(&self) -> Status<'_> {
        let in_force = self.gateway.in_force();
        let routes = in_force.invoker.routes();
        let (listed, switched_off) = routes.table.listed();
        let mut states: BTreeMap<_, usize> = State::ALL.iter().map(|state| (state.as_str(), 0)).collect();
        for client in &routes.clients {
            *states.entry(client.status().state.as_str()).or_default() += 1;
        }
        let waits_for = self.readiness.waits_for();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            instance: self.gateway.telemetry.instance(),
            uptime_s: self.started.elapsed().as_secs(),
            ready: waits_for.is_none(),
            waits_for,
            revision: routes.table.revision(),
            tenants: Tenants { listed, switched_off, others: routes.table.serves_others() },
            plugins: states,
            configuration: Configuration::of(&self.gateway.applied()),
            store: self.registry.as_ref().map(|registry| Store::of(&registry.standing())),
        }
    }
}

/// The answer of `/admin/v1/status`.
#[derive(Serialize)]
pub(super) struct Status<'a> {
    pub(super) version: &'static str,
    /// Names this process, in telemetry and to plugins.
    pub(super) instance: &'a str,
    pub(super) uptime_s: u64,
    pub(super) ready: bool,
    /// Why it isn't.
    pub(super) waits_for: Option<Waits>,
    pub(super) revision: u64,
    pub(super) tenants: Tenants,
    /// By state.
    pub(super) plugins: BTreeMap<&'static str, usize>,
    pub(super) configuration: Configuration,
    /// Null: the file alone says what is in force.
    pub(super) store: Option<Store>,
}

/// How the registry's database stands.
#[derive(Serialize)]
pub(super) struct Store {
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
    last_good: Option<String>,
}

impl Store {
    fn of(standing: &Standing) -> Self {
        Store {
            revision: standing.revision,
            reachable: standing.unreachable.is_none(),
            problem: standing.unreachable.clone(),
            age_s: standing.since.elapsed().as_secs(),
            stale: standing.is_stale,
            last_good: standing.unkept.clone(),
        }
    }
}

/// How the configuration file stands to what is in force.
#[derive(Serialize)]
pub(super) struct Configuration {
    /// Since when what is in force is.
    pub(super) age_s: u64,
    /// Null: it is what the file says.
    pub(super) refused: Option<Refused>,
    /// What the newest that was read waits for; null: for nothing, or not yet for a second.
    waits_for: Option<String>,
    /// Keys that wait for the process to be started again.
    at_restart: Vec<&'static str>,
}

/// Why the file is not in force.
#[derive(Serialize)]
pub(super) struct Refused {
    /// Since when it is known.
    pub(super) age_s: u64,
    /// As `hookgate config check` says them. They name what is in the file, so that only an operator may see them.
    problems: Vec<String>,
}

impl Configuration {
    pub(super) fn of(applied: &Applied) -> Self {
        let refused = applied.refused.as_ref().map(|refused| Refused {
            age_s: refused.at.elapsed().as_secs(),
            problems: refused.problems.clone(),
        });
        Configuration {
            age_s: applied.at.elapsed().as_secs(),
            refused,
            waits_for: applied.waits_for.clone(),
            at_restart: applied.at_restart.clone(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Tenants {
    pub(super) listed: usize,
    /// Of those listed.
    pub(super) switched_off: usize,
    /// Whether those not listed are served.
    pub(super) others: bool,
}
