//! Bypassed bindings by tenant. Bypasses only remove steps from plans; they don't affect whether a table is
//! valid.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::Config,
    core::point::Point,
    routing::{applicability::PluginOffers, binding::CompiledBinding},
};

/// Names of a tenant's bypassed bindings, by [`Point::index`] of the points where they would apply.
pub(super) type BypassedByPoint = [Vec<Arc<str>>; 4];

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
) -> Option<Arc<BypassedByPoint>> {
    let mut missing = BypassedByPoint::default();
    for (binding, offers) in bypassed {
        for point in Point::ALL.into_iter().filter(|point| binding.stands_at(*point, offers)) {
            missing[point.index()].push(Arc::clone(&binding.name));
        }
    }
    missing.iter().any(|names| !names.is_empty()).then(|| Arc::new(missing))
}
