//! Describes an endpoint again because somebody asks for it: a new connection first, and the old ones given up only when
//! that one serves. What is wrong with the new one leaves them as they are. And what else operators ask of a client.

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

/// What came of describing an endpoint again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedescribeOutcome {
    /// The endpoint.
    pub address: String,
    /// Why it was not described, accepted and initialised anew, in one sentence; none: it was.
    pub trouble: Option<String>,
}

impl PluginClient {
    /// Why a call would fail at this moment; none: there is nothing that is known to be in its way.
    pub fn trouble(&self) -> Option<Failure> {
        self.pool.trouble()
    }

    /// Returns when it was let go of, in either way: nothing of this process is under way there, and who is told was
    /// told.
    pub async fn released(&self) {
        self.pool.released().await;
    }

    /// Has the plugin's names looked up, the plugin describe itself again, and hands it its configuration again: over a new
    /// connection to each endpoint, one after the other, before those there are given up. Calls go on, and those under way finish where
    /// they are. `tell` hears what came of each endpoint, and of each name without addresses; one of a plugin that is switched off is left alone.
    pub async fn describe_again(&self, tell: impl Fn(RedescribeOutcome)) {
        if self.pool.registration.plugin.enabled {
            self.pool.describe_again(tell).await;
        }
    }
}

/// Makes the connections to `endpoint` anew, and says what is wrong where that can't be done.
pub(super) async fn describe(endpoint: &Arc<Endpoint>) -> Option<String> {
    let old = endpoint.usable();
    let made = match fresh(endpoint, &old).await {
        // The old ones stand for the manifest that this one differs from: without them it may have its turn, unless other
        // endpoints have that too. It is as it is for replicas that are replaced one by one.
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
    // It may wait for a minute, and watches over whatever is there now.
    endpoint.tried.notify_waiters();
    trouble
}

/// A connection that is none of `old`, over which the plugin has its configuration.
async fn fresh(endpoint: &Arc<Endpoint>, old: &[Arc<ReadyConnection>]) -> Result<(), ConnectError> {
    let is_fresh = |live: &Arc<ReadyConnection>| !old.iter().any(|old| Arc::ptr_eq(old, live));
    let live =
        endpoint.connect_unless(|endpoint| endpoint.usable().into_iter().find(is_fresh).map(Ok)).await?;
    endpoint.initialise(&live, 0).await
}

/// No more calls for `old`; those under way go on.
fn give_up(endpoint: &Endpoint, old: &[Arc<ReadyConnection>]) {
    old.iter().for_each(|live| live.withdraw());
    endpoint.forget_ended();
}
