//! Describes an endpoint again on request: makes a new connection first, and gives up the old ones only when
//! the new one serves. If the new one fails, the old ones stay. Also holds further operator requests to a
//! client.

use std::sync::Arc;

use crate::{
    core::failure::Failure,
    upstream::{
        client::PluginClient,
        endpoint::Endpoint,
        ready_connection::{ConnectError, ReadyConnection},
        state::Why,
    },
};

/// The result of describing one endpoint again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedescribeOutcome {
    pub address: String,
    /// Why it was not described, accepted and initialised again, in one sentence. `None` if it was.
    pub trouble: Option<String>,
}

impl PluginClient {
    /// Why a call would fail at this moment. Returns `None` if nothing is known to prevent it.
    pub fn trouble(&self) -> Option<Failure> {
        self.pool.trouble()
    }

    /// Returns when the client is released by shutdown or release: this process has no calls there, and the
    /// plugin was notified.
    pub async fn released(&self) {
        self.pool.released().await;
    }

    /// Looks up the plugin's names, then describes and initialises each endpoint again, one after the other,
    /// over a new connection that replaces the old ones. Calls continue, and running calls finish on their
    /// connection. `tell` gets the result of each endpoint, and of each name without addresses. Does nothing
    /// if the plugin is disabled.
    pub async fn describe_again(&self, tell: impl Fn(RedescribeOutcome)) {
        if self.pool.registration.plugin.enabled {
            self.pool.describe_again(tell).await;
        }
    }
}

/// Replaces the connections to `endpoint`. Returns the reason if that fails.
pub(super) async fn describe(endpoint: &Arc<Endpoint>) -> Option<String> {
    let old = endpoint.usable();
    let made = match fresh(endpoint, &old).await {
        // The old connections keep the accepted manifest that this one differs from. Without them the new one
        // may become the accepted one, unless other endpoints still have the old one, as when replicas are
        // replaced one by one.
        Err(ConnectError::Out(Why::ManifestMismatch, ..)) if !old.is_empty() => {
            give_up(endpoint, &old);
            fresh(endpoint, &old).await
        }
        made => made,
    };
    let trouble = match made {
        Ok(()) => {
            give_up(endpoint, &old);
            None
        }
        Err(ConnectError::Away(detail) | ConnectError::Gone(detail) | ConnectError::Out(_, detail, _)) => {
            Some(detail)
        }
    };
    // The supervisor may be waiting for up to a minute. Wake it to watch the current connections.
    endpoint.tried.notify_waiters();
    trouble
}

/// Makes an initialised connection that is not one of `old`.
async fn fresh(endpoint: &Arc<Endpoint>, old: &[Arc<ReadyConnection>]) -> Result<(), ConnectError> {
    let is_fresh = |live: &Arc<ReadyConnection>| !old.iter().any(|old| Arc::ptr_eq(old, live));
    let live = endpoint
        .connect_unless(|endpoint| endpoint.usable().into_iter().find(is_fresh).map(Ok), None)
        .await?;
    endpoint.initialise(&live, 0).await
}

/// Withdraws `old`. Running calls continue.
fn give_up(endpoint: &Endpoint, old: &[Arc<ReadyConnection>]) {
    old.iter().for_each(|live| live.withdraw());
    endpoint.forget_ended();
}
