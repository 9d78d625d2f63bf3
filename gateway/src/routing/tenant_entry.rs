//! One tenant's plans, with the inputs that are specific to the tenant. The plans are reused while those
//! inputs and the shared ones are unchanged.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use crate::{
    config::{self, Config, Problem, Tenant},
    core::point::Point,
    json::pointer::child,
    routing::{
        PlanTool, PlanTools, TenantPlans,
        binding::CompiledBinding,
        bypass_index::{self, BypassedBindings},
        plan::{Plans, StepTemplate},
        table_inputs::{PreparedBinding, TableInputs},
        tenant,
    },
};

#[derive(Debug)]
pub(super) struct ListedTenant {
    /// `None` for an unlisted tenant, or for the entry of all unlisted tenants.
    pub(super) tenant: Option<Arc<Tenant>>,
    /// The tenant's own bindings, disabled ones included.
    pub(super) own: Vec<Arc<config::Binding>>,
    /// `None` if the tenant is disabled.
    pub(super) plans: Option<TenantPlans>,
    /// The key of a chain that other tenants may share, because nothing in it is the tenant's own.
    key: Option<ChainKey>,
    refused: Vec<RefusedConfig>,
}

/// Identifies a chain of global bindings.
#[derive(Debug, Clone)]
struct ChainKey {
    /// The hash of `elements`, stored because hashing thousands of different chains for every table would
    /// cost more than everything else.
    hash: u64,
    /// Indexes of global bindings with digests of their configs: equal sequences make equal plans.
    elements: Arc<[(usize, Arc<str>)]>,
}

impl ChainKey {
    fn new(elements: Vec<(usize, Arc<str>)>) -> Self {
        // Needn't resist attacks: on a collision, plans aren't shared.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&elements);
        ChainKey { hash, elements: elements.into() }
    }
}

/// A tenant-level config that its plugin's schema rejects.
#[derive(Debug)]
struct RefusedConfig {
    template: Arc<StepTemplate>,
    /// The binding that holds the config. `None` if the tenant's entry does.
    binding: Option<Arc<config::Binding>>,
}

/// Builds the tenants' entries of one table.
pub(super) struct PlanBuilder<'g> {
    ground: &'g TableInputs,
    /// Plans that several tenants may share.
    shared: HashMap<u64, (ChainKey, Arc<Plans>)>,
}

impl<'g> PlanBuilder<'g> {
    pub(super) fn new(ground: &'g TableInputs) -> Self {
        PlanBuilder { ground, shared: HashMap::new() }
    }

    pub(super) fn ground(&self) -> &'g TableInputs {
        self.ground
    }

    /// Offers the plans of existing entries for sharing.
    pub(super) fn share<'l>(&mut self, listed: impl Iterator<Item = &'l Arc<ListedTenant>>) {
        self.shared.reserve(listed.size_hint().0);
        for listed in listed {
            if let (Some(key), Some(plans)) = (&listed.key, &listed.plans) {
                self.shared.entry(key.hash).or_insert_with(|| (key.clone(), Arc::clone(&plans.plans)));
            }
        }
    }

    /// The entry of `tenant` with its own bindings, without those named in `bypassed`. `None` is an unlisted
    /// tenant. Returns `None` if two bindings of the chain, bypassed or not, have the same priority.
    pub(super) fn make(
        &mut self,
        tenant: Option<&Arc<Tenant>>,
        own: Vec<CompiledBinding>,
        bypassed: &[&str],
    ) -> Option<ListedTenant> {
        let entry = tenant.map(|tenant| &**tenant);
        let written = own.iter().map(|binding| Arc::clone(&binding.written)).collect();
        let mut listed = ListedTenant {
            tenant: tenant.cloned(),
            own: written,
            plans: None,
            key: None,
            refused: Vec::new(),
        };
        if entry.is_some_and(|tenant| !tenant.enabled) {
            return Some(listed);
        }
        let own: Vec<_> = own.into_iter().map(|binding| self.ground.prepare(binding)).collect();
        let chain = tenant::chain(self.ground.floor.iter(), own.iter(), entry);
        let priority = |prepared: &PreparedBinding| prepared.binding.written.priority;
        if chain.windows(2).any(|pair| priority(pair[0]) == priority(pair[1])) {
            return None;
        }
        let (plans, missing) = self.plans(&chain, bypassed, &mut listed);
        let limits = entry.map(|tenant| &tenant.limits);
        let defaults = self.ground.defaults;
        let is_required = |point: Point| {
            defaults.required[point.index()]
                || entry.is_some_and(|tenant| tenant.require_steps.contains(&point))
        };
        listed.plans = Some(TenantPlans {
            lacks_steps: Point::ALL
                .map(|point| is_required(point) && !plans.points[point.index()].can_decide()),
            plans,
            missing,
            detail: entry.and_then(|tenant| tenant.answer.detail).unwrap_or(defaults.detail),
            in_flight: limits.and_then(|limits| limits.in_flight).unwrap_or(defaults.in_flight),
            rate: limits.and_then(|limits| limits.rate).or(defaults.rate),
            models: entry
                .and_then(|tenant| tenant.llm.models.as_ref())
                .map(|list| self.ground.pool.models(list)),
        });
        Some(listed)
    }

    /// The plans of `chain`, and what bypasses remove from them. Records rejected configs, bypassed or not.
    fn plans(
        &mut self,
        chain: &[&PreparedBinding],
        bypassed: &[&str],
        listed: &mut ListedTenant,
    ) -> (Arc<Plans>, Option<Arc<BypassedBindings>>) {
        let mut elements = Vec::with_capacity(chain.len());
        for prepared in chain {
            let binding = &prepared.binding;
            let of_tenant =
                listed.tenant.as_ref().and_then(|tenant| tenant.config.get(&binding.written.plugin));
            let element = self.ground.element(prepared, of_tenant);
            if element.fixed.config_refused.is_some() {
                let binding = of_tenant.is_none().then(|| Arc::clone(&binding.written));
                listed.refused.push(RefusedConfig { template: Arc::clone(&element.fixed), binding });
            }
            elements.push((binding, self.ground.offers(binding.plugin), element));
        }
        let missing = if bypassed.is_empty() {
            None
        } else {
            let is_out = |(binding, ..): &mut (&CompiledBinding, _, _)| bypassed.contains(&&*binding.name);
            let out: Vec<_> = elements.extract_if(.., is_out).collect();
            bypass_index::missing(out.iter().map(|(binding, offers, _)| (*binding, *offers)))
        };
        if elements.iter().any(|(binding, ..)| !binding.written.is_floor()) {
            return (Arc::new(Plans::of(&elements)), missing);
        }
        let key = elements
            .iter()
            .map(|(binding, _, element)| (binding.index, element.fixed.tenant_config_digest.clone()));
        let key = ChainKey::new(key.collect());
        let (key, plans) = match self.shared.get(&key.hash) {
            Some((same, plans)) if same.elements == key.elements => (same.clone(), Arc::clone(plans)),
            _ => {
                let plans = Arc::new(Plans::of(&elements));
                self.shared.insert(key.hash, (key.clone(), Arc::clone(&plans)));
                (key, plans)
            }
        };
        listed.key = Some(key);
        (plans, missing)
    }
}

