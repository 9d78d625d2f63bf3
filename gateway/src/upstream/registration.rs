//! State shared by all endpoints of one plugin.

use std::sync::OnceLock;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::{
    config,
    upstream::{
        client::SharedResources, initialize::PreparedConfig, initialize_order::InitializeTurn,
        manifest_validation::AcceptedManifest, manifests::Manifests,
    },
};

pub(super) struct Registration {
    pub(super) plugin: config::Plugin,
    pub(super) shared: SharedResources,
    pub(super) manifests: Manifests,
    /// Whether the plugin may be initialised yet.
    pub(super) turn: InitializeTurn,
    first_initialised: OnceLock<Instant>,
    /// The configuration that was last prepared for any endpoint. It tells what to redact from the plugin's
    /// text.
    pub(super) prepared: ArcSwapOption<PreparedConfig>,
}

impl Registration {
    pub(super) fn new(plugin: config::Plugin, shared: SharedResources) -> Self {
        Registration {
            plugin,
            shared,
            manifests: Manifests::default(),
            turn: InitializeTurn::new(),
            first_initialised: OnceLock::new(),
            prepared: ArcSwapOption::empty(),
        }
    }

    /// Whether the plugin runs only with a manifest that an operator consented to.
    pub(super) fn needs_consent(&self) -> bool {
        self.shared.reach.needs_consent(&self.plugin)
    }

    /// See [`super::PluginClient::log_registered`].
    pub(super) fn log_registered(&self) {
        let config::Plugin { name, builtin, enabled, .. } = &self.plugin;
        let builtin = builtin.iter().map(|builtin| format!("builtin:{builtin}"));
        let endpoints =
            self.plugin.addresses().map(str::to_owned).chain(builtin).collect::<Vec<_>>().join(" ");
        tracing::info!(event = "plugin.registered", plugin = name, endpoints, "registered");
        if !enabled {
            tracing::info!(
                event = "plugin.disabled",
                plugin = name,
                "disabled: the gateway does not connect to it"
            );
        }
    }

    /// When the first successful Initialize to any endpoint was sent.
    pub(super) fn initialised_at(&self) -> Option<Instant> {
        self.first_initialised.get().copied()
    }

    pub(super) fn note_initialised(&self, sent: Instant) {
        self.first_initialised.get_or_init(|| sent);
    }

    /// Notifies subscribers of a status change.
    pub(super) fn changed(&self) {
        self.shared.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Handles the end of a connection: another manifest may be the accepted one now.
    pub(super) fn connection_ended(&self) {
        let before = self.manifests.accepted();
        if self.manifests.look_again() {
            self.upgraded(before.as_deref());
        }
    }

    /// Records a change of the accepted manifest.
    pub(super) fn upgraded(&self, before: Option<&AcceptedManifest>) {
        if let (Some(before), Some(now)) = (before, self.manifests.accepted()) {
            let (plugin, from, to) = (&*self.plugin.name, before.version(), now.version());
            tracing::info!(event = "plugin.upgraded", plugin, %from, %to, "another manifest is the accepted one");
        }
        self.changed();
    }
}
