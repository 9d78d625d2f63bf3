//! The routing table: for every tenant its plans, looked up without an allocation.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::{self, Bypass, Config, Detail, Problem, Rate, Tenant},
    core::{manifest::Manifest, point::Point},
    routing::{
        Plan,
        binding::{self, CompiledBinding},
        bypass_index::{BypassIndex, BypassedByPoint},
        conditions::ConditionPool,
        rebuild::NameHashes,
        table_inputs::TableInputs,
        tenant::{self, BindingChains},
        tenant_entry::{ListedTenant, PlanBuilder, problems},
    },
};

/// The chains of all tenants under one configuration and the manifests accepted so far. Immutable; cheap to clone.
#[derive(Debug, Clone)]
pub struct RouteTable {
    revision: u64,
    made: Arc<TableParts>,
}

/// What a table holds, with what it was made from: as long as that is the same, the next one takes it over.
#[derive(Debug)]
pub(super) struct TableParts {
    pub(super) ground: Arc<TableInputs>,
    /// As in the configuration.
    pub(super) bindings: Vec<Arc<config::Binding>>,
    /// As in the configuration.
    pub(super) listed: Vec<Arc<Tenant>>,
    /// Of the bindings. None: two hashes are alike.
    pub(super) names: Option<NameHashes>,
    pub(super) tenants: HashMap<Arc<str>, Arc<ListedTenant>>,
    /// For tenants that are not listed; none: they are refused.
    pub(super) others: Option<Arc<ListedTenant>>,
    /// As in the configuration.
    pub(super) bypasses: Vec<Arc<Bypass>>,
    /// Those of the others that something is bypassed for.
    pub(super) strangers: HashMap<Arc<str>, Arc<ListedTenant>>,
    pub(super) config_problems: Vec<Problem>,
}

/// What the table says of a tenant.
#[derive(Debug, Clone, Copy)]
pub enum TenantRoute<'t> {
    /// It is served.
    Known(&'t TenantPlans),
    /// It is switched off: TENANT_DISABLED.
    Disabled,
    /// It is not listed and such tenants are refused: TENANT_UNKNOWN.
    Unknown,
}

/// One tenant's plans and settings. Tenants with equal chains share the plans.
#[derive(Debug, Clone)]
pub struct TenantPlans {
    pub(super) plans: Arc<[Plan; 4]>,
    /// None: nothing is.
    pub(super) missing: Option<Arc<BypassedByPoint>>,
    /// What an answer tells this tenant.
    pub detail: Detail,
    /// Most calls under way in this process.
    pub in_flight: usize,
    /// Most calls, as written, such as `100/s`; none: no limit.
    pub rate: Option<Rate>,
}

impl TenantPlans {
    /// The plan at `point`.
    pub fn plan(&self, point: Point) -> &Plan {
        &self.plans[point.index()]
    }

    /// Names of the bindings that would stand in the plan at `point` if they weren't bypassed.
    pub fn bypassed(&self, point: Point) -> &[Arc<str>] {
        self.missing.as_ref().map_or(&[], |missing| &missing[point.index()])
    }
}

impl RouteTable {
    /// Builds the table of `config`, with `manifests` by index in `config.plugins` (none, or past the end: not
    /// accepted yet). `revision` is the configuration's; a manifest that is accepted makes a new table of the
    /// same revision.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, at once. A tenant-level config that a plugin's schema
    /// refuses is not among it: it concerns one tenant and is known only once the plugin has been reached, so
    /// it marks its steps ([`super::StepTemplate::config_refused`]) and stands in [`RouteTable::config_problems`].
    pub fn build(
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        revision: u64,
    ) -> Result<RouteTable, Vec<Problem>> {
        RouteTable::whole(config, manifests, revision, Arc::default())
    }

