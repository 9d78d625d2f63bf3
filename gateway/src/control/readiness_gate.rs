//! What a start waits for: the plugins of the file without which it must not serve, and those of the registry without which
//! it isn't ready (docs/protocol.md, section 2, `required`; docs/decisions/0037-what-the-registry-requires.md).

use std::sync::Arc;

use tokio::{sync::watch, time::timeout};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    config::{self, Config},
    control::generation::{ConfigBasis, Generation},
    core::object::Owner,
    snapshot::readiness::Readiness,
    upstream::{DialErrorKind, PluginClient, State, Why},
};

/// A required plugin that isn't there. Exit code 4, where it is the file's.
#[derive(Debug, thiserror::Error)]
#[error("required plugin '{plugin}' is {state}: {reason}: {detail}")]
pub struct MissingPlugin {
    /// Its name.
    pub plugin: String,
    /// Where it stands.
    pub state: State,
    /// Why, stable.
    pub reason: &'static str,
    /// Why, in a sentence.
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

/// Waits until every required plugin of the file is ready: one that is refused ends the wait at once, one that can't be
/// reached after `startup.wait`.
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

/// The end of a start: from here on the gateway is ready, unless a plugin that the registry requires isn't there. Such a
/// start never fails: what operators write must not keep gateways from starting, and they may write again.
pub(crate) struct ReadinessGate {
    readiness: Arc<Readiness>,
    health: HealthReporter,
    is_over: bool,
    /// What was said last that it waits for.
    told: Option<String>,
}

impl ReadinessGate {
    /// Of a start whose listeners are bound and whose first table is published.
    pub(crate) fn new(readiness: Arc<Readiness>, health: HealthReporter) -> Self {
        ReadinessGate { readiness, health, is_over: false, told: None }
    }

    /// Whether it is ready, or was once: plugins don't change that any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Looks whether it is, by what is in force.
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

    /// Says what is missing, once; for as long as it is on its way there is nothing to say.
    fn describe_missing(&mut self, missing: &MissingPlugin) -> String {
        let sentence = missing.to_string();
        if missing.state != State::Connecting && self.told.as_ref() != Some(&sentence) {
            tracing::warn!("not ready: {sentence}");
            self.told = Some(sentence.clone());
        }
        sentence
    }
}

/// The first plugin that the registry requires and that isn't there.
fn missing_plugin(current: &Generation) -> Option<MissingPlugin> {
    let plugins = current.config.plugins.iter().zip(current.clients());
    let mut missing = plugins.filter(|(plugin, client)| holds_readiness(current, plugin, client));
    missing.next().map(|(_, client)| MissingPlugin::new(client))
}

/// Whether the registry requires the plugin and it isn't there.
pub(crate) fn holds_readiness(current: &Generation, plugin: &config::Plugin, client: &PluginClient) -> bool {
    is_from_registry(&current.config, plugin)
        && current.requires(&plugin.name)
        && is_there(client, true, true) != Some(true)
}

/// Whether a start waits for the plugin without failing: it is the API's, or another process's file has it, which whoever
/// starts this one can't mend.
pub(crate) fn is_from_registry(config: &Config, plugin: &config::Plugin) -> bool {
    let applies = config.store.as_ref().is_none_or(|store| store.apply_file);
    plugin.owner == Owner::Api || !applies
}

/// Whether the table can do with the plugin as it is; none: it is on its way. An optional one that was tried and isn't
/// there holds nothing up.
pub(crate) fn is_there(client: &PluginClient, is_required: bool, is_late: bool) -> Option<bool> {
    let status = client.status();
    // Who asks for more than it may have must not keep anybody from taking it away.
    if status.why == Why::Unreachable(DialErrorKind::NotPermitted) {
        return Some(true);
    }
    match status.state {
        // Until somebody approves of it, it holds nobody else's changes up, whoever requires it.
        State::Ready | State::Disabled | State::Pending => Some(true),
        State::Refused => Some(!is_required),
        State::Unhealthy if !is_required => Some(true),
        State::Unhealthy | State::Connecting | State::Draining => is_late.then_some(!is_required),
    }
}
