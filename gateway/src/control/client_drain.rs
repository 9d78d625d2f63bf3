//! Drains clients that no new call uses: each gets Shutdown or Release once the calls that may use it have
//! ended. They have ended when the snapshots that they own are dropped
//! ([`SnapshotCell::earlier_calls_ended`]).

use std::{future, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    control::generation::Generation,
    snapshot::SnapshotCell,
    upstream::{InUse, PluginClient},
};

/// The longest invocation (60 s) plus a margin.
const MAX_CALL_WAIT: Duration = Duration::from_secs(65);
/// The part of a drain that is reserved for pending deliveries to observers.
pub(crate) const OBSERVER_DRAIN_BUDGET: Duration = Duration::from_millis(1500);
/// Time for pending deliveries to the observers of a replaced client.
const REPLACED_OBSERVER_BUDGET: Duration = Duration::from_secs(5);

/// The clients that are drained while the gateway runs.
pub(crate) struct DrainingClients {
    snapshots: Arc<SnapshotCell>,
    tasks: TaskTracker,
    /// Cancelled when no call is in flight any more because the process ends.
    at_once: CancellationToken,
    /// The endpoints and clients of the active and the pending configuration, which get no Shutdown. Read
    /// when a client is retired, which may be a minute and several configurations after its replacement.
    in_use: Arc<ArcSwap<InUse>>,
}

impl DrainingClients {
    /// No clients yet; `snapshots` tells when calls have ended.
    pub(crate) fn new(snapshots: Arc<SnapshotCell>) -> Self {
        let (tasks, at_once, in_use) = (TaskTracker::new(), CancellationToken::new(), Arc::default());
        DrainingClients { snapshots, tasks, at_once, in_use }
    }

    /// Sets the generations whose endpoints and clients are in use.
    pub(crate) fn set_in_use<'a>(&self, generations: impl Iterator<Item = &'a Generation> + Clone) {
        let endpoints = generations.clone().flat_map(Generation::endpoints);
        let in_use = InUse::new(endpoints, generations.flat_map(Generation::clients));
        self.in_use.store(Arc::new(in_use));
    }

    /// Retires `client`, which the current snapshot no longer has, after the calls of earlier snapshots have
    /// ended.
    pub(crate) fn retire_after_calls(&self, client: Arc<PluginClient>) {
        self.retire_after(client, self.snapshots.earlier_calls_ended());
    }

    /// Retires `client`, which was never in a snapshot.
    pub(crate) fn retire_unused(&self, client: Arc<PluginClient>) {
        self.retire_after(client, future::ready(()));
    }

    fn retire_after(
        &self,
        client: Arc<PluginClient>,
        calls_ended: impl Future<Output = ()> + Send + 'static,
    ) {
        let (snapshots, in_use, at_once) =
            (Arc::clone(&self.snapshots), Arc::clone(&self.in_use), self.at_once.clone());
        let draining = self.snapshots.drain(&client);
        // The successor continues this count.
        let dropped = client.observers_dropped();
        self.tasks.spawn(async move {
            at_once.run_until_cancelled(timeout(MAX_CALL_WAIT, calls_ended)).await;
            let given_up = client.drain_until(for_observers(&at_once)).await;
            if given_up > 0 {
                let plugin = client.name();
                tracing::warn!(plugin, given_up, "observers did not receive every call");
            }
            if let Some(successor) = successor(&snapshots, &client) {
                successor.add_dropped(client.observers_dropped() - dropped);
            }
            let in_use = in_use.load().beside(&snapshots.draining(client.name()));
            client.retire(&in_use).await;
            drop(draining);
        });
    }

    /// Retires all remaining clients by `end`, when there are no more calls.
    pub(crate) async fn finish(&self, end: Instant) {
        self.at_once.cancel();
        self.tasks.close();
        let _ = timeout_at(end, self.tasks.wait()).await;
    }
}

/// Resolves when the time for observers is over, or sooner if the process ends.
async fn for_observers(at_once: &CancellationToken) {
    let at_the_end = async {
        at_once.cancelled().await;
        sleep(OBSERVER_DRAIN_BUDGET).await;
    };
    tokio::select! {
        () = sleep(REPLACED_OBSERVER_BUDGET) => {}
        () = at_the_end => {}
    }
}

/// The client that now serves the same plugin.
fn successor(snapshots: &SnapshotCell, client: &PluginClient) -> Option<Arc<PluginClient>> {
    let snapshot = snapshots.current();
    snapshot.invoker.routes().clients.iter().find(|current| current.name() == client.name()).cloned()
}

#[cfg(test)]
#[path = "client_drain_tests.rs"]
mod tests;
