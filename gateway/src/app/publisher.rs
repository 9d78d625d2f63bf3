//! Publishes a routing table whenever the plugins' accepted manifests change.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::{FILE_REVISION, reply_limits};
use crate::{
    config::Config,
    ingress::call::Gateway,
    invoke::Routes,
    routing::{Manifest, RouteTable},
    upstream::PluginClient,
};

type Manifests = Vec<Option<Arc<Manifest>>>;

/// Builds tables from the configuration and the manifests.
pub(super) struct Publisher {
    config: Arc<Config>,
    gateway: Arc<Gateway>,
    clients: Vec<Arc<PluginClient>>,
    /// Those of the table in force.
    published: Mutex<Manifests>,
}

impl Publisher {
    /// A publisher whose table in force was built without manifests.
    pub(super) fn new(config: Arc<Config>, gateway: Arc<Gateway>, clients: Vec<Arc<PluginClient>>) -> Self {
        let published = Mutex::new(vec![None; clients.len()]);
        Publisher { config, gateway, clients, published }
    }

    /// Puts a table with the manifests of this moment in force, unless it is already.
    pub(super) fn refresh(&self) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Manifests = self.clients.iter().map(|client| client.status().manifest.clone()).collect();
        if same(&published, &now) {
            return;
        }
        match RouteTable::build(&self.config, &now, FILE_REVISION) {
            Ok(table) => {
                for problem in table.config_problems() {
                    let (pointer, message) = (&problem.pointer, &problem.message);
                    tracing::warn!(event = "plugin.config_refused", pointer, "{message}");
                }
                let replies = reply_limits(&self.config);
                let observed = Arc::new(self.gateway.telemetry.clone());
                let (clients, abort) = (self.clients.clone(), self.gateway.abort.clone());
                let config = Arc::clone(&self.config);
                self.gateway.invoker.publish(Routes { table, config, clients, replies, observed, abort });
                tracing::info!(
                    event = "table.published",
                    revision = FILE_REVISION,
                    "the routing table is in force"
                );
            }
            Err(problems) => {
                for problem in problems {
                    let (pointer, message) = (&problem.pointer, &problem.message);
                    tracing::error!(event = "table.refused", pointer, "{message}");
                }
            }
        }
        *published = now;
    }

    /// Refreshes at every change, for ever.
    pub(super) async fn follow(&self, mut changes: watch::Receiver<u64>) {
        loop {
            self.refresh();
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

fn same(left: &Manifests, right: &Manifests) -> bool {
    left.iter().zip(right).all(|pair| match pair {
        (None, None) => true,
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (Some(_), None) | (None, Some(_)) => false,
    })
}
