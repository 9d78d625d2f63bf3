//! Bypassed bindings by tenant. Bypasses only remove steps from plans; they don't affect whether a table is
//! valid.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use hookgate_proto::HookName;

use crate::{
    config::Config,
    core::{call_site::CallSite, point::Point},
    routing::{applicability::PluginOffers, binding::CompiledBinding},
};

/// Names of a tenant's bypassed bindings.
#[derive(Debug, Default)]
pub(super) struct BypassedBindings {
    /// By [`Point::index`] of the points where they would apply.
    points: [Vec<Arc<str>>; 4],
    /// By the hooks where they would apply.
    hooks: BTreeMap<HookName, Vec<Arc<str>>>,
}

impl BypassedBindings {
    /// The hooks where any would apply.
    pub(super) fn hooks(&self) -> impl Iterator<Item = &HookName> {
        self.hooks.keys()
    }

    /// Those that would apply at `site`.
    pub(super) fn at(&self, site: &CallSite) -> &[Arc<str>] {
        match site {
            CallSite::Point(point) => &self.points[point.index()],
            CallSite::Hook(hook) => self.hooks.get(hook).map_or(&[], Vec::as_slice),
        }
    }
}

/// Names of bypassed bindings by tenant.
pub(super) struct BypassIndex<'c>(HashMap<&'c str, Vec<&'c str>>);

impl<'c> BypassIndex<'c> {
    pub(super) fn from_config(config: &'c Config) -> Self {
        let mut bypassed: HashMap<&str, Vec<&str>> = HashMap::new();
        for bypass in &config.bypasses {
            bypassed.entry(&bypass.tenant).or_default().push(&bypass.binding);
        }
        BypassIndex(bypassed)
    }

    /// The names for the tenant `id`.
    pub(super) fn by(&self, id: &str) -> &[&'c str] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    /// The tenants with any bypass.
    pub(super) fn tenants(&self) -> impl Iterator<Item = &'c str> {
        self.0.keys().copied()
    }
}

/// What the plans lack while these bindings are bypassed; each comes with its plugin's offers. Returns `None`
/// if they lack nothing.
pub(super) fn missing<'b>(
    bypassed: impl Iterator<Item = (&'b CompiledBinding, PluginOffers<'b>)>,
) -> Option<Arc<BypassedBindings>> {
    let mut missing = BypassedBindings::default();
    for (binding, offers) in bypassed {
        for point in Point::ALL {
            if binding.stands_at(&point.into(), offers) {
                missing.points[point.index()].push(Arc::clone(&binding.name));
            }
        }
        for hook in binding.written.hooks.iter().flatten().collect::<BTreeSet<_>>() {
            missing.hooks.entry(hook.clone()).or_default().push(Arc::clone(&binding.name));
        }
    }
    let is_none = missing.hooks.is_empty() && missing.points.iter().all(Vec::is_empty);
    (!is_none).then(|| Arc::new(missing))
}
