//! How an endpoint is let go of: with Shutdown, with Release where this gateway goes on using it by another configuration, or
//! without a word.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use hookgate_proto::plugin::v1::{ReleaseRequest, ShutdownRequest};
use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

use crate::upstream::{
    client::PluginClient,
    codec::{self, ExchangeError},
    connection::Rpc,
    endpoint::Endpoint,
    ready_connection::ReadyConnection,
    registration::Registration,
    state::Why,
};

/// What of plugins this gateway goes on using.
#[derive(Clone, Default)]
pub struct InUse {
    /// As they are written.
    endpoints: BTreeSet<String>,
    clients: Vec<Weak<PluginClient>>,
}

impl InUse {
    /// These endpoints, by these clients.
    pub fn new<'a>(
        endpoints: BTreeSet<String>,
        clients: impl Iterator<Item = &'a Arc<PluginClient>>,
    ) -> Self {
        InUse { endpoints, clients: clients.map(Arc::downgrade).collect() }
    }

    /// The same beside clients that still have calls, though they get no more.
    #[must_use]
    pub fn beside(&self, leaving: &[Arc<PluginClient>]) -> Self {
        let mut all = self.clone();
        all.clients.extend(leaving.iter().map(Arc::downgrade));
        all
    }

    pub(super) fn has(&self, endpoint: &str) -> bool {
        self.endpoints.contains(endpoint)
    }

    /// Whether a client of this plugin hands the configuration over, or has.
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
    /// No more calls; those under way go on. What it says of itself counts no longer.
    pub(super) fn leave(&self) {
        self.closing.cancel();
        self.lives.load().iter().for_each(|live| live.withdraw());
        self.registration.connection_ended();
    }

    /// Lets go of the connections. Calls under way go on.
    fn let_go(&self) -> Arc<Vec<Arc<ReadyConnection>>> {
        self.status.set(Why::ShuttingDown, "");
        self.leave();
        self.lives.swap(Arc::default())
    }

    /// Lets go of the plugin: no further calls, and Shutdown if it was ever initialised and can be reached.
    pub(super) async fn shut_down(&self, limit: Duration) {
        let Registration { plugin, shared, .. } = &*self.registration;
        let lives = self.let_go();
        let limit = limit.min(plugin.limits.shutdown.0);
        let deadline = Instant::now() + limit;
        if !lives.iter().any(|live| hears(live)) {
            // A plugin that is being initialised would keep a configuration that nobody takes back: wait for the end of that.
            let _ = timeout_at(deadline, self.handing_over.lock()).await;
        }
        let Some(live) = lives.iter().find(|live| hears(live)) else { return };
        let request = ShutdownRequest { gateway_instance_id: shared.instance_id.as_ref().into() };
        let frame = codec::message(&request);
        let reply =
            live.connection.unary(Rpc::Shutdown, frame, HeaderMap::new(), deadline, shared.max_reply()).await;
        if let Err(error) = reply {
            let (plugin, address, error) = (&*plugin.name, self.address(), live.config.shown_error(&error));
            tracing::warn!(plugin, address, ?limit, error, "the plugin did not answer Shutdown");
        }
    }

    /// Lets go of the configuration, which no call will name any more, unless it is among what is `in_use`. The plugin may go
    /// on with another one.
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
        let (frame, deadline) = (codec::message(&request), Instant::now() + limit);
        let reply =
            live.connection.unary(Rpc::Release, frame, HeaderMap::new(), deadline, shared.max_reply()).await;
        match reply {
            Ok(_) => {}
            // It keeps its configurations as it likes.
            Err(ExchangeError::Status(status)) if status.code() == tonic::Code::Unimplemented => {}
            Err(error) => {
                let (plugin, address, error) =
                    (&*plugin.name, self.address(), live.config.shown_error(&error));
                tracing::warn!(plugin, address, ?limit, error, "the plugin did not answer Release");
            }
        }
    }
}

/// Whether the plugin can be told over this connection that it is let go of, and was initialised.
fn hears(live: &ReadyConnection) -> bool {
    live.is_initialised() && !live.connection.is_closed()
}
