//! The routing table: the plans of every tenant, looked up without an allocation.

use std::{collections::HashMap, sync::Arc};

use hookgate_proto::HookName;

use crate::{
    config::{self, Bypass, Config, Detail, Problem, Rate, Tenant},
    core::{
        answer_way::AnswerWay, call_site::CallSite, manifest::Manifest, model_names::ModelNames,
        point::Point, step::Mode,
    },
    routing::{
        Plan,
        binding::{self, CompiledBinding},
        bypass_index::{BypassIndex, BypassedBindings},
        pattern_pool::PatternPool,
        plan::Plans,
        rebuild::NameHashes,
        table_inputs::TableInputs,
        tenant::{self, BindingChains},
        tenant_entry::{ListedTenant, PlanBuilder, problems},
    },
};

/// The plans of all tenants under one configuration and its accepted manifests. Immutable; cheap to clone.
#[derive(Debug, Clone)]
pub struct RouteTable {
    revision: u64,
    made: Arc<TableParts>,
}

/// The contents of a table and the inputs they were built from. The next table reuses the contents while the
/// inputs are the same.
#[derive(Debug)]
pub(super) struct TableParts {
    pub(super) ground: Arc<TableInputs>,
    /// As in the configuration.
    pub(super) bindings: Vec<Arc<config::Binding>>,
    /// As in the configuration.
    pub(super) listed: Vec<Arc<Tenant>>,
    /// Hashes of the bindings' names. `None` if two are equal.
    pub(super) names: Option<NameHashes>,
    pub(super) tenants: HashMap<Arc<str>, Arc<ListedTenant>>,
    /// For unlisted tenants. `None` if they are refused.
    pub(super) others: Option<Arc<ListedTenant>>,
    /// As in the configuration.
    pub(super) bypasses: Vec<Arc<Bypass>>,
    /// Unlisted tenants that have bypasses.
    pub(super) strangers: HashMap<Arc<str>, Arc<ListedTenant>>,
    pub(super) config_problems: Vec<Problem>,
}

/// The result of looking up a tenant.
#[derive(Debug, Clone, Copy)]
pub enum TenantRoute<'t> {
    /// The tenant is served.
    Known(&'t TenantPlans),
    /// The tenant is disabled: TENANT_DISABLED.
    Disabled,
    /// The tenant is not listed, and such tenants are refused: TENANT_UNKNOWN.
    Unknown,
}

/// One tenant's plans and settings. Tenants with equal chains share the plans.
#[derive(Debug, Clone)]
pub struct TenantPlans {
    pub(super) plans: Arc<Plans>,
    /// `None` if no binding is bypassed.
    pub(super) missing: Option<Arc<BypassedBindings>>,
    /// By [`Point::index`], whether the tenant requires a step there, and the plan has none.
    pub(super) lacks_steps: [bool; 4],
    /// How much detail this tenant's answers have.
    pub detail: Detail,
    /// Most concurrent calls in this process.
    pub in_flight: usize,
    /// The rate limit as written, such as `100/s`. `None` for no limit.
    pub rate: Option<Rate>,
    /// The models that the tenant may name to the LLM proxy. `None` for all.
    pub models: Option<Arc<ModelNames>>,
}

impl TenantPlans {
    /// The plan at `point`.
    pub fn plan(&self, point: Point) -> &Plan {
        &self.plans.points[point.index()]
    }

    /// The plan at `site`. It is empty at a hook without a binding.
    pub fn plan_at(&self, site: &CallSite) -> &Plan {
        self.plans.at(site)
    }

    /// The hooks with any binding.
    pub fn hooks(&self) -> impl Iterator<Item = &HookName> {
        self.plans.hooks.keys()
    }

    /// The same, and those whose bindings are all bypassed.
    pub fn sites_of_hooks(&self) -> impl Iterator<Item = CallSite> {
        let bypassed = self.missing.iter().flat_map(|missing| missing.hooks());
        self.hooks().chain(bypassed).cloned().map(CallSite::Hook)
    }

    /// Whether calls at `site` are refused because the tenant requires a step there, and the plan has none.
    /// A step that observes doesn't count: it is no part of the decision. Hooks require none.
    pub fn lacks_steps(&self, site: &CallSite) -> bool {
        site.point().is_some_and(|point| self.lacks_steps[point.index()])
    }

