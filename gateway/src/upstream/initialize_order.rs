//! Initialises plugins in a given order (docs/protocol.md, section 2). All are dialled and described at the
//! same time; the configurations go out one after the other.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{client::PluginClient, state::State};

/// Whether a plugin may be sent its configuration. True unless [`start_in_order`] makes the plugin wait.
pub(super) struct InitializeTurn(watch::Sender<bool>);

impl InitializeTurn {
    pub(super) fn new() -> Self {
        InitializeTurn(watch::Sender::new(true))
    }

    fn set(&self, has_come: bool) {
        self.0.send_replace(has_come);
    }

    /// Returns when the plugin may be sent its configuration.
    pub(super) async fn came(&self) {
        let came = self.0.subscribe().wait_for(|has_come| *has_come).await.is_ok();
        debug_assert!(came, "the sender is ours");
    }
}

/// Starts `clients`, and stops when `ended` is cancelled. A plugin gets its configuration once those before
/// it have theirs or can't take it now, because they were refused or not reached. A slow plugin delays the
/// next one for its share of `patience` only, and is still initialised afterwards.
pub fn start_in_order(clients: Vec<Arc<PluginClient>>, patience: Duration, ended: &CancellationToken) {
    for client in &clients {
        turn(client).set(false);
        client.start(ended.clone());
    }
    let ended = ended.clone();
    tokio::spawn(async move { ended.run_until_cancelled(take_turns(&clients, patience)).await });
}

async fn take_turns(clients: &[Arc<PluginClient>], patience: Duration) {
    let end = Instant::now() + patience;
    let mut waiting = (1..=u32::try_from(clients.len()).unwrap_or(u32::MAX)).rev();
    for client in clients {
        turn(client).set(true);
        let share = end.saturating_duration_since(Instant::now()) / waiting.next().unwrap_or(1);
        if timeout(share, wait_until_settled(client)).await.is_err() {
            tracing::debug!(plugin = client.name(), "not initialised yet: the next plugin has its turn");
        }
    }
}

/// Returns when the plugin is initialised, or when it is known why it isn't.
async fn wait_until_settled(client: &PluginClient) {
    let mut changes = client.pool.registration.shared.changes();
    while client.status().state == State::Connecting {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn turn(client: &PluginClient) -> &InitializeTurn {
    &client.pool.registration.turn
}