    fn whole(
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        revision: u64,
        pool: Arc<ConditionPool>,
    ) -> Result<RouteTable, Vec<Problem>> {
        let mut problems = Vec::new();
        let bindings = binding::compile(config, &pool, &mut problems);
        let chains = BindingChains::new(&bindings);
        tenant::check_config(config, &mut problems);
        tenant::check_disable(config, &mut problems);
        tenant::check_priorities(config, &chains, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let made = TableParts::new(config, manifests, bindings, pool);
        Ok(RouteTable { revision, made: Arc::new(made) })
    }

    /// What [`RouteTable::build`] makes of the same, with all of this table's work that still holds: where only tenants and
    /// their own bindings differ, that of the tenants alone whose entry or bindings are other objects. Objects that
    /// didn't change are recognised by being the same; whatever else changed, be it the place of a plugin, is a whole
    /// build.
    ///
    /// # Errors
    /// As [`RouteTable::build`], and the same.
    pub fn after(
        &self,
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        revision: u64,
    ) -> Result<RouteTable, Vec<Problem>> {
        if self.made.is_of(config, manifests) {
            return Ok(RouteTable { revision, made: Arc::clone(&self.made) });
        }
        match self.made.after(config, manifests) {
            Some(made) => Ok(RouteTable { revision, made: Arc::new(made) }),
            None => RouteTable::whole(config, manifests, revision, Arc::clone(&self.made.ground.pool)),
        }
    }

    /// The configuration's revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What the table says of the tenant `id`: one hash look-up, no allocation.
    pub fn tenant(&self, id: &str) -> TenantRoute<'_> {
        let TableParts { tenants, strangers, others, .. } = &*self.made;
        let Some(listed) = tenants.get(id).or_else(|| strangers.get(id)).or(others.as_ref()) else {
            return TenantRoute::Unknown;
        };
        listed.plans.as_ref().map_or(TenantRoute::Disabled, TenantRoute::Known)
    }

    /// How many tenants are listed, and how many of them are switched off.
    pub fn listed(&self) -> (usize, usize) {
        let tenants = &self.made.tenants;
        (tenants.len(), tenants.values().filter(|listed| listed.plans.is_none()).count())
    }

    /// Whether tenants that are not listed are served.
    pub fn serves_others(&self) -> bool {
        self.made.ground.serves_others()
    }

    /// The accepted manifest of a plugin, by its index in the configuration, when the table was built.
    pub fn manifest(&self, plugin: usize) -> Option<&Manifest> {
        self.made.ground.manifest(plugin)
    }

    /// The tenant-level configs that their plugin's schema refuses, where a tenant in service is concerned.
    pub fn config_problems(&self) -> &[Problem] {
        &self.made.config_problems
    }
}

impl TableParts {
    /// From `bindings`, which are all of `config`, where nothing is wrong.
    fn new(
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        bindings: Vec<CompiledBinding>,
        pool: Arc<ConditionPool>,
    ) -> Self {
        let names = NameHashes::from_bindings(&config.bindings);
        let (floor, owned): (Vec<_>, Vec<_>) =
            bindings.into_iter().partition(|binding| binding.written.is_floor());
        let mut own: HashMap<&str, Vec<CompiledBinding>> = HashMap::new();
        for binding in owned {
            let id = config.bindings[binding.index].tenant.as_deref().unwrap_or_default();
            own.entry(id).or_default().push(binding);
        }
        let ground = TableInputs::new(config, manifests, floor, pool);
        let (mut maker, bypassed) = (PlanBuilder::new(&ground), BypassIndex::from_config(config));
        let mut make = |tenant: Option<&Arc<Tenant>>, own| {
            let names = tenant.map_or(&[] as &[&str], |tenant| bypassed.by(&tenant.id));
            Arc::new(maker.make(tenant, own, names).expect("equal priorities were looked for"))
        };
        let others = ground.serves_others().then(|| make(None, Vec::new()));
        let mut tenants = HashMap::with_capacity(config.tenants.list.len());
        for tenant in &config.tenants.list {
            let own = own.remove(tenant.id.as_str()).unwrap_or_default();
            tenants.insert(tenant.id.as_str().into(), make(Some(tenant), own));
        }
        let strangers = strangers(&mut maker, &bypassed, &tenants, |_| None);
        TableParts {
            config_problems: problems(config, tenants.values().chain(&others)),
            ground: Arc::new(ground),
            bindings: config.bindings.clone(),
            listed: config.tenants.list.clone(),
            names,
            tenants,
            others,
            bypasses: config.bypasses.clone(),
            strangers,
        }
    }
}

/// Of those who aren't among `tenants`, and are served, whoever something is bypassed for; as `before` has them where
/// nothing differs for them.
pub(super) fn strangers(
    maker: &mut PlanBuilder<'_>,
    bypassed: &BypassIndex<'_>,
    tenants: &HashMap<Arc<str>, Arc<ListedTenant>>,
    before: impl Fn(&str) -> Option<Arc<ListedTenant>>,
) -> HashMap<Arc<str>, Arc<ListedTenant>> {
    if !maker.ground().serves_others() {
        return HashMap::new();
    }
    let ids = bypassed.tenants().filter(|id| !tenants.contains_key(*id));
    let of = |id: &str| {
        let made = before(id).or_else(|| maker.make(None, Vec::new(), bypassed.by(id)).map(Arc::new));
        made.map(|made| (id.into(), made))
    };
    ids.filter_map(of).collect()
}
