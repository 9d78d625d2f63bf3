//! Rebuilds a table incrementally when only tenants and their own bindings changed: what was compiled from an
//! unchanged object is reused. Reports no problems; a change that may cause one is left to a full build.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use crate::{
    config::{self, Bypass, Config, Tenant},
    core::manifest::Manifest,
    routing::{
        bypass_index::BypassIndex,
        table::{TableParts, strangers},
        table_inputs::TableInputs,
        tenant_entry::{ListedTenant, PlanBuilder, problems},
    },
};

/// Hashes of binding names, for detecting possible duplicates: equal names have equal hashes.
#[derive(Debug, Clone)]
pub(super) struct NameHashes {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl NameHashes {
    /// The hashes of all `bindings`. Returns `None` if two of them are equal.
    pub(super) fn from_bindings(bindings: &[Arc<config::Binding>]) -> Option<Self> {
        let hashes = HashSet::with_capacity(bindings.len());
        let mut names = NameHashes { hasher: RandomState::new(), hashes };
        bindings.iter().all(|binding| names.add(binding)).then_some(names)
    }

    fn hash(&self, binding: &config::Binding) -> u64 {
        self.hasher.hash_one(&*binding.effective_name())
    }

    /// Returns false if the name's hash is taken.
    fn add(&mut self, binding: &config::Binding) -> bool {
        self.hashes.insert(self.hash(binding))
    }

    fn remove(&mut self, binding: &config::Binding) {
        self.hashes.remove(&self.hash(binding));
    }
}

/// Elements that were added to a list and removed from it. An element that moved may be in both.
struct ListDiff<'l, T> {
    gone: Vec<&'l Arc<T>>,
    new: Vec<&'l Arc<T>>,
}

impl<'l, T> ListDiff<'l, T> {
    /// Compares objects by identity, so unchanged ones aren't read.
    fn between(then: &'l [Arc<T>], now: &'l [Arc<T>]) -> Self {
        let same = |(a, b): &(&Arc<T>, &Arc<T>)| Arc::ptr_eq(a, b);
        let front = then.iter().zip(now).take_while(same).count();
        let (then, now) = (&then[front..], &now[front..]);
        let back = then.iter().rev().zip(now.iter().rev()).take_while(same).count();
        let (then, now) = (&then[..then.len() - back], &now[..now.len() - back]);
        let objects = |list: &[Arc<T>]| list.iter().map(Arc::as_ptr).collect::<HashSet<_>>();
        let (before, after) = (objects(then), objects(now));
        ListDiff {
            gone: then.iter().filter(|entry| !after.contains(&Arc::as_ptr(entry))).collect(),
            new: now.iter().filter(|entry| !before.contains(&Arc::as_ptr(entry))).collect(),
        }
    }
}

/// Whether both lists hold the same objects in the same order.
fn same<T>(then: &[Arc<T>], now: &[Arc<T>]) -> bool {
    then.len() == now.len() && then.iter().zip(now).all(|(then, now)| Arc::ptr_eq(then, now))
}

impl TableParts {
    /// Whether the table was built from the same objects.
    pub(super) fn is_of(&self, config: &Config, manifests: &[Option<Arc<Manifest>>]) -> bool {
        same(&self.bindings, &config.bindings)
            && same(&self.listed, &config.tenants.list)
            && same(&self.bypasses, &config.bypasses)
            && self.ground.is_of(config, manifests)
    }

