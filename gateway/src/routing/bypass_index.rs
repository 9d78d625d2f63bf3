//! Which bindings operators have taken out of whose chains. A table is right or wrong without them: they take steps out of
//! plans, and out of nothing else.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::Config,
    core::point::Point,
    routing::{applicability::PluginOffers, binding::CompiledBinding},
};

/// Names of a tenant's bindings that are bypassed, by [`Point::index`] of the points where they would stand.
pub(super) type BypassedByPoint = [Vec<Arc<str>>; 4];

/// Names of bindings by the tenant that they are bypassed for.
pub(super) struct BypassIndex<'c>(HashMap<&'c str, Vec<&'c str>>);

impl<'c> BypassIndex<'c> {
    /// Those of `config`.
    pub(super) fn from_config(config: &'c Config) -> Self {
        let mut bypassed: HashMap<&str, Vec<&str>> = HashMap::new();
        for bypass in &config.bypasses {
            bypassed.entry(&bypass.tenant).or_default().push(&bypass.binding);
        }
        BypassIndex(bypassed)
    }

    /// Those of the tenant `id`.
    pub(super) fn by(&self, id: &str) -> &[&'c str] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    /// Whom there are any for.
    pub(super) fn tenants(&self) -> impl Iterator<Item = &'c str> {
        self.0.keys().copied()
    }
}

/// What is missing from the plans where these bindings of plugins that offer this are bypassed. None: nothing.
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
