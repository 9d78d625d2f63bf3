//! How the gateway is as a whole. Asked by operators with a token (`admin`) and by people at the ops port (`page`), who
//! must not see more than counts: no name, no address, no tenant. Passes no chain and asks no plugin.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use tokio::time::Instant;

use super::{admin::Registered, call::Gateway, ops::Readiness};
use crate::upstream::State;

/// Everything that is looked at for it.
pub struct Overview {
    pub(super) gateway: Arc<Gateway>,
    pub(super) readiness: Arc<Readiness>,
    /// In the order of the configuration.
    pub(super) plugins: Vec<Registered>,
    started: Instant,
}

impl Overview {
    /// Of `gateway`, whose plugins are `plugins`. It counts from now how long it is up.
    pub fn new(gateway: Arc<Gateway>, readiness: Arc<Readiness>, plugins: Vec<Registered>) -> Self {
        Overview { gateway, readiness, plugins, started: Instant::now() }
    }

    /// How it is now.
    pub(super) fn status(&self) -> Status<'_> {
        let routes = self.gateway.invoker.routes();
        let (listed, switched_off) = routes.table.listed();
        let mut states: BTreeMap<_, usize> = State::ALL.iter().map(|state| (state.as_str(), 0)).collect();
        for plugin in &self.plugins {
            *states.entry(plugin.state().as_str()).or_default() += 1;
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
    pub(super) waits_for: Option<&'static str>,
    pub(super) revision: u64,
    pub(super) tenants: Tenants,
    /// By state.
    pub(super) plugins: BTreeMap<&'static str, usize>,
}

#[derive(Serialize)]
pub(super) struct Tenants {
    pub(super) listed: usize,
    /// Of those listed.
    pub(super) switched_off: usize,
    /// Whether those not listed are served.
    pub(super) others: bool,
}
