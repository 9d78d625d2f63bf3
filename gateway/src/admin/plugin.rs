//! One plugin as operators see it: its state, its addresses, what it says it is, and what it did since the start.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Serialize;

use crate::{
    config::{self, Consent, ManifestDiff},
    core::{manifest::Manifest, point::Point},
    registry::{Entry, TypedObject},
    snapshot::{InForce, Refused},
    telemetry::Totals,
    upstream::{EndpointStatus, PluginClient, State, Wants, Why},
};

/// How a plugin is that is not in force yet.
const PENDING_REASON: Why = Why::NotDialled;

/// A plugin of the configuration.
pub(super) struct ActivePlugin {
    client: Arc<PluginClient>,
    required: bool,
    capacity: usize,
    /// Names of the enabled bindings that name it.
    bindings: Vec<String>,
    rejected: Option<Refused>,
}

impl ActivePlugin {
    /// The plugins in force, in the order of the configuration.
    pub(super) fn all(in_force: &InForce) -> Vec<Self> {
        ActivePlugin::those(in_force, |_| true)
    }

    /// The one of this name.
    pub(super) fn named(in_force: &InForce, name: &str) -> Option<Self> {
        ActivePlugin::those(in_force, |plugin| plugin == name).pop()
    }

    fn those(in_force: &InForce, is_it: impl Fn(&str) -> bool) -> Vec<Self> {
        let (config, clients) = (&in_force.config, &in_force.invoker.routes().clients);
        let required = config.required();
        let of_plugin = |(plugin, client): (&Arc<config::Plugin>, &Arc<PluginClient>)| {
            let bindings = config.bindings.iter();
            let bindings = bindings.filter(|binding| binding.enabled && binding.plugin == plugin.name);
            let rejected = in_force.rejected.iter().find(|held| held.plugin == plugin.name);
            ActivePlugin {
                client: Arc::clone(client),
                required: required.contains(&*plugin.name),
                capacity: plugin.limits.in_flight,
                bindings: bindings.map(|binding| binding.effective_name().into_owned()).collect(),
                rejected: rejected.map(|held| held.refusal.clone()),
            }
        };
        let plugins = config.plugins.iter().zip(clients).filter(|(plugin, _)| is_it(&plugin.name));
        plugins.map(of_plugin).collect()
    }

    pub(super) fn name(&self) -> &str {
        self.client.name()
    }

    /// What endpoints would have to be accepted as that stay out for it.
    pub(super) fn pending_manifests(&self) -> Vec<PendingConsent> {
        let wanted = |wants: &Arc<Wants>| PendingConsent {
            name: Arc::clone(&wants.name),
            version: wants.version.to_string(),
            accepted: wants.accepted.clone(),
            difference: wants.difference.clone(),
        };
        self.client.wants().iter().map(wanted).collect()
    }

    /// `totals` says what its steps at a point came to.
    pub(super) fn view(&self, totals: impl Fn(Point) -> Totals) -> ProcessPluginView {
        let status = self.client.status();
        ProcessPluginView {
            state: status.state.as_str(),
            reason: status.why.as_str(),
            detail: status.detail.clone(),
            required: self.required,
            in_flight: self.client.in_flight(),
            capacity: self.capacity,
            observers: ObserverCounts { dropped: self.client.observers_dropped() },
            endpoints: self.client.endpoints().into_iter().map(endpoint).collect(),
            manifest: status.manifest.as_deref().map(manifest),
            pending_manifests: self.pending_manifests(),
            rejected: self.rejected.clone(),
            bindings: self.bindings.clone(),
            points: Point::ALL.into_iter().map(|point| (point, count(totals(point)))).collect(),
        }
    }
}

/// A plugin that the registry has and that is not in force yet.
pub(super) fn waiting(plugin: &config::Plugin, required: bool, bindings: Vec<String>) -> ProcessPluginView {
    let nothing = Totals { successes: 0, failures: 0, latency: Duration::ZERO };
    ProcessPluginView {
        state: PENDING_REASON.state().as_str(),
        reason: PENDING_REASON.as_str(),
        detail: "the revision that adds it is not yet active here".to_owned(),
        required,
        in_flight: 0,
        capacity: plugin.limits.in_flight,
        observers: ObserverCounts { dropped: 0 },
        endpoints: Vec::new(),
        manifest: None,
        pending_manifests: Vec::new(),
        rejected: None,
        bindings,
        points: Point::ALL.into_iter().map(|point| (point, count(nothing))).collect(),
    }
}

