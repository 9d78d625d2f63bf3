//! Observable metrics: read at collection time from the state of this process.

use std::{collections::HashSet, sync::Arc, time::Duration};

use opentelemetry::KeyValue;

use crate::{
    config::Config,
    core::step::OnError,
    dataplane::call::Gateway,
    registry::{Registry, StoreStatus},
    snapshot::readiness::Readiness,
    telemetry::{Measurement, Telemetry, log_dropped, names},
    tls::{CertificateExpiry, CertificateWatch},
    upstream::{BreakerState, PluginClient, State},
};

/// Registers the metrics. They hold the gateway weakly, because the gateway holds the telemetry.
pub(super) fn register(
    gateway: &Arc<Gateway>,
    certificates: &CertificateWatch,
    registry: Option<&Arc<Registry>>,
) {
    let of_gateway = |read: fn(&Gateway) -> Vec<Measurement>| {
        let gateway = Arc::downgrade(gateway);
        move || gateway.upgrade().map_or_else(Vec::new, |gateway| read(&gateway))
    };
    let telemetry = &gateway.telemetry;
    let exchanges = of_gateway(|gateway| one(gateway.admission.exchanges() as u64));
    telemetry.observe(&names::LLM_IN_FLIGHT, exchanges);
    telemetry.observe(&names::IN_FLIGHT, of_gateway(|gateway| one(gateway.admission.calls() as u64)));
    let revision = |gateway: &Gateway| one(gateway.snapshots.current().invoker.routes().table.revision());
    let bypasses = |gateway: &Gateway| one(gateway.snapshots.current().config.bypasses.len() as u64);
    telemetry.observe(&names::BYPASSES, of_gateway(bypasses));
    telemetry.observe(&names::TABLE_REVISION, of_gateway(revision));
    let rejected = |gateway: &Gateway| one(u64::from(gateway.snapshots.reload_status().rejected.is_some()));
    telemetry.observe(&names::CONFIG_REJECTED, of_gateway(rejected));
    telemetry.observe(&names::JWKS_AGE, of_gateway(|gateway| key_ages(gateway, |age, _| age)));
    telemetry.observe(&names::JWKS_EXPIRY, of_gateway(|gateway| key_ages(gateway, |_, left| Some(left))));
    let fails_closed = |gateway: &Gateway| binding_counts(&gateway.snapshots.current().config);
    telemetry.observe(&names::PLUGIN_FAILS_CLOSED, of_gateway(fails_closed));

    let of_plugins = |read: fn(&PluginClient) -> Vec<Measurement>| {
        let gateway = Arc::downgrade(gateway);
        move || {
            let snapshot = gateway.upgrade().map(|gateway| gateway.snapshots.current());
            let clients = snapshot.iter().flat_map(|snapshot| &snapshot.invoker.routes().clients);
            clients.flat_map(|client| read(client)).collect()
        }
    };
    telemetry.observe(&names::OBSERVER_DROPPED, of_plugins(dropped));
    telemetry.observe(&names::PLUGIN_STATE, of_plugins(states));
    telemetry.observe(&names::ENDPOINTS, of_plugins(endpoints));
    telemetry.observe(&names::BREAKER_OPEN, of_plugins(open_breakers));
    telemetry.observe(&names::BREAKER_TENANTS, of_plugins(tenant_breakers));

    telemetry.observe(&names::LOG_DROPPED, || one(log_dropped()));

    if let Some(registry) = registry {
        register_store(telemetry, registry);
    }

    // A watch holds its certificates weakly.
    let certificates = certificates.clone();
    telemetry.observe(&names::CERTIFICATE_EXPIRY, move || {
        certificates.expiries().into_iter().map(expiry).collect()
    });
}

/// Registers the readiness of /readyz. Separate from the others, because readiness exists only once the
/// ports are open.
pub(super) fn register_readiness(telemetry: &Telemetry, readiness: &Arc<Readiness>) {
    let readiness = Arc::downgrade(readiness);
    telemetry.observe(&names::READY, move || {
        let waits = readiness.upgrade().map(|readiness| readiness.waiting_for().is_some());
        waits.map_or_else(Vec::new, |waits| one(u64::from(!waits)))
    });
}

