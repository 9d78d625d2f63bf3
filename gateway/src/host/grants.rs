//! What each plugin is granted now. A plugin's own token lives for a day, so its rights are checked at each use.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use hookgate_proto::Capability;

use crate::config::Plugin;

/// The grants of the active configuration's plugins, by name.
pub(super) struct GrantTable(ArcSwap<BTreeMap<String, Vec<Capability>>>);

impl GrantTable {
    pub(super) fn new(plugins: &[Arc<Plugin>]) -> Self {
        GrantTable(ArcSwap::from_pointee(grants(plugins)))
    }

    /// Takes over the plugins of a configuration that became active.
    pub(super) fn update(&self, plugins: &[Arc<Plugin>]) {
        self.0.store(grants(plugins).into());
    }

    pub(super) fn knows(&self, plugin: &str) -> bool {
        self.0.load().contains_key(plugin)
    }

    pub(super) fn grants(&self, plugin: &str, capability: Capability) -> bool {
        self.0.load().get(plugin).is_some_and(|grants| grants.contains(&capability))
    }
}

fn grants(plugins: &[Arc<Plugin>]) -> BTreeMap<String, Vec<Capability>> {
    let enabled = plugins.iter().filter(|plugin| plugin.enabled);
    enabled.map(|plugin| (plugin.name.clone(), plugin.granted().collect())).collect()
}
