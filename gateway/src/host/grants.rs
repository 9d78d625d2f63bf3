//! What each plugin is granted now. A plugin's own token lives for a day, so its rights are checked at each use.

use std::collections::BTreeMap;

use arc_swap::ArcSwap;
use hookgate_proto::Capability;

use crate::config::Config;

/// The grants of the active configuration, by plugin.
pub(super) struct GrantTable(ArcSwap<BTreeMap<String, Vec<Capability>>>);

impl GrantTable {
    pub(super) fn new(config: &Config) -> Self {
        GrantTable(ArcSwap::from_pointee(grants(config)))
    }

    /// Takes over the grants of a configuration that became active.
    pub(super) fn update(&self, config: &Config) {
        self.0.store(grants(config).into());
    }

    pub(super) fn knows(&self, plugin: &str) -> bool {
        self.0.load().contains_key(plugin)
    }

    pub(super) fn grants(&self, plugin: &str, capability: Capability) -> bool {
        self.0.load().get(plugin).is_some_and(|grants| grants.contains(&capability))
    }
}

fn grants(config: &Config) -> BTreeMap<String, Vec<Capability>> {
    let enabled = config.plugins.iter().filter(|plugin| plugin.enabled);
    enabled.map(|plugin| (plugin.name.clone(), plugin.granted().collect())).collect()
}