    /// The result of a full build of `config` with `manifests`, reusing parts of this table. Returns `None`
    /// if more than tenants and their own bindings changed, or if something may be wrong.
    pub(super) fn after(&self, config: &Config, manifests: &[Option<Arc<Manifest>>]) -> Option<TableParts> {
        let ground = &self.ground;
        let bindings = ListDiff::between(&self.bindings, &config.bindings);
        let tenants = ListDiff::between(&self.listed, &config.tenants.list);
        if !ground.is_of(config, manifests) || bindings.gone.iter().chain(&bindings.new).any(|b| b.is_floor())
        {
            return None;
        }
        let names = self.names_after(&bindings)?;
        if names.hashes.len() != config.bindings.len() {
            return None;
        }
        let bypasses = ListDiff::between(&self.bypasses, &config.bypasses);
        let mut own = self.own_after(&bindings, &bypasses);
        let mut kept = self.tenants.clone();
        for gone in &tenants.gone {
            let before = kept.remove(gone.id.as_str())?;
            // The tenant that replaces this one gets its bindings.
            own.entry(&gone.id).or_insert_with(|| before.own.clone());
        }
        let mut concerned: HashMap<&str, _> =
            tenants.new.into_iter().map(|tenant| (tenant.id.as_str(), tenant)).collect();
        for (id, own) in &own {
            let stays = self.tenants.get(*id).filter(|_| kept.contains_key(*id));
            match stays.and_then(|listed| listed.tenant.as_ref()) {
                Some(tenant) => _ = concerned.insert(id, tenant),
                None if concerned.contains_key(id) || own.is_empty() => {}
                // The owner of these bindings is gone.
                None => return None,
            }
        }
        let (mut maker, bypassed) = (PlanBuilder::new(ground), BypassIndex::from_config(config));
        maker.share(kept.values().chain(&self.others));
        for (id, tenant) in concerned {
            let own = own.remove(id).unwrap_or_default();
            let names = bypassed.by(id);
            kept.insert(id.into(), Arc::new(listed(ground, &mut maker, tenant, own, names)?));
        }
        // Fewer than listed: an id is repeated.
        if kept.len() != config.tenants.list.len() {
            return None;
        }
        let is_as_before = |id: &str| bypasses.gone.iter().chain(&bypasses.new).all(|of| of.tenant != id);
        let before = |id: &str| self.strangers.get(id).filter(|_| is_as_before(id)).cloned();
        let strangers = strangers(&mut maker, &bypassed, &kept, before);
        Some(TableParts {
            ground: Arc::clone(ground),
            bindings: config.bindings.clone(),
            listed: config.tenants.list.clone(),
            names: Some(names),
            config_problems: problems(config, kept.values().chain(&self.others)),
            tenants: kept,
            others: self.others.clone(),
            bypasses: config.bypasses.clone(),
            strangers,
        })
    }

    /// The name hashes after the change. There are fewer of them than bindings if a name may be repeated,
    /// even by the same object.
    fn names_after(&self, bindings: &ListDiff<'_, config::Binding>) -> Option<NameHashes> {
        let mut names = self.names.clone()?;
        bindings.gone.iter().for_each(|gone| names.remove(gone));
        bindings.new.iter().for_each(|new| _ = names.add(new));
        Some(names)
    }

    /// The own bindings of each tenant for which a binding or a bypass was added or removed.
    fn own_after<'l>(
        &'l self,
        bindings: &ListDiff<'l, config::Binding>,
        bypasses: &ListDiff<'l, Bypass>,
    ) -> HashMap<&'l str, Vec<Arc<config::Binding>>> {
        let mut own: HashMap<&str, Vec<Arc<config::Binding>>> = HashMap::new();
        let before = |id: &str| self.tenants.get(id).map(|listed| listed.own.clone()).unwrap_or_default();
        for gone in &bindings.gone {
            let id = gone.tenant.as_deref().unwrap_or_default();
            own.entry(id).or_insert_with(|| before(id)).retain(|own| !Arc::ptr_eq(own, gone));
        }
        for new in &bindings.new {
            let id = new.tenant.as_deref().unwrap_or_default();
            own.entry(id).or_insert_with(|| before(id)).push(Arc::clone(new));
        }
        for bypass in bypasses.gone.iter().chain(&bypasses.new) {
            own.entry(&bypass.tenant).or_insert_with(|| before(&bypass.tenant));
        }
        own
    }
}

/// The entry of `tenant` with its own bindings. Returns `None` if something may be wrong with them.
fn listed(
    ground: &TableInputs,
    maker: &mut PlanBuilder<'_>,
    tenant: &Arc<Tenant>,
    own: Vec<Arc<config::Binding>>,
    bypassed: &[&str],
) -> Option<ListedTenant> {
    let (known, mut problems) = (ground.name_index(), Vec::new());
    let compiled = own.iter().map(|written| known.compile(0, written, &mut problems));
    let own: Vec<_> = compiled.collect::<Option<_>>()?;
    let floor = ground.floor.iter().map(|prepared| &prepared.binding);
    let may_disable = |name: &String| {
        let mut standing = floor.clone().chain(&own);
        standing.any(|binding| *binding.name == **name && binding.written.overridable)
    };
    let is_right = tenant.config.keys().all(|plugin| ground.has_plugin(plugin))
        && tenant.disable.iter().all(may_disable);
    is_right.then(|| maker.make(Some(tenant), own, bypassed)).flatten()
}
