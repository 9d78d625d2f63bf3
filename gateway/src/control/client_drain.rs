//! Plugins' clients that no call will be given any more: each is let go of when the calls that know it have ended.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    control::generation::Generation,
    snapshot::{InForce, SnapshotCell},
    upstream::{InUse, PluginClient},
};

/// The longest invocation, 60 s, and some more.
const MAX_CALL_WAIT: Duration = Duration::from_secs(65);
/// How often it is looked whether they have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The part of a drain for what observers have not seen yet.
pub(crate) const OBSERVER_DRAIN_BUDGET: Duration = Duration::from_millis(1500);
/// For what its observers have not seen yet.
const REPLACED_OBSERVER_BUDGET: Duration = Duration::from_secs(5);

/// All of them.
pub(crate) struct DrainingClients {
    snapshots: Arc<SnapshotCell>,
    tasks: TaskTracker,
    /// No call is under way any more.
    at_once: CancellationToken,
    /// Of what is in force and of what may be next: it serves this gateway, and is told of no end. Looked at when a client
    /// goes, which may be a minute and several files after it was replaced.
    in_use: Arc<ArcSwap<InUse>>,
}

impl DrainingClients {
    /// Those of `snapshots`; none yet.
    pub(crate) fn new(snapshots: Arc<SnapshotCell>) -> Self {
        let (tasks, at_once, in_use) = (TaskTracker::new(), CancellationToken::new(), Arc::default());
        DrainingClients { snapshots, tasks, at_once, in_use }
    }

    /// From now on the endpoints and the clients of these are in use.
    pub(crate) fn use_those_of<'a>(&self, generations: impl Iterator<Item = &'a Generation> + Clone) {
        let endpoints = generations.clone().flat_map(Generation::endpoints).collect();
        let in_use = InUse::new(endpoints, generations.flat_map(Generation::clients));
        self.in_use.store(Arc::new(in_use));
    }

    /// Lets go of `client` once no call goes by one of `past`.
    pub(crate) fn add(&self, client: Arc<PluginClient>, past: Vec<Weak<InForce>>) {
        let (snapshots, in_use, at_once) =
            (Arc::clone(&self.snapshots), Arc::clone(&self.in_use), self.at_once.clone());
        self.snapshots.add_leaving(&client);
        // Whoever takes its place goes on with this count.
        let dropped = client.observers_dropped();
        self.tasks.spawn(async move {
            at_once.run_until_cancelled(unused(&past)).await;
            let given_up = client.drain_until(for_observers(&at_once)).await;
            if given_up > 0 {
                let plugin = client.name();
                tracing::warn!(plugin, given_up, "observers did not receive every call");
            }
            if let Some(heir) = heir(&snapshots, &client) {
                heir.add_dropped(client.observers_dropped() - dropped);
            }
            let in_use = in_use.load().beside(&snapshots.leaving(client.name()));
            client.retire(&in_use).await;
        });
    }

    /// Lets go of all that is left, by `end`: there are no calls any more.
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

/// Who is in the place of `client` by now.
fn heir(snapshots: &SnapshotCell, client: &PluginClient) -> Option<Arc<PluginClient>> {
    let in_force = snapshots.in_force();
    in_force.invoker.routes().clients.iter().find(|heir| heir.name() == client.name()).cloned()
}

/// Returns when nobody holds one of `past`.
async fn unused(past: &[Weak<InForce>]) {
    let end = Instant::now() + MAX_CALL_WAIT;
    while past.iter().any(|past| past.strong_count() > 0) && Instant::now() < end {
        sleep(POLL_INTERVAL).await;
    }
}
