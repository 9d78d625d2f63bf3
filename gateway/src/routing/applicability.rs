//! Whether a binding stands in a tenant's chain at a point, rule by rule (docs/protocol.md, sections 3 and 7). Plans are
//! made by these rules, and what isn't in a plan is explained by them.

use std::sync::Arc;

use crate::{
    config::{Binding, Bypass, Config, OfferedPoints, Plugin, Tenant},
    core::{manifest::Manifest, point::Point},
};

/// Why a binding doesn't stand where it might.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceReason {
    /// The binding has `enabled: false`.
    BindingDisabled,
    /// Its plugin has.
    PluginDisabled,
    /// The tenant lacks a label of its selector.
    NotSelected,
    /// The tenant's `disable` names it, and it is overridable.
    Disabled,
    /// Its `points` leave this one out.
    PointNotListed,
    /// It has no `points`, and the accepted manifest, or what its plugin's entry consents to, doesn't offer this one.
    PointNotOffered,
    /// An operator has taken it out of this tenant's chains for a while.
    Bypassed,
}

/// What is known of where a plugin is called.
#[derive(Debug, Clone, Copy)]
pub(super) enum PluginOffers<'p> {
    /// What its accepted manifest says.
    Manifest(&'p Manifest),
    /// No manifest was accepted yet, and none is but with these points: its entry consents to no others.
    Consent(&'p OfferedPoints),
    /// Nothing.
    Unknown,
}

impl<'p> PluginOffers<'p> {
    /// Of `plugin`, with the manifest that was accepted, if any was.
    pub(super) fn applies(plugin: &'p Plugin, manifest: Option<&'p Manifest>) -> Self {
        match (manifest, &plugin.accepted) {
            (Some(manifest), _) => PluginOffers::Manifest(manifest),
            (None, Some(consent)) => PluginOffers::Consent(&consent.points),
            (None, None) => PluginOffers::Unknown,
        }
    }

    /// The manifest.
    pub(super) fn manifest(self) -> Option<&'p Manifest> {
        match self {
            PluginOffers::Manifest(manifest) => Some(manifest),
            PluginOffers::Consent(_) | PluginOffers::Unknown => None,
        }
    }

    /// Whether `point` is known not to be among them.
    pub(super) fn lack(self, point: Point) -> bool {
        match self {
            PluginOffers::Manifest(manifest) => manifest.offers(point).is_none(),
            PluginOffers::Consent(points) => points.at(point).is_none(),
            PluginOffers::Unknown => false,
        }
    }
}

/// Whether `binding` of `plugin` stands in any plan.
pub(super) fn enabled(binding: &Binding, plugin: &Plugin) -> Result<(), AbsenceReason> {
    match (binding.enabled, plugin.enabled) {
        (false, _) => Err(AbsenceReason::BindingDisabled),
        (true, false) => Err(AbsenceReason::PluginDisabled),
        (true, true) => Ok(()),
    }
}

/// Whether `binding`, called `name`, stands for `tenant` (none: one that is not listed, which has no labels). Those of
/// another tenant are not asked about.
pub(super) fn of(binding: &Binding, name: &str, tenant: Option<&Tenant>) -> Result<(), AbsenceReason> {
    let labelled = |(key, value)| tenant.is_some_and(|tenant| tenant.labels.get(key) == Some(value));
    if !binding.selector.iter().flatten().all(labelled) {
        return Err(AbsenceReason::NotSelected);
    }
    let named = || tenant.is_some_and(|tenant| tenant.disable.iter().any(|disabled| disabled == name));
    if binding.overridable && named() {
        return Err(AbsenceReason::Disabled);
    }
    Ok(())
}

/// Whether `binding` stands at `point`, by what is written or else by what the plugin offers; at all four as long as
/// that is not known (unresolved is never skipped).
pub(super) fn at(binding: &Binding, point: Point, offers: PluginOffers<'_>) -> Result<(), AbsenceReason> {
    match &binding.points {
        Some(points) if !points.contains(&point) => Err(AbsenceReason::PointNotListed),
        None if offers.lack(point) => Err(AbsenceReason::PointNotOffered),
        _ => Ok(()),
    }
}

/// Whether the binding called `name` isn't bypassed for the tenant `id`.
fn in_place(config: &Config, name: &str, id: &str) -> Result<(), AbsenceReason> {
    let is_it = |bypass: &Arc<Bypass>| bypass.binding == name && bypass.tenant == id;
    if config.bypasses.iter().any(is_it) { Err(AbsenceReason::Bypassed) } else { Ok(()) }
}

/// Whether `binding` of `plugin` stands in a chain of `tenant` (none: one that is not listed) at any point, bypasses left
/// aside. Those of another tenant are not asked about.
///
/// # Errors
/// Why not.
pub fn stands(binding: &Binding, plugin: &Plugin, tenant: Option<&Tenant>) -> Result<(), AbsenceReason> {
    enabled(binding, plugin).and_then(|()| of(binding, &binding.effective_name(), tenant))
}

/// The bindings of `config` that are for the tenant `id` or for several, and yet don't stand in its chain at `point`,
/// each with the first reason. `manifest` is a plugin's by its index in the configuration.
pub fn absent<'c, 'm>(
    config: &'c Config,
    manifest: impl Fn(usize) -> Option<&'m Manifest>,
    id: &str,
    point: Point,
) -> Vec<(&'c Binding, AbsenceReason)> {
    let tenant = config.tenants.list.iter().find(|tenant| tenant.id == id).map(|tenant| &**tenant);
    let why = |binding: &Binding| {
        let plugin = config.plugins.iter().position(|plugin| plugin.name == binding.plugin)?;
        enabled(binding, &config.plugins[plugin])
            .and_then(|()| of(binding, &binding.effective_name(), tenant))
            .and_then(|()| {
                at(binding, point, PluginOffers::applies(&config.plugins[plugin], manifest(plugin)))
            })
            .and_then(|()| in_place(config, &binding.effective_name(), id))
            .err()
    };
    let concerned = |binding: &&'c Binding| binding.is_floor() || binding.tenant.as_deref() == Some(id);
    let bindings = config.bindings.iter().map(|binding| &**binding).filter(concerned);
    bindings.filter_map(|binding| Some((binding, why(binding)?))).collect()
}
