//! Plugins' clients that no call will be given any more: each is let go of when the calls that know it have ended.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{ingress::call::InForce, upstream::PluginClient};

/// The longest invocation, 60 s, and some more.
const LAST_CALLS: Duration = Duration::from_secs(65);
/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(50);
/// For what its observers have not seen yet.
const OBSERVERS: Duration = Duration::from_secs(5);

/// All of them.
#[derive(Clone, Default)]
pub(super) struct Retiring {
    tasks: TaskTracker,
    /// No call is under way any more.
    at_once: CancellationToken,
}

impl Retiring {
    /// Lets go of `client` once no call goes by one of `past`. Its endpoints among `kept` go on serving and are told
    /// nothing.
    pub(super) fn add(&self, client: Arc<PluginClient>, past: Vec<Weak<InForce>>, kept: BTreeSet<String>) {
        let at_once = self.at_once.clone();
        self.tasks.spawn(async move {
            at_once.run_until_cancelled(unused(&past)).await;
            let given_up = client.drain(OBSERVERS).await;
            if given_up > 0 {
                let plugin = client.name();
                tracing::warn!(plugin, given_up, "observers did not see every call");
            }
            client.retire(&kept).await;
        });
    }

    /// Lets go of all that is left, by `end`: there are no calls any more.
    pub(super) async fn finish(&self, end: Instant) {
        self.at_once.cancel();
        self.tasks.close();
        let _ = timeout_at(end, self.tasks.wait()).await;
    }
}

/// Returns when nobody holds one of `past`.
async fn unused(past: &[Weak<InForce>]) {
    let end = Instant::now() + LAST_CALLS;
    while past.iter().any(|past| past.strong_count() > 0) && Instant::now() < end {
        sleep(LOOK).await;
    }
}
