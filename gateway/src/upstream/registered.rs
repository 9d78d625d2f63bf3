//! Endpoints that plugins' processes registered themselves (docs/protocol.md, section 2). They come and go without a
//! change of the configuration.

use std::collections::{BTreeMap, BTreeSet};

/// The registered endpoints of all plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegisteredEndpoints(BTreeMap<String, BTreeSet<String>>);

impl RegisteredEndpoints {
    /// The endpoints of `plugin`.
    pub(super) fn of(&self, plugin: &str) -> BTreeSet<String> {
        self.0.get(plugin).cloned().unwrap_or_default()
    }
}

impl FromIterator<(String, String)> for RegisteredEndpoints {
    /// From pairs of a plugin's name and an endpoint.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        let mut endpoints: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (plugin, endpoint) in pairs {
            endpoints.entry(plugin).or_default().insert(endpoint);
        }
        RegisteredEndpoints(endpoints)
    }
}