/// Its state, `registered` where it is in force; none: `entry` is no plugin.
pub(super) fn state(registered: Option<&ActivePlugin>, entry: &Entry) -> Option<State> {
    match (&entry.typed, registered) {
        (TypedObject::Plugin(_), Some(registered)) => Some(registered.client.status().state),
        (TypedObject::Plugin(_), None) => Some(PENDING_REASON.state()),
        _ => None,
    }
}

/// How it is in this process.
#[derive(Serialize)]
pub(super) struct ProcessPluginView {
    state: &'static str,
    reason: &'static str,
    /// One sentence; empty where there is nothing to say.
    detail: String,
    required: bool,
    in_flight: usize,
    /// `limits.in_flight`.
    capacity: usize,
    observers: ObserverCounts,
    endpoints: Vec<EndpointStatusView>,
    /// Null before one was accepted.
    manifest: Option<ManifestView>,
    pending_manifests: Vec<PendingConsent>,
    /// Why it goes on by the entry before; null: it goes by the one that is written.
    rejected: Option<Refused>,
    bindings: Vec<String>,
    points: BTreeMap<Point, PointTotalsView>,
}

#[derive(Serialize)]
struct ObserverCounts {
    dropped: u64,
}

#[derive(Serialize)]
struct EndpointStatusView {
    address: String,
    state: &'static str,
    reason: &'static str,
    detail: String,
    /// Null while it isn't connected.
    version: Option<String>,
    breaker: &'static str,
    tenant_breakers_open: usize,
    in_flight: usize,
    connections: usize,
}

/// An accepted manifest; of the schemas only whether there are any.
#[derive(Serialize)]
struct ManifestView {
    name: Arc<str>,
    version: String,
    points: Vec<OfferedPointView>,
    capabilities: Vec<String>,
    config_schema: bool,
    tenant_config_schema: bool,
}

/// What an operator is asked to consent to.
#[derive(Serialize)]
pub(super) struct PendingConsent {
    name: Arc<str>,
    pub(super) version: String,
    /// As it is sent back.
    pub(super) accepted: Consent,
    difference: ManifestDiff,
}

#[derive(Serialize)]
struct OfferedPointView {
    point: Point,
    access: &'static str,
    side_effects: &'static str,
}

#[derive(Serialize)]
struct PointTotalsView {
    calls: u64,
    successes: u64,
    failures: u64,
    latency_ms_total: f64,
}

fn endpoint(status: EndpointStatus) -> EndpointStatusView {
    EndpointStatusView {
        address: status.address,
        state: status.state.as_str(),
        reason: status.why.as_str(),
        detail: status.detail,
        version: status.version.map(|version| version.to_string()),
        breaker: status.breaker.as_str(),
        tenant_breakers_open: status.tenant_breakers_open,
        in_flight: status.in_flight,
        connections: status.connections,
    }
}

fn manifest(manifest: &Manifest) -> ManifestView {
    let offered = |point| {
        let offer = manifest.offers(point)?;
        let (access, side_effects) = (offer.access.as_str(), offer.side_effects.as_str());
        Some(OfferedPointView { point, access, side_effects })
    };
    ManifestView {
        name: Arc::clone(&manifest.name),
        version: manifest.version.to_string(),
        points: Point::ALL.into_iter().filter_map(offered).collect(),
        capabilities: manifest.capabilities.clone(),
        config_schema: manifest.config_schema.is_some(),
        tenant_config_schema: manifest.tenant_config_schema.is_some(),
    }
}

fn count(totals: Totals) -> PointTotalsView {
    let Totals { successes, failures, latency } = totals;
    let latency_ms_total = latency.as_micros() as f64 / 1000.0;
    PointTotalsView { calls: successes + failures, successes, failures, latency_ms_total }
}
