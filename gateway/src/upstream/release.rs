//! Releases an endpoint: with Shutdown; with Release, if this gateway keeps using the endpoint with another
//! configuration; or silently.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use hookgate_proto::plugin::v1::{ReleaseRequest, ShutdownRequest};
use tokio::time::{Instant, timeout_at};

use crate::{
    grpc::framing,
    upstream::{
        client::PluginClient, codec::ExchangeError, connection::Rpc, control_call, endpoint::Endpoint,
        ready_connection::ReadyConnection, registration::Registration, state::Why,
    },
};

/// The endpoints and clients that this gateway keeps using.
#[derive(Clone, Default)]
pub struct InUse {
    /// Endpoints as the configuration spells them, by plugin.
    endpoints: BTreeMap<String, BTreeSet<String>>,
    clients: Vec<Weak<PluginClient>>,
}

impl InUse {
    pub fn new<'a>(
        endpoints: impl Iterator<Item = (&'a str, &'a str)>,
        clients: impl Iterator<Item = &'a Arc<PluginClient>>,
    ) -> Self {
        let mut by_plugin: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (plugin, endpoint) in endpoints {
            by_plugin.entry(plugin.to_owned()).or_default().insert(endpoint.to_owned());
        }
        InUse { endpoints: by_plugin, clients: clients.map(Arc::downgrade).collect() }
    }

    /// Adds `leaving`, clients that get no more calls but still have some.
    #[must_use]
    pub fn beside(&self, leaving: &[Arc<PluginClient>]) -> Self {
        let mut all = self.clone();
        all.clients.extend(leaving.iter().map(Arc::downgrade));
        all
    }

    /// Whether `plugin` goes on at `endpoint`, which may serve other plugins too.
    pub(super) fn has(&self, plugin: &str, endpoint: &str) -> bool {
        self.endpoints.get(plugin).is_some_and(|endpoints| endpoints.contains(endpoint))
    }

    /// Whether another client uses the endpoints that this plugin's processes register.
    pub(super) fn has_registered(&self, plugin: &str) -> bool {
        let mut clients = self.clients.iter().filter_map(Weak::upgrade);
        clients.any(|client| {
            let entry = &client.pool.registration.plugin;
            let is_used = entry.enabled && entry.self_registration && !client.pool.closing.is_cancelled();
            client.name() == plugin && is_used
        })
    }

    /// Whether a client of this plugin has delivered this configuration, or is about to.
    fn has_configuration(&self, plugin: &str, digest: &str) -> bool {
        let clients = self.clients.iter().filter_map(Weak::upgrade);
        let is_meant =
            |client: &Arc<PluginClient>| client.name() == plugin && !client.pool.closing.is_cancelled();
        clients.filter(is_meant).any(|client| {
            let prepared = client.pool.registration.prepared.load();
            prepared.as_ref().is_some_and(|prepared| *prepared.digest == *digest)
        })
    }
}

impl Endpoint {
    /// Stops new calls; running calls continue. The endpoint's manifest no longer counts.
    pub(super) fn leave(&self) {
        self.closing.cancel();
        self.lives.load().iter().for_each(|live| live.withdraw());
        self.registration.connection_ended();
    }

    /// Drops the connections. Running calls continue.
    fn let_go(&self) -> Arc<Vec<Arc<ReadyConnection>>> {
        self.status.set(Why::ShuttingDown, "");
        self.leave();
        self.lives.swap(Arc::default())
    }

    /// Shuts the plugin down: stops calls, and sends Shutdown if the plugin was ever initialised and can be
    /// reached.
    pub(super) async fn shut_down(&self, limit: Duration) {
        let Registration { plugin, shared, .. } = &*self.registration;
        let lives = self.let_go();
        let limit = limit.min(plugin.limits.shutdown.0);
        let deadline = Instant::now() + limit;
        if !lives.iter().any(|live| hears(live)) {
            // Releasing a plugin during an Initialize would leave it with a configuration that nobody
            // releases, so wait until the Initialize has ended.
            let _ = timeout_at(deadline, self.handing_over.lock()).await;
        }
        let Some(live) = lives.iter().find(|live| hears(live)) else { return };
        let request = ShutdownRequest { gateway_instance_id: shared.instance_id.as_ref().into() };
        let frame = framing::frame(&request);
        let reply =
            control_call::call(&live.connection, Rpc::Shutdown, frame, deadline, shared.max_reply()).await;
        if let Err(error) = reply {
            let (plugin, address, error) = (&*plugin.name, self.address(), live.config.shown_error(&error));
            tracing::warn!(plugin, address, ?limit, error, "the plugin did not answer Shutdown");
        }
    }

    /// Releases the configuration, which no call will use again, unless `in_use` has it. The plugin may go on
    /// with another one.
    pub(super) async fn release(&self, limit: Duration, in_use: &InUse) {
        let Registration { plugin, shared, .. } = &*self.registration;
        let lives = self.let_go();
        let Some(live) = lives.iter().find(|live| hears(live)) else { return };
        let digest = &*live.config.digest;
        if in_use.has_configuration(&plugin.name, digest) {
            return;
        }
        let request = ReleaseRequest {
            gateway_instance_id: shared.instance_id.as_ref().into(),
            config_digest: digest.into(),
        };
        let (frame, deadline) = (framing::frame(&request), Instant::now() + limit);
        let reply =
            control_call::call(&live.connection, Rpc::Release, frame, deadline, shared.max_reply()).await;
        match reply {
            Ok(_) => {}
            // The plugin doesn't implement Release and manages its configurations itself.
            Err(ExchangeError::Status(status)) if status.code() == tonic::Code::Unimplemented => {}
            Err(error) => {
                let (plugin, address, error) =
                    (&*plugin.name, self.address(), live.config.shown_error(&error));
                tracing::warn!(plugin, address, ?limit, error, "the plugin did not answer Release");
            }
        }
    }
}

/// Whether the plugin was initialised and can be notified over this connection.
fn hears(live: &ReadyConnection) -> bool {
    live.is_initialised() && !live.connection.is_closed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_in_use_by_a_plugin_and_not_by_its_neighbour() {
        let in_use = InUse::new([("guard", "unix:///s"), ("guard", "http://a:1")].into_iter(), [].iter());
        assert!(in_use.has("guard", "unix:///s") && in_use.has("guard", "http://a:1"));
        assert!(!in_use.has("audit", "unix:///s"), "it is told Shutdown, not Release");
        assert!(!in_use.has("guard", "unix:///other"));
    }
}
