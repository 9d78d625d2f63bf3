//! Drains the clients of plugins that no new call uses: each is told Shutdown or Release when the calls that know it have
//! ended. The end of those calls is the drop of the snapshots that they own ([`SnapshotCell::earlier_calls_ended`]).

use std::{future, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    control::generation::Generation,
    snapshot::SnapshotCell,
    upstream::{InUse, PluginClient},
};

/// The longest invocation, 60 s, and some more.
const MAX_CALL_WAIT: Duration = Duration::from_secs(65);
/// The part of a drain for what observers have not seen yet.
pub(crate) const OBSERVER_DRAIN_BUDGET: Duration = Duration::from_millis(1500);
/// For what the observers of a replaced client have not seen yet.
const REPLACED_OBSERVER_BUDGET: Duration = Duration::from_secs(5);

/// The clients that are drained while the gateway runs.
pub(crate) struct DrainingClients {
    snapshots: Arc<SnapshotCell>,
    tasks: TaskTracker,
    /// Cancelled when no call is under way any more, because the process ends.
    at_once: CancellationToken,
    /// The endpoints and clients of the active and the pending configuration, which are not told of an end. Read when a
    /// client goes, which may be a minute and several configurations after it was replaced.
    in_use: Arc<ArcSwap<InUse>>,
}

impl DrainingClients {
    /// Those of `snapshots`; none yet.
    pub(crate) fn new(snapshots: Arc<SnapshotCell>) -> Self {
        let (tasks, at_once, in_use) = (TaskTracker::new(), CancellationToken::new(), Arc::default());
        DrainingClients { snapshots, tasks, at_once, in_use }
    }

    /// From now on the endpoints and the clients of these are in use.
    pub(crate) fn set_in_use<'a>(&self, generations: impl Iterator<Item = &'a Generation> + Clone) {
        let endpoints = generations.clone().flat_map(Generation::endpoints).collect();
        let in_use = InUse::new(endpoints, generations.flat_map(Generation::clients));
        self.in_use.store(Arc::new(in_use));
    }

    /// Retires `client`, which the current snapshot no longer has, after the calls of earlier snapshots.
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
        // The successor goes on with this count.
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

    /// Retires all that are left, by `end`: there are no calls any more.
    pub(crate) async fn finish(&self, end: Instant) {
        self.at_once.cancel();
        self.tasks.close();
        let _ = timeout_at(end, self.tasks.wait()).await;
    }
}

/// Resolves when observers have had their time; sooner where the process ends.
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

/// The client that calls to the plugin use now.
fn successor(snapshots: &SnapshotCell, client: &PluginClient) -> Option<Arc<PluginClient>> {
    let snapshot = snapshots.current();
    snapshot.invoker.routes().clients.iter().find(|current| current.name() == client.name()).cloned()
}

#[cfg(test)]
#[path = "client_drain_tests.rs"]
mod tests;