    /// Whether plugins are asked at `site`: it has a step, or a call there isn't just let through.
    pub fn asks(&self, site: &CallSite) -> bool {
        !self.plan_at(site).steps.is_empty() || self.lacks_steps(site) || !self.bypassed(site).is_empty()
    }

    /// Whether a step at `point` can block or change, or one that could is required and missing.
    pub fn is_guarded(&self, point: Point) -> bool {
        let lacks_steps = self.lacks_steps[point.index()];
        lacks_steps || self.plan(point).steps.iter().any(|step| step.mode != Mode::Observe)
    }

    /// How the text of a streamed answer reaches the client.
    pub fn answer_way(&self) -> AnswerWay {
        let site = CallSite::Point(Point::BeforeResponse);
        if self.lacks_steps(&site) || !self.bypassed(&site).is_empty() {
            return AnswerWay::Whole;
        }
        let steps = &self.plan_at(&site).steps;
        let mut deciding = steps.iter().filter(|step| step.mode != Mode::Observe);
        match (steps.is_empty(), deciding.all(|step| step.takes_windows())) {
            (true, _) => AnswerWay::Pass,
            (false, true) => AnswerWay::Windows,
            (false, false) => AnswerWay::Whole,
        }
    }

    /// Names of the bindings that would be in the plan at `site` if they weren't bypassed.
    pub fn bypassed(&self, site: &CallSite) -> &[Arc<str>] {
        self.missing.as_ref().map_or(&[], |missing| missing.at(site))
    }
}

impl RouteTable {
    /// Builds the table of `config`. `manifests` is by index in `config.plugins`; `None`, or past the end,
    /// means not accepted yet. `revision` is the configuration's: when a manifest is accepted, a new table is
    /// built with the same revision.
    ///
    /// # Errors
    /// All problems of the configuration. A tenant-level config that a plugin's schema rejects is not one of
    /// them: it affects one tenant, and is known only once the plugin was reached. It is recorded in its
    /// steps ([`super::StepTemplate::config_refused`]) and in [`RouteTable::config_problems`].
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
        pool: Arc<PatternPool>,
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

    /// Builds the same table as [`RouteTable::build`], reusing as much of this one as possible. If only
    /// tenants and their own bindings changed, only tenants whose entry or bindings are different objects are
    /// built. Objects are compared by identity. Any other change, even the position of a plugin, causes a
    /// full build.
    ///
    /// # Errors
    /// As [`RouteTable::build`].
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

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Looks up the tenant `id`: one hash lookup, no allocation.
    pub fn tenant(&self, id: &str) -> TenantRoute<'_> {
        let TableParts { tenants, strangers, others, .. } = &*self.made;
        let Some(listed) = tenants.get(id).or_else(|| strangers.get(id)).or(others.as_ref()) else {
            return TenantRoute::Unknown;
        };
        listed.plans.as_ref().map_or(TenantRoute::Disabled, TenantRoute::Known)
    }

    /// How many tenants are listed, and how many of them are disabled.
    pub fn listed(&self) -> (usize, usize) {
        let tenants = &self.made.tenants;
        (tenants.len(), tenants.values().filter(|listed| listed.plans.is_none()).count())
    }

    /// Whether unlisted tenants are served.
    pub fn serves_others(&self) -> bool {
        self.made.ground.serves_others()
    }

    /// The manifest of a plugin, by its index in the configuration, that was accepted when the table was
    /// built.
    pub fn manifest(&self, plugin: usize) -> Option<&Manifest> {
        self.made.ground.manifest(plugin)
    }

    /// The tenant-level configs that their plugin's schema rejects, if an enabled tenant is affected.
    pub fn config_problems(&self) -> &[Problem] {
        &self.made.config_problems
    }
}

impl TableParts {
    /// Builds a table from `bindings`, which are all bindings of `config`. The configuration has no problems.
    fn new(
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        bindings: Vec<CompiledBinding>,
        pool: Arc<PatternPool>,
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

/// The entries of unlisted tenants that have bypasses, if unlisted tenants are served. `before` returns the
/// previous entry if nothing changed for the tenant.
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
