//! What a start waits for: the plugins without which it must not serve (docs/protocol.md, section 2, `required`).

use tokio::{sync::watch, time::timeout};

use super::Generation;
use crate::upstream::{PluginClient, State};

/// A required plugin that isn't there. Exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("required plugin '{plugin}' is {state}: {reason}: {detail}")]
pub struct Missing {
    /// Its name.
    pub plugin: String,
    /// Where it stands.
    pub state: State,
    /// Why, stable.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub detail: String,
}

impl Missing {
    pub(super) fn new(client: &PluginClient) -> Self {
        let status = client.status();
        Missing {
            plugin: client.name().to_owned(),
            state: status.state,
            reason: status.why.as_str(),
            detail: status.detail.clone(),
        }
    }
}

/// Waits until every required plugin is ready: one that is refused ends the wait at once, one that can't be reached
/// after `startup.wait`.
pub(super) async fn wait(first: &Generation, mut changes: watch::Receiver<u64>) -> Result<(), Missing> {
    let config = &first.config;
    let required: Vec<_> = config
        .plugins
        .iter()
        .zip(first.clients())
        .filter(|(plugin, _)| first.requires(&plugin.name))
        .collect();
    let all_ready = async {
        loop {
            changes.mark_unchanged();
            let mut waiting = false;
            for (_, client) in &required {
                match client.status().state {
                    State::Ready => {}
                    State::Refused => return Err(Missing::new(client)),
                    State::Disabled
                    | State::Pending
                    | State::Connecting
                    | State::Unhealthy
                    | State::Draining => {
                        waiting = true;
                    }
                }
            }
            if !waiting || changes.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    match timeout(config.startup.wait.0, all_ready).await {
        Ok(result) => result,
        Err(_) => required
            .iter()
            .find(|(_, client)| client.status().state != State::Ready)
            .map_or(Ok(()), |(_, client)| Err(Missing::new(client))),
    }
}
