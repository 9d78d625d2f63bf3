//! Which bindings apply to a tenant: the global ones (`*` and selectors) and its own, without the overridable
//! ones that it disables. They run in ascending priority, and no two are equal (docs/protocol.md, sections 3
//! and 7).

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap, HashSet},
};

use crate::{
    config::{Config, Problem, Tenant, UnknownTenant},
    json::pointer::child,
    routing::{applicability, binding::CompiledBinding},
};

/// A problem names at most this many tenants and counts the rest.
const MAX_NAMED: usize = 10;

/// The bindings, grouped by scope, so that building a tenant's chain doesn't scan the bindings of all others.
pub(super) struct BindingChains<'b> {
    floor: Vec<&'b CompiledBinding>,
    own: HashMap<&'b str, Vec<&'b CompiledBinding>>,
}

impl<'b> BindingChains<'b> {
    pub(super) fn new(bindings: &'b [CompiledBinding]) -> Self {
        let mut chains = BindingChains { floor: Vec::new(), own: HashMap::new() };
        for binding in bindings {
            match binding.written.tenant.as_deref() {
                Some(id) if !binding.written.is_floor() => chains.own.entry(id).or_default().push(binding),
                _ => chains.floor.push(binding),
            }
        }
        chains
    }

    /// See [`chain`].
    fn applying_to(&self, tenant: Option<&Tenant>) -> Vec<&'b CompiledBinding> {
        let own = tenant.and_then(|tenant| self.own.get(tenant.id.as_str()));
        chain(self.floor.iter().copied(), own.into_iter().flatten().copied(), tenant)
    }
}

/// The global bindings in `floor` and the tenant's own bindings that apply to `tenant`, in the order in which
/// they run; equal priorities keep the order of the configuration. `None` is an unlisted tenant, which has no
/// labels and no bindings of its own.
pub(super) fn chain<'b, B: Borrow<CompiledBinding>>(
    floor: impl Iterator<Item = &'b B>,
    own: impl Iterator<Item = &'b B>,
    tenant: Option<&Tenant>,
) -> Vec<&'b B> {
    let stands = |of: &&B| {
        let binding = (*of).borrow();
        binding.enabled && applicability::of(&binding.written, &binding.name, tenant).is_ok()
    };
    let mut chain: Vec<_> = floor.chain(own).filter(stands).collect();
    chain.sort_by_key(|of| ((*of).borrow().written.priority, (*of).borrow().index));
    chain
}

/// Reports tenant-level config for plugins that don't exist.
pub(super) fn check_config(config: &Config, problems: &mut Vec<Problem>) {
    let plugins: HashSet<_> = config.plugins.iter().map(|plugin| &plugin.name).collect();
    for (at, tenant) in config.tenants.list.iter().enumerate() {
        for name in tenant.config.keys().filter(|name| !plugins.contains(name)) {
            let pointer = child(&format!("/tenants/list/{at}/config"), name);
            problems
                .push(Problem::new(pointer, format!("there is no plugin `{name}`; name one of `plugins`")));
        }
    }
}

/// Reports each name in `disable` that would disable nothing.
pub(super) fn check_disable(config: &Config, problems: &mut Vec<Problem>) {
    let bindings: HashMap<_, _> =
        config.bindings.iter().map(|binding| (binding.effective_name(), binding)).collect();
    for (at, tenant) in config.tenants.list.iter().enumerate() {
        for (place, name) in tenant.disable.iter().enumerate() {
            let message = match bindings.get(name.as_str()) {
                None => format!("there is no binding `{name}`; `disable` lists names of bindings"),
                Some(binding) if binding.tenant.as_ref().is_some_and(|id| id != "*" && *id != tenant.id) => {
                    format!("binding `{name}` belongs to another tenant; remove it from the list")
                }
                Some(binding) if !binding.overridable => {
                    format!("binding `{name}` is not `overridable`, so no tenant can disable it")
                }
                Some(_) => continue,
            };
            problems.push(Problem::new(format!("/tenants/list/{at}/disable/{place}"), message));
        }
    }
}

/// Reports any two bindings of equal priority that would be in the same chain, whatever their points and
/// conditions, with the affected tenants. A disabled tenant has no chain.
pub(super) fn check_priorities(config: &Config, chains: &BindingChains<'_>, problems: &mut Vec<Problem>) {
    let enabled = config.tenants.list.iter().filter(|tenant| tenant.enabled);
    let mut tenants: Vec<_> = enabled.map(|tenant| (Some(&**tenant), format!("`{}`", tenant.id))).collect();
    if config.tenants.unknown == UnknownTenant::Accept {
        tenants.push((None, "any other tenant".to_owned()));
    }
    let mut clashes = BTreeMap::new();
    for (tenant, name) in &tenants {
        for pair in chains.applying_to(*tenant).windows(2) {
            if pair[0].written.priority == pair[1].written.priority {
                let clash = clashes.entry((pair[0].index, pair[1].index));
                clash.or_insert_with(|| (pair[0], pair[1], Vec::new())).2.push(name.as_str());
            }
        }
    }
    for (first, second, tenants) in clashes.into_values() {
        let mut named = tenants[..tenants.len().min(MAX_NAMED)].join(", ");
        if tenants.len() > MAX_NAMED {
            named.push_str(&format!(" and {} more", tenants.len() - MAX_NAMED));
        }
        let pointer = format!("/bindings/{}/priority", second.index);
        let message = format!(
            "bindings `{}` and `{}` both have priority {} for {named}; priorities must be unique within a tenant's \
             chain",
            first.name, second.name, first.written.priority
        );
        let remedy = format!(
            "give `{}` another one: a lower one runs it before `{}`, a higher one after it",
            second.name, first.name
        );
        problems.push(Problem::new(pointer, message).remedy(remedy));
    }
}