fn register_store(telemetry: &Telemetry, registry: &Arc<Registry>) {
    let of_registry = |read: fn(&StoreStatus) -> Option<u64>| {
        let registry = Arc::downgrade(registry);
        move || {
            let standing = registry.upgrade().map(|registry| registry.status());
            standing.and_then(|standing| read(&standing)).map_or_else(Vec::new, one)
        }
    };
    telemetry.observe(&names::STORE_REVISION, of_registry(|standing| standing.revision));
    telemetry.observe(&names::STORE_UP, of_registry(|standing| Some(standing.unreachable.is_none().into())));
    telemetry.observe(&names::TABLE_STALE, of_registry(|standing| Some(standing.is_stale.into())));
}

fn one(value: u64) -> Vec<Measurement> {
    vec![(value as f64, Vec::new())]
}

fn key_ages(gateway: &Gateway, what: fn(Option<Duration>, Duration) -> Option<Duration>) -> Vec<Measurement> {
    let of_issuer = |(issuer, age, left): (&str, _, _)| {
        let attributes = vec![KeyValue::new(names::ISSUER, issuer.to_owned())];
        Some((what(age, left)?.as_secs_f64(), attributes))
    };
    gateway.snapshots.current().auth.key_ages().filter_map(of_issuer).collect()
}

/// Measures for each plugin whether calls fail without it.
fn binding_counts(config: &Config) -> Vec<Measurement> {
    let fails =
        config.bindings.iter().filter(|binding| binding.enabled && binding.on_error() == OnError::Fail);
    let fails: HashSet<&str> = fails.map(|binding| binding.plugin.as_str()).collect();
    let of_plugin = |name: &str| {
        (f64::from(u8::from(fails.contains(name))), vec![KeyValue::new(names::PLUGIN, name.to_owned())])
    };
    config.plugins.iter().map(|plugin| of_plugin(&plugin.name)).collect()
}

fn dropped(client: &PluginClient) -> Vec<Measurement> {
    vec![(client.observers_dropped() as f64, vec![plugin(client)])]
}

fn states(client: &PluginClient) -> Vec<Measurement> {
    let now = client.status().state;
    let of_state = |state: &State| {
        let attributes = vec![plugin(client), KeyValue::new(names::STATE, state.as_str())];
        (f64::from(u8::from(*state == now)), attributes)
    };
    State::ALL.iter().map(of_state).collect()
}

fn endpoints(client: &PluginClient) -> Vec<Measurement> {
    let endpoints = client.endpoints();
    let of_state = |state: &State| {
        let count = endpoints.iter().filter(|endpoint| endpoint.state == *state).count();
        (count as f64, vec![plugin(client), KeyValue::new(names::STATE, state.as_str())])
    };
    State::ALL.iter().map(of_state).collect()
}

fn open_breakers(client: &PluginClient) -> Vec<Measurement> {
    let open = client.endpoints().iter().filter(|endpoint| endpoint.breaker != BreakerState::Closed).count();
    vec![(open as f64, vec![plugin(client)])]
}

fn tenant_breakers(client: &PluginClient) -> Vec<Measurement> {
    let open: usize = client.endpoints().iter().map(|endpoint| endpoint.tenant_breakers_open).sum();
    vec![(open as f64, vec![plugin(client)])]
}

fn expiry(CertificateExpiry { plugin, of_ca, seconds_left }: CertificateExpiry) -> Measurement {
    let certificate = match (&plugin, of_ca) {
        (None, false) => "server",
        (None, true) => "client_ca",
        (Some(_), false) => "client",
        (Some(_), true) => "server_ca",
    };
    let plugin = plugin.map(|plugin| KeyValue::new(names::PLUGIN, plugin));
    let attributes = plugin.into_iter().chain([KeyValue::new(names::CERTIFICATE, certificate)]);
    (seconds_left as f64, attributes.collect())
}

fn plugin(client: &PluginClient) -> KeyValue {
    KeyValue::new(names::PLUGIN, client.name().to_owned())
}
