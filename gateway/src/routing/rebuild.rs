//! From one table to the next where only tenants and their own bindings differ: what was compiled stays where what it
//! was compiled from is the same object. Finds no problems; whatever may be one is left to a whole build.

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

/// What tells names apart, where telling two apart for sure isn't needed: equal names have equal hashes.
#[derive(Debug, Clone)]
pub(super) struct NameHashes {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl NameHashes {
    /// Those of all `bindings`. None: two of them can't be told apart.
    pub(super) fn from_bindings(bindings: &[Arc<config::Binding>]) -> Option<Self> {
        let hashes = HashSet::with_capacity(bindings.len());
        let mut names = NameHashes { hasher: RandomState::new(), hashes };
        bindings.iter().all(|binding| names.add(binding)).then_some(names)
    }

    fn hash(&self, binding: &config::Binding) -> u64 {
        self.hasher.hash_one(&*binding.effective_name())
    }

    /// False: another may have its name.
    fn add(&mut self, binding: &config::Binding) -> bool {
        self.hashes.insert(self.hash(binding))
    }

    fn remove(&mut self, binding: &config::Binding) {
        self.hashes.remove(&self.hash(binding));
    }
}

/// What came to a list and what left it; what changed its place among others may be in both.
struct ListDiff<'l, T> {
    gone: Vec<&'l Arc<T>>,
    new: Vec<&'l Arc<T>>,
}

impl<'l, T> ListDiff<'l, T> {
    /// Compares objects, not what they hold: nothing of what stayed is looked at.
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

/// Whether the same objects are in both, in the same order.
fn same<T>(then: &[Arc<T>], now: &[Arc<T>]) -> bool {
    then.len() == now.len() && then.iter().zip(now).all(|(then, now)| Arc::ptr_eq(then, now))
}

impl TableParts {
    /// Whether it was made of the same objects.
    pub(super) fn is_of(&self, config: &Config, manifests: &[Option<Arc<Manifest>>]) -> bool {
        same(&self.bindings, &config.bindings)
            && same(&self.listed, &config.tenants.list)
            && same(&self.bypasses, &config.bypasses)
            && self.ground.is_of(config, manifests)
    }

    /// What a whole build makes of `config` with `manifests`, from what this was made of before. None: more differs than
    /// tenants and their own bindings, or something may be wrong with it.
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
            // Whoever takes its place has its bindings.
            own.entry(&gone.id).or_insert_with(|| before.own.clone());
        }
        let mut concerned: HashMap<&str, _> =
            tenants.new.into_iter().map(|tenant| (tenant.id.as_str(), tenant)).collect();
        for (id, own) in &own {
            let stays = self.tenants.get(*id).filter(|_| kept.contains_key(*id));
            match stays.and_then(|listed| listed.tenant.as_ref()) {
                Some(tenant) => _ = concerned.insert(id, tenant),
                None if concerned.contains_key(id) || own.is_empty() => {}
                // Nobody is left whose they are.
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
        // Less than listed: an id is there twice.
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

    /// Fewer than bindings where a name may be there twice, be it of the same object.
    fn names_after(&self, bindings: &ListDiff<'_, config::Binding>) -> Option<NameHashes> {
        let mut names = self.names.clone()?;
        bindings.gone.iter().for_each(|gone| names.remove(gone));
        bindings.new.iter().for_each(|new| _ = names.add(new));
        Some(names)
    }

    /// The bindings of each tenant that one came to or left, or a bypass did.
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

/// `tenant` with these bindings of its own. None: something may be wrong with it or them.
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
