//! Whether a binding applies to a tenant at a point, rule by rule (docs/protocol.md, sections 3 and 7). These
//! rules build plans, and also explain what a plan leaves out.

use std::sync::Arc;

use crate::{
    config::{Binding, Bypass, Config, Consent, Plugin, Tenant},
    core::{call_site::CallSite, manifest::Manifest, point::Point, step::Mode},
};

/// Why a binding isn't in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceReason {
    /// The binding has `enabled: false`.
    BindingDisabled,
    /// Its plugin has `enabled: false`.
    PluginDisabled,
    /// The tenant lacks a label of its selector.
    NotSelected,
    /// The tenant's `disable` names it, and it is overridable.
    Disabled,
    /// Its `points` don't list this point, or its `hooks` this hook.
    PointNotListed,
    /// It has no `points`, and neither the accepted manifest nor the consent in the plugin's entry offers
    /// this point.
    PointNotOffered,
    /// An operator has bypassed it for this tenant.
    Bypassed,
}

/// What is known of the points and hooks that a plugin offers.
#[derive(Debug, Clone, Copy)]
pub(super) enum PluginOffers<'p> {
    /// The accepted manifest.
    Manifest(&'p Manifest),
    /// No manifest was accepted yet. Only one with these points and hooks can be, because the plugin's entry
    /// consents to no others.
    Consent(&'p Consent),
    /// Nothing.
    Unknown,
}

impl<'p> PluginOffers<'p> {
    /// The offers of `plugin`, given its accepted manifest, if any.
    pub(super) fn applies(plugin: &'p Plugin, manifest: Option<&'p Manifest>) -> Self {
        match (manifest, &plugin.accepted) {
            (Some(manifest), _) => PluginOffers::Manifest(manifest),
            (None, Some(consent)) => PluginOffers::Consent(consent),
            (None, None) => PluginOffers::Unknown,
        }
    }

    pub(super) fn manifest(self) -> Option<&'p Manifest> {
        match self {
            PluginOffers::Manifest(manifest) => Some(manifest),
            PluginOffers::Consent(_) | PluginOffers::Unknown => None,
        }
    }

    /// Whether the plugin is known to provide tools.
    fn has_tools(self) -> bool {
        match self {
            PluginOffers::Manifest(manifest) => !manifest.tool_names.is_empty(),
            PluginOffers::Consent(consent) => !consent.tools.is_empty(),
            PluginOffers::Unknown => false,
        }
    }

    /// Whether `binding` provides tools of the plugin if it applies at `before_tool_call`. Only an answer that is enforced
    /// replaces the tool.
    pub(super) fn gives_tools(self, binding: &Binding) -> bool {
        self.has_tools() && binding.hooks.is_none() && binding.mode() == Mode::Enforce
    }

    /// Whether the plugin is known not to be called as a step at `site`.
    pub(super) fn lack(self, site: &CallSite) -> bool {
        match (self, site) {
            (PluginOffers::Manifest(manifest), site) => manifest.offers_at(site).is_none(),
            (PluginOffers::Consent(consent), CallSite::Point(point)) => consent.points.at(*point).is_none(),
            (PluginOffers::Consent(consent), CallSite::Hook(hook)) => !consent.hooks.contains_key(hook),
            (PluginOffers::Unknown, _) => false,
        }
    }
}

/// Whether `binding` and its plugin are enabled.
pub(super) fn enabled(binding: &Binding, plugin: &Plugin) -> Result<(), AbsenceReason> {
    match (binding.enabled, plugin.enabled) {
        (false, _) => Err(AbsenceReason::BindingDisabled),
        (true, false) => Err(AbsenceReason::PluginDisabled),
        (true, true) => Ok(()),
    }
}

/// Whether `binding`, named `name`, applies to `tenant`; `None` is an unlisted tenant, which has no labels.
/// Don't call it for another tenant's own binding.
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

/// Whether `binding` applies at `site`: at hooks by its `hooks`, at points by its `points` or else by what the plugin
/// offers. While that is unknown, it applies at all four: a binding that can't be resolved is never skipped.
pub(super) fn at(binding: &Binding, site: &CallSite, offers: PluginOffers<'_>) -> Result<(), AbsenceReason> {
    let is_listed = match (site, &binding.hooks, &binding.points) {
        (CallSite::Hook(hook), Some(hooks), _) => hooks.contains(hook),
        (CallSite::Hook(_), None, _) | (CallSite::Point(_), Some(_), _) => false,
        (CallSite::Point(point), None, Some(points)) => points.contains(point),
        (CallSite::Point(Point::BeforeToolCall), None, None) if offers.gives_tools(binding) => true,
        (CallSite::Point(_), None, None) if offers.lack(site) => return Err(AbsenceReason::PointNotOffered),
        (CallSite::Point(_), None, None) => true,
    };
    if is_listed { Ok(()) } else { Err(AbsenceReason::PointNotListed) }
}

/// Whether the binding `name` is not bypassed for the tenant `id`.
fn in_place(config: &Config, name: &str, id: &str) -> Result<(), AbsenceReason> {
    let is_it = |bypass: &Arc<Bypass>| bypass.binding == name && bypass.tenant == id;
    if config.bypasses.iter().any(is_it) { Err(AbsenceReason::Bypassed) } else { Ok(()) }
}

/// Whether `binding` of `plugin` applies to `tenant` at any point, ignoring bypasses; `None` is an unlisted
/// tenant. Don't call it for another tenant's own binding.
///
/// # Errors
/// The reason why it doesn't apply.
pub fn stands(binding: &Binding, plugin: &Plugin, tenant: Option<&Tenant>) -> Result<(), AbsenceReason> {
    enabled(binding, plugin).and_then(|()| of(binding, &binding.effective_name(), tenant))
}

/// The bindings of `config` that are the tenant `id`'s own or global, but are missing from its plan at
/// `site`, each with the first reason. `manifest` returns a plugin's manifest by its index in the
/// configuration.
pub fn absent<'c, 'm>(
    config: &'c Config,
    manifest: impl Fn(usize) -> Option<&'m Manifest>,
    id: &str,
    site: &CallSite,
) -> Vec<(&'c Binding, AbsenceReason)> {
    let tenant = config.tenants.list.iter().find(|tenant| tenant.id == id).map(|tenant| &**tenant);
    let why = |binding: &Binding| {
        let plugin = config.plugins.iter().position(|plugin| plugin.name == binding.plugin)?;
        enabled(binding, &config.plugins[plugin])
            .and_then(|()| of(binding, &binding.effective_name(), tenant))
            .and_then(|()| {
                at(binding, site, PluginOffers::applies(&config.plugins[plugin], manifest(plugin)))
            })
            .and_then(|()| in_place(config, &binding.effective_name(), id))
            .err()
    };
    let concerned = |binding: &&'c Binding| binding.is_floor() || binding.tenant.as_deref() == Some(id);
    let bindings = config.bindings.iter().map(|binding| &**binding).filter(concerned);
    bindings.filter_map(|binding| Some((binding, why(binding)?))).collect()
}