/// The `config_problems` of a table of `config` with these tenants: one for each place, however many tenants
/// are affected.
pub(super) fn problems<'l>(
    config: &Config,
    tenants: impl Iterator<Item = &'l Arc<ListedTenant>>,
) -> Vec<Problem> {
    let mut clashes = BTreeSet::new();
    let mut concerned = Vec::new();
    for listed in tenants {
        clashes.extend(listed.tool_clashes());
        if !listed.refused.is_empty() {
            concerned.push(listed);
        }
    }
    if concerned.is_empty() && clashes.is_empty() {
        return Vec::new();
    }
    let bindings = places(&config.bindings);
    let tenants = places(&config.tenants.list);
    let problem = |(listed, refused): (&ListedTenant, &RefusedConfig)| {
        let StepTemplate { plugin_name: plugin, binding: name, config_refused, .. } = &*refused.template;
        let (pointer, whose) = match (&refused.binding, &listed.tenant) {
            (Some(binding), _) => {
                let at = bindings.get(&Arc::as_ptr(binding))?;
                (format!("/bindings/{at}/config"), format!("binding `{name}`"))
            }
            (None, tenant) => {
                let tenant = tenant.as_ref()?;
                let at = tenants.get(&Arc::as_ptr(tenant))?;
                let pointer = child(&format!("/tenants/list/{at}/config"), plugin);
                (pointer, format!("binding `{name}` for tenant `{}`", tenant.id))
            }
        };
        let why = config_refused.as_deref()?;
        Some((pointer, format!("plugin `{plugin}` rejects the config of {whose}: {why}")))
    };
    let refused =
        concerned.iter().flat_map(|listed| listed.refused.iter().map(|refused| (&***listed, refused)));
    let found: BTreeSet<_> = refused.filter_map(problem).collect();
    let refused = found.into_iter().map(|(pointer, message)| Problem::new(pointer, message));
    refused.chain(clashes.iter().map(|clash| clash.problem(config))).collect()
}

/// A tool's name that two bindings of a plan provide.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ToolClash<'l> {
    tool: &'l str,
    first: &'l str,
    second: &'l str,
}

impl ListedTenant {
    fn tool_clashes(&self) -> impl Iterator<Item = ToolClash<'_>> {
        let plan = self.plans.as_ref().map(|plans| plans.plan(Point::BeforeToolCall));
        let tools = plan.and_then(|plan| plan.tools.as_deref()).filter(|tools| tools.has_clash());
        tools.into_iter().flat_map(PlanTools::iter).filter_map(|PlanTool { tool, step, rival }| {
            Some(ToolClash { tool: &tool.name, first: &step.binding, second: &rival?.binding })
        })
    }
}

impl ToolClash<'_> {
    fn problem(&self, config: &Config) -> Problem {
        let ToolClash { tool, first, second } = self;
        let at = config.bindings.iter().position(|binding| binding.effective_name() == *second);
        let pointer = at.map_or_else(|| "/bindings".to_owned(), |at| format!("/bindings/{at}"));
        let message =
            format!("bindings `{first}` and `{second}` both provide the tool `{tool}`, so its calls fail");
        Problem::new(pointer, message).remedy(format!("add `{tool}` to `deny_tools` of one of them"))
    }
}

/// Maps each object of `list` to its index.
fn places<T>(list: &[Arc<T>]) -> HashMap<*const T, usize> {
    list.iter().enumerate().map(|(at, entry)| (Arc::as_ptr(entry), at)).collect()
}
