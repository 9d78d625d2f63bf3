//! The routing table: for every tenant its plans, looked up without an allocation.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    Manifest, Plan,
    binding::{self, Binding},
    escape,
    plan::{Planner, StepConfig},
    tenant::{self, Chains},
};
use crate::{
    config::{Config, Detail, Problem, Rate, Tenant, UnknownTenant},
    point::Point,
};

/// The chains of all tenants under one configuration and the manifests accepted so far. Immutable.
#[derive(Debug)]
pub struct RouteTable {
    revision: u64,
    /// None: a disabled tenant.
    tenants: HashMap<Arc<str>, Option<TenantPlans>>,
    /// For tenants that are not listed; none: they are refused.
    others: Option<TenantPlans>,
    config_problems: Vec<Problem>,
    manifests: Vec<Option<Arc<Manifest>>>,
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
    plans: Arc<[Plan; 4]>,
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
}

impl RouteTable {
    /// Builds the table of `config`, with `manifests` by index in `config.plugins` (none, or past the end: not
    /// accepted yet). `revision` is the configuration's; a manifest that is accepted makes a new table of the
    /// same revision.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, at once. A tenant-level config that a plugin's schema
    /// refuses is not among it: it concerns one tenant and is known only once the plugin has been reached, so
    /// it marks its steps ([`super::Step::config_refused`]) and stands in [`RouteTable::config_problems`].
    pub fn build(
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        revision: u64,
    ) -> Result<RouteTable, Vec<Problem>> {
        let mut problems = Vec::new();
        let bindings = binding::compile(config, &mut problems);
        let chains = Chains::new(&bindings);
        tenant::check_config(config, &mut problems);
        tenant::check_disable(config, &mut problems);
        tenant::check_priorities(config, &chains, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut builder = Builder::new(config, manifests, &bindings, &chains);
        let mut tenants = HashMap::with_capacity(config.tenants.list.len());
        for (at, tenant) in config.tenants.list.iter().enumerate() {
            let plans = tenant.enabled.then(|| builder.tenant(Some((at, tenant))));
            tenants.insert(tenant.id.as_str().into(), plans);
        }
        let others = (config.tenants.unknown == UnknownTenant::Accept).then(|| builder.tenant(None));
        let config_problems = builder.into_problems();
        Ok(RouteTable { revision, tenants, others, config_problems, manifests: manifests.to_vec() })
    }

    /// The configuration's revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What the table says of the tenant `id`: one hash look-up, no allocation.
    pub fn tenant(&self, id: &str) -> TenantRoute<'_> {
        match (self.tenants.get(id), &self.others) {
            (Some(Some(plans)), _) | (None, Some(plans)) => TenantRoute::Known(plans),
            (Some(None), _) => TenantRoute::Disabled,
            (None, None) => TenantRoute::Unknown,
        }
    }

    /// How many tenants are listed, and how many of them are switched off.
    pub fn listed(&self) -> (usize, usize) {
        (self.tenants.len(), self.tenants.values().filter(|plans| plans.is_none()).count())
    }

    /// Whether tenants that are not listed are served.
    pub fn serves_others(&self) -> bool {
        self.others.is_some()
    }

    /// The accepted manifest of a plugin, by its index in the configuration, when the table was built.
    pub fn manifest(&self, plugin: usize) -> Option<&Manifest> {
        self.manifests.get(plugin).and_then(Option::as_deref)
    }

    /// The tenant-level configs that their plugin's schema refuses, where a tenant in service is concerned.
    pub fn config_problems(&self) -> &[Problem] {
        &self.config_problems
    }
}

/// A step's place in the configuration and its config: equal sequences make equal plans.
type ChainKey = Vec<(usize, Arc<str>)>;

struct Builder<'b, 'c> {
    config: &'c Config,
    chains: &'b Chains<'b, 'c>,
    planner: Planner<'c>,
    /// Each binding's config for tenants that replace none of it, by index in `Config.bindings`.
    base: Vec<Arc<StepConfig>>,
    shared: HashMap<ChainKey, Arc<[Plan; 4]>>,
    /// By pointer and message: a binding's own config is refused once, however many tenants run it.
    problems: BTreeSet<(String, String)>,
}

impl<'b, 'c> Builder<'b, 'c> {
    fn new(
        config: &'c Config,
        manifests: &'c [Option<Arc<Manifest>>],
        bindings: &[Binding<'_>],
        chains: &'b Chains<'b, 'c>,
    ) -> Self {
        let planner = Planner::new(config, manifests, bindings);
        let base = bindings.iter().map(|binding| {
            let manifest = planner.manifest(binding.plugin);
            Arc::new(StepConfig::merge(&binding.written.config, None, manifest))
        });
        let base = base.collect();
        Builder { config, chains, planner, base, shared: HashMap::new(), problems: BTreeSet::new() }
    }

    /// The plans of the tenant at this place of `tenants.list`; none: of those not listed.
    fn tenant(&mut self, listed: Option<(usize, &Tenant)>) -> TenantPlans {
        let tenant = listed.map(|(_, tenant)| tenant);
        let chain: Vec<_> = self
            .chains
            .of(tenant)
            .into_iter()
            .map(|binding| (binding, self.step_config(binding, listed)))
            .collect();
        let key: ChainKey =
            chain.iter().map(|(binding, config)| (binding.index, config.digest.clone())).collect();
        let planner = &self.planner;
        let plans = self.shared.entry(key).or_insert_with(|| Arc::new(planner.plans(&chain))).clone();
        let limits = tenant.map(|tenant| &tenant.limits);
        let defaults = &self.config.limits;
        TenantPlans {
            plans,
            detail: tenant.and_then(|tenant| tenant.answer.detail).unwrap_or(self.config.answer.detail),
            in_flight: limits.and_then(|limits| limits.in_flight).unwrap_or(defaults.tenant_in_flight),
            rate: limits.and_then(|limits| limits.rate).or(defaults.tenant_rate),
        }
    }

    /// The config of a binding's step for one tenant; a refusal is noted where it was written.
    fn step_config(&mut self, binding: &Binding<'_>, listed: Option<(usize, &Tenant)>) -> Arc<StepConfig> {
        let plugin = &self.config.plugins[binding.plugin].name;
        let own = listed.and_then(|(at, tenant)| Some((at, &tenant.id, tenant.config.get(plugin)?)));
        let (config, pointer, whose) = match own {
            Some((at, id, own)) => {
                let manifest = self.planner.manifest(binding.plugin);
                let config = StepConfig::merge(&binding.written.config, Some(own), manifest);
                let pointer = format!("/tenants/list/{at}/config/{}", escape(plugin));
                (Arc::new(config), pointer, format!("binding `{}` for tenant `{id}`", binding.name))
            }
            None => {
                let config = self.base[binding.index].clone();
                let pointer = format!("/bindings/{}/config", binding.index);
                (config, pointer, format!("binding `{}`", binding.name))
            }
        };
        if let Some(refused) = &config.refused {
            self.problems
                .insert((pointer, format!("plugin `{plugin}` refuses the config of {whose}: {refused}")));
        }
        config
    }

    fn into_problems(self) -> Vec<Problem> {
        self.problems.into_iter().map(|(pointer, message)| Problem::new(pointer, message)).collect()
    }
}
