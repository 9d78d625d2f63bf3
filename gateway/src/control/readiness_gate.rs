//! What a start waits for. Without a required plugin of the file it fails; without a required plugin of the
//! registry it serves, but isn't ready (docs/protocol.md, section 2, `required`;
//! docs/decisions/0037-what-the-registry-requires.md).

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    config::{self, Config},
    control::generation::{ConfigBasis, Generation},
    core::object::Owner,
    snapshot::readiness::Readiness,
    upstream::{DialErrorKind, PluginClient, State, Why},
};

/// How long a start waits for plugins that have registered themselves.
const MAX_WAIT_FOR_REGISTERED: Duration = Duration::from_secs(5);

/// A required plugin that isn't ready. Exit code 4 if it is the file's.
#[derive(Debug, thiserror::Error)]
#[error("required plugin '{plugin}' is {state}: {reason}: {detail}")]
pub struct MissingPlugin {
    /// The plugin's name.
    pub plugin: String,
    /// The plugin's state.
    pub state: State,
    /// A stable word for the reason.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub detail: String,
}

impl MissingPlugin {
    pub(crate) fn new(client: &PluginClient) -> Self {
        let status = client.status();
        MissingPlugin {
            plugin: client.name().to_owned(),
            state: status.state,
            reason: status.why.as_str(),
            detail: status.detail.clone(),
        }
    }
}

/// Waits until every required plugin of the file is ready. A refused one ends the wait at once, an
/// unreachable one after `startup.wait`.
pub(crate) async fn wait(first: &Generation, mut changes: watch::Receiver<u64>) -> Result<(), MissingPlugin> {
    let config = &first.config;
    let required: Vec<_> = config
        .plugins
        .iter()
        .zip(first.clients())
        .filter(|(plugin, _)| !is_from_registry(config, plugin) && first.requires(&plugin.name))
        .collect();
    let all_ready = async {
        loop {
            changes.mark_unchanged();
            let mut waiting = false;
            for (_, client) in &required {
                match client.status().state {
                    State::Ready => {}
                    State::Refused => return Err(MissingPlugin::new(client)),
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
            .map_or(Ok(()), |(_, client)| Err(MissingPlugin::new(client))),
    }
}

/// Waits until the plugins whose registered endpoints are known are no longer connecting, so that a restarted gateway
/// calls them from its first call on. Nothing fails without them.
pub(crate) async fn wait_for_registered(first: &Generation, mut changes: watch::Receiver<u64>) {
    let registered = |(plugin, client): &(&Arc<config::Plugin>, &Arc<PluginClient>)| {
        plugin.self_registration && !client.endpoints().is_empty()
    };
    let is_settled = |_: &u64| {
        let mut registered = first.config.plugins.iter().zip(first.clients()).filter(registered);
        registered.all(|(_, client)| client.status().state != State::Connecting)
    };
    let limit = first.config.startup.wait.0.min(MAX_WAIT_FOR_REGISTERED);
    let _ = timeout(limit, changes.wait_for(is_settled)).await;
}

/// The last part of a start: the gateway becomes ready, unless a plugin that the registry requires is
/// missing. That never fails the start: an operator's write must not keep gateways from starting, and the
/// next write may repair it.
pub(crate) struct ReadinessGate {
    readiness: Arc<Readiness>,
    health: HealthReporter,
    is_over: bool,
    /// The last message about a missing plugin.
    told: Option<String>,
}

impl ReadinessGate {
    /// For a start whose listeners are bound and whose first table is published.
    pub(crate) fn new(readiness: Arc<Readiness>, health: HealthReporter) -> Self {
        ReadinessGate { readiness, health, is_over: false, told: None }
    }

    /// Whether the gateway has been ready. From then on, plugins don't affect readiness.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Checks whether the gateway is ready with the active configuration.
    pub(crate) async fn look(&mut self, current: &Generation) {
        if self.is_over {
            return;
        }
        let missing = match &current.basis {
            ConfigBasis::Nothing => Some("its required plugins are not known yet".to_owned()),
            ConfigBasis::File(_) | ConfigBasis::Registry(_) => {
                missing_plugin(current).map(|missing| self.describe_missing(&missing))
            }
        };
        self.is_over = missing.is_none();
        self.readiness.started(missing);
        if self.is_over {
            self.health.set_service_status("", ServingStatus::Serving).await;
            tracing::info!("started");
        }
    }

    /// Logs what is missing, once. A plugin that is still connecting is not logged.
    fn describe_missing(&mut self, missing: &MissingPlugin) -> String {
        let sentence = missing.to_string();
        if missing.state != State::Connecting && self.told.as_ref() != Some(&sentence) {
            tracing::warn!("not ready: {sentence}");
            self.told = Some(sentence.clone());
        }
        sentence
    }
}

/// The first missing plugin that the registry requires.
fn missing_plugin(current: &Generation) -> Option<MissingPlugin> {
    let plugins = current.config.plugins.iter().zip(current.clients());
    let mut missing = plugins.filter(|(plugin, client)| holds_readiness(current, plugin, client));
    missing.next().map(|(_, client)| MissingPlugin::new(client))
}

/// Whether the registry requires the plugin and it is missing.
pub(crate) fn holds_readiness(current: &Generation, plugin: &config::Plugin, client: &PluginClient) -> bool {
    is_from_registry(&current.config, plugin)
        && current.requires(&plugin.name)
        && is_there(client, true, true) != Some(true)
}

/// Whether a start waits for the plugin without failing, because it can't be fixed in this process's file:
/// the plugin came through the API or from another process's file.
pub(crate) fn is_from_registry(config: &Config, plugin: &config::Plugin) -> bool {
    let applies = config.store.as_ref().is_none_or(|store| store.apply_file);
    plugin.owner == Owner::Api || !applies
}

/// `Some(true)` if a table may be published with the plugin in this state, `Some(false)` if not, `None` if it
/// is still connecting. An optional plugin that was tried and failed doesn't block.
pub(crate) fn is_there(client: &PluginClient, is_required: bool, is_late: bool) -> Option<bool> {
    let status = client.status();
    // A plugin that asks for too much must not block the write that removes it.
    if status.why == Why::Unreachable(DialErrorKind::NotPermitted) {
        return Some(true);
    }
    match status.state {
        // A plugin that waits for approval blocks nobody else's changes, even if it is required.
        State::Ready | State::Disabled | State::Pending => Some(true),
        State::Refused => Some(!is_required),
        State::Unhealthy if !is_required => Some(true),
        State::Unhealthy | State::Connecting | State::Draining => is_late.then_some(!is_required),
    }
}
