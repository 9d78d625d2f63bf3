//! One plugin as operators see it: its state, endpoints, manifest and totals since startup.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hookgate_proto::{HookName, PayloadFields};
use serde::Serialize;

use crate::{
    config::{self, Consent, ManifestDiff},
    core::{call_site::CallSite, manifest::Manifest, point::Point},
    registry::{Entry, TypedObject},
    snapshot::{ConfigSnapshot, EntryRefusal},
    telemetry::Totals,
    upstream::{EndpointStatus, PluginClient, State, Wants, Why},
};

/// The status of a plugin that is in the registry but not active yet.
const PENDING_REASON: Why = Why::NotDialled;

/// A plugin of the active configuration.
pub(super) struct ActivePlugin {
    client: Arc<PluginClient>,
    required: bool,
    capacity: usize,
    /// The names of the enabled bindings to this plugin.
    bindings: Vec<String>,
    rejected: Option<EntryRefusal>,
}

impl ActivePlugin {
    /// All active plugins, in the order of the configuration.
    pub(super) fn all(snapshot: &ConfigSnapshot) -> Vec<Self> {
        ActivePlugin::those(snapshot, |_| true)
    }

    pub(super) fn named(snapshot: &ConfigSnapshot, name: &str) -> Option<Self> {
        ActivePlugin::those(snapshot, |plugin| plugin == name).pop()
    }

    fn those(snapshot: &ConfigSnapshot, is_it: impl Fn(&str) -> bool) -> Vec<Self> {
        let (config, clients) = (&snapshot.config, &snapshot.invoker.routes().clients);
        let required = config.required();
        let of_plugin = |(plugin, client): (&Arc<config::Plugin>, &Arc<PluginClient>)| {
            let bindings = config.bindings.iter();
            let bindings = bindings.filter(|binding| binding.enabled && binding.plugin == plugin.name);
            let rejected = snapshot.rejected.iter().find(|held| held.plugin == plugin.name);
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

    /// The manifests that endpoints offer but that no operator has consented to yet.
    pub(super) fn pending_manifests(&self) -> Vec<PendingConsent> {
        let wanted = |wants: &Arc<Wants>| PendingConsent {
            name: Arc::clone(&wants.name),
            version: wants.version.to_string(),
            accepted: wants.accepted.clone(),
            difference: wants.difference.clone(),
        };
        self.client.wants().iter().map(wanted).collect()
    }

    /// `totals` returns the totals of the plugin's steps at sites of a [`CallSite::kind`].
    pub(super) fn view(&self, totals: impl Fn(usize) -> Totals) -> ProcessPluginView {
        let status = self.client.status();
        let is_at_hooks = status.manifest.as_ref().is_some_and(|manifest| !manifest.hooks.is_empty());
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
            points: Point::ALL.into_iter().map(|point| (point, count(totals(point.index())))).collect(),
            hooks: is_at_hooks.then(|| count(totals(CallSite::HOOKS))),
        }
    }
}

/// The view of a plugin that is in the registry but not active yet.
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
        hooks: None,
    }
}

/// The state of the plugin in `entry`, whose active form is `registered`. Returns `None` if `entry` isn't a
/// plugin.
pub(super) fn state(registered: Option<&ActivePlugin>, entry: &Entry) -> Option<State> {
    match (&entry.typed, registered) {
        (TypedObject::Plugin(_), Some(registered)) => Some(registered.client.status().state),
        (TypedObject::Plugin(_), None) => Some(PENDING_REASON.state()),
        _ => None,
    }
}

/// A plugin's state in this process.
#[derive(Serialize)]
pub(super) struct ProcessPluginView {
    state: &'static str,
    reason: &'static str,
    /// One sentence, or empty.
    detail: String,
    required: bool,
    in_flight: usize,
    /// `limits.in_flight`.
    capacity: usize,
    observers: ObserverCounts,
    endpoints: Vec<EndpointStatusView>,
    /// Null until a manifest is accepted.
    manifest: Option<ManifestView>,
    pending_manifests: Vec<PendingConsent>,
    /// Why the plugin keeps its previous entry; null if the written entry is active.
    rejected: Option<EntryRefusal>,
    bindings: Vec<String>,
    points: BTreeMap<Point, PointTotalsView>,
    /// At all hooks together; absent if the manifest offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks: Option<PointTotalsView>,
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
    /// Null while not connected.
    version: Option<String>,
    breaker: &'static str,
    tenant_breakers_open: usize,
    in_flight: usize,
    connections: usize,
}

/// An accepted manifest. Of the schemas it shows only whether there are any.
#[derive(Serialize)]
struct ManifestView {
    name: Arc<str>,
    version: String,
    points: Vec<OfferedPointView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<OfferedHookView>,
    /// Globs that cover the names of all its tools; absent if it provides none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    tool_names: BTreeSet<String>,
    /// The names of its tools, sorted; absent if it provides none, or until it is initialised.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    tools: BTreeSet<String>,
    capabilities: Vec<String>,
    config_schema: bool,
    tenant_config_schema: bool,
}

/// A manifest that waits for an operator's consent.
#[derive(Serialize)]
pub(super) struct PendingConsent {
    name: Arc<str>,
    pub(super) version: String,
    /// The consent in the form in which the operator sends it back.
    pub(super) accepted: Consent,
    difference: ManifestDiff,
}

#[derive(Serialize)]
struct OfferedHookView {
    hook: HookName,
    side_effects: &'static str,
}

#[derive(Serialize)]
struct OfferedPointView {
    point: Point,
    access: &'static str,
    side_effects: &'static str,
    /// Absent if it reads all.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<PayloadFields>,
    /// Absent if it gets whole answers only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    windows: bool,
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
        Some(OfferedPointView { point, access, side_effects, reads: offer.reads, windows: offer.windows })
    };
    ManifestView {
        name: Arc::clone(&manifest.name),
        version: manifest.version.to_string(),
        points: Point::ALL.into_iter().filter_map(offered).collect(),
        hooks: manifest
            .hooks
            .iter()
            .map(|(hook, side_effects)| OfferedHookView {
                hook: hook.clone(),
                side_effects: side_effects.as_str(),
            })
            .collect(),
        tool_names: manifest.tool_names.globs().clone(),
        tools: manifest.tools.iter().flat_map(|tools| tools.iter()).map(|tool| tool.name.clone()).collect(),
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
