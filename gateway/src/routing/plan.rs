//! The ordered, compiled steps of one chain, and the digest that distinguishes chains.

use crate::core::failure::Failure;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use hookgate_proto::HookName;
use serde_json::json;

use crate::{
    core::{
        call_site::CallSite,
        digest::{canonical, digest_of},
        manifest::PointAccess,
        point::Point,
        step::{Mode, OnError, Reason},
        tool::ToolNames,
    },
    routing::{
        Conditions,
        applicability::PluginOffers,
        binding::CompiledBinding,
        groups::{form_groups, form_one_group},
        plan_tools::{BindingTools, PlanTools},
    },
};

/// The steps of one tenant at one point or hook, in the order in which they run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// By ascending priority, observers included. If empty, the payload passes unchanged.
    pub steps: Vec<Step>,
    /// The tools that plugins provide, at `before_tool_call`. `None` without any.
    pub tools: Option<Arc<PlanTools>>,
    /// Changes with the steps. This is the [`crate::core::digest`] of a JSON array with one object for each
    /// step, observers included, in order. The members are:
    ///
    /// - `binding`, `plugin`: their names
    /// - `version`: from the accepted manifest, null before there is one
    /// - `priority`: as written
    /// - `points`: the points at which the binding applies, in the order of an agent's loop
    /// - `hooks`: the hooks at which it applies, in the order of their names; absent without any
    /// - `tools`: a digest of the names of the tools that the plugin provides through the binding, null before they are
    ///   known; absent without any
    /// - `mode`, `on_error`: with their defaults filled in; `skip` for an observer
    /// - `timeout_ms`: the step's timeout
    /// - `config`: digest of the plugin-level config with its references unresolved
    /// - `tenant_config`: digest of the step's tenant-level config
    /// - `match`: the conditions as written, null without any
    pub digest: Arc<str>,
}

impl Plan {
    /// Whether any step takes part in the decision, rather than only observing.
    pub(super) fn can_decide(&self) -> bool {
        self.steps.iter().any(|step| step.mode != Mode::Observe)
    }
}

/// A binding in a plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// What the step has in common with the binding's steps at other points.
    pub template: Arc<StepTemplate>,
    /// What the accepted manifest offers at this point or hook. If `None`, no manifest is accepted yet and the call
    /// fails as `not_ready`, unless `not_offered` is set.
    pub offer: Option<PointAccess>,
    /// The binding names this point or hook, but the accepted manifest doesn't offer it, or the consent in the
    /// plugin's entry excludes it: the step fails as `point_not_offered`.
    pub not_offered: bool,
    /// How much of the budget a step that may be skipped must leave: the timeouts of the later enforce and
    /// advise steps of this plan with `on_error: fail`, ignoring conditions. Not capped. Zero at hooks, whose steps
    /// run at the same time as far as memory permits.
    pub reserve: Duration,
    /// How many steps, from this one on, form a group whose plugins are called at the same time. It is 1 for a
    /// step that runs alone, and within a group.
    pub group_len: u16,
}

impl Step {
    /// Whether it can judge an answer in windows: its plugin takes them, and no condition reads the text, which may still change.
    pub fn takes_windows(&self) -> bool {
        !self.not_offered && self.offer.is_some_and(|offer| offer.windows) && !self.conditions.reads_text()
    }

    /// Why the step fails, whatever state its plugin is in. Returns `None` if it doesn't.
    pub fn flaw(&self) -> Option<Failure> {
        if self.not_offered {
            let detail = match self.written.is_at_hooks {
                false => "its binding names this point, but the plugin does not offer it",
                true => "its binding names this hook, but the plugin does not offer it",
            };
            return Some(Failure::new(Reason::PointNotOffered, detail));
        }
        self.config_refused.as_ref().map(|refused| Failure::new(Reason::NotReady, refused.to_string()))
    }
}

impl Deref for Step {
    type Target = StepTemplate;

    fn deref(&self) -> &StepTemplate {
        &self.template
    }
}

/// The part of a step that is the same at every point. Shared by all tenants with the same config, since
/// there may be hundreds of thousands of steps.
#[derive(Debug, Clone)]
pub struct StepTemplate {
    /// Index in `Config.plugins`.
    pub plugin: usize,
    pub plugin_name: Arc<str>,
    pub binding: Arc<str>,
    pub mode: Mode,
    /// What a failure causes. [`OnError::Skip`] for an observer, whose failure is only counted.
    pub on_error: OnError,
    /// Timeout of the step, including queue and connect.
    pub timeout: Duration,
    /// Tenant-level config as JSON text, always an object.
    pub tenant_config: Bytes,
    /// Digest of `tenant_config`.
    pub tenant_config_digest: Arc<str>,
    /// Why the step can't be called: the plugin's schema rejects `tenant_config`, or another binding provides the same
    /// tool. One sentence for operators. Such a step fails as
    /// `not_ready` without a call. The plugin never sees a config that its schema rejects, and the step keeps
    /// its place, so that a mistake in a tenant's config blocks an enforcing chain instead of removing a rule
    /// from it.
    pub config_refused: Option<Arc<str>>,
    /// The only payload fields the plugin may patch. If `None`, all that the point and the offer allow.
    pub writable: Option<Arc<[String]>>,
    /// When the step runs.
    pub conditions: Conditions,
    /// Further settings of the binding, for people.
    pub written: Arc<BindingDetails>,
}

/// Settings of a binding that its steps don't need at run time. Shared by all of them.
#[derive(Debug, Default)]
pub struct BindingDetails {
    /// The order in a chain.
    pub priority: i64,
    /// Whether the binding is global, so that a tenant can't weaken it.
    pub is_floor: bool,
    /// Whether the binding names hooks, not points.
    pub is_at_hooks: bool,
    /// The names of tools that it doesn't provide.
    pub denied_tools: Option<Arc<ToolNames>>,
    /// The accepted manifest's version. `None` before there is one.
    pub version: Option<Arc<str>>,
    /// Digest of the plugin-level config with its references unresolved.
    pub config_digest: Arc<str>,
}

/// An element of a chain: a binding with one tenant-level config.
#[derive(Debug)]
pub(super) struct ChainElement {
    pub(super) fixed: Arc<StepTemplate>,
    /// The element's part of a plan's digest, as canonical JSON; see [`Plan::digest`].
    facts: Vec<u8>,
    /// The tools that it provides at `before_tool_call`.
    pub(super) tools: Option<BindingTools>,
}

impl ChainElement {
    /// The element of `binding`, given its plugin's offers and tools, and the config in `fixed`.
    pub(super) fn new(
        fixed: StepTemplate,
        binding: &CompiledBinding,
        offers: PluginOffers<'_>,
        tools: Option<BindingTools>,
    ) -> Self {
        let written = &fixed.written;
        let points: Vec<_> =
            Point::ALL.into_iter().filter(|point| binding.stands_at(&(*point).into(), offers)).collect();
        let mut facts = json!({
            "binding": &*fixed.binding,
            "plugin": &*fixed.plugin_name,
            "version": written.version,
            "priority": written.priority,
            "points": points,
            "mode": fixed.mode,
            "on_error": fixed.on_error,
            "timeout_ms": u64::try_from(fixed.timeout.as_millis()).unwrap_or(u64::MAX),
            "config": written.config_digest,
            "tenant_config": &*fixed.tenant_config_digest,
            "match": fixed.conditions.source(),
        });
        if let Some(hooks) = &binding.written.hooks {
            facts["hooks"] = json!(hooks.iter().collect::<BTreeSet<_>>());
        }
        let is_there = binding.stands_at(&Point::BeforeToolCall.into(), offers);
        let tools = tools.filter(|_| is_there && offers.gives_tools(&binding.written));
        if let Some(tools) = &tools {
            facts["tools"] = tools.tools.as_ref().map(|_| names_digest(tools)).into();
        }
        ChainElement { fixed: Arc::new(fixed), facts: canonical(&facts), tools }
    }

    /// Whether the plugin is called for its tools and not as a step, because it doesn't offer the point. A binding that
    /// names the point asks for a step all the same, which fails.
    fn is_only_for_tools(&self, binding: &CompiledBinding, offers: PluginOffers<'_>) -> bool {
        let names_the_point = binding.written.points.is_some();
        self.tools.is_some() && !names_the_point && offers.lack(&Point::BeforeToolCall.into())
    }
}

/// Changes with the names of the tools.
fn names_digest(tools: &BindingTools) -> String {
    let mut names: Vec<_> = tools.provided().map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    digest_of(names.join("\n").as_bytes())
}

/// The plans of one chain.
#[derive(Debug)]
pub(super) struct Plans {
    /// By [`Point::index`].
    pub(super) points: [Plan; 4],
    /// The hooks with any binding.
    pub(super) hooks: BTreeMap<HookName, Plan>,
}

impl Plans {
    /// The plan at `site`. It is empty at a hook without a binding.
    pub(super) fn at(&self, site: &CallSite) -> &Plan {
        static EMPTY: LazyLock<Plan> =
            LazyLock::new(|| Plan { steps: Vec::new(), tools: None, digest: digest_elements(&[]) });
        match site {
            CallSite::Point(point) => &self.points[point.index()],
            CallSite::Hook(hook) => self.hooks.get(hook).unwrap_or(&EMPTY),
        }
    }

    /// The plans of `chain`. Each element comes with its binding and its plugin's offers.
    pub(super) fn of(chain: &[(&CompiledBinding, PluginOffers<'_>, Arc<ChainElement>)]) -> Self {
        let mut digests = Vec::with_capacity(Point::ALL.len());
        let points = Point::ALL.map(|point| plan(chain, &point.into(), &mut digests));
        let names: BTreeSet<_> =
            chain.iter().flat_map(|(binding, ..)| binding.written.hooks.iter().flatten()).collect();
        let hook = |name: &HookName| (name.clone(), plan(chain, &name.clone().into(), &mut digests));
        Plans { points, hooks: names.into_iter().map(hook).collect() }
    }
}

/// The elements of a plan, and their digest.
type DigestedElements<'c> = (Vec<&'c Arc<ChainElement>>, Arc<str>);

/// The plan of `chain` at `site`. `digests` has those of the plans at other sites.
fn plan<'c>(
    chain: &'c [(&CompiledBinding, PluginOffers<'_>, Arc<ChainElement>)],
    site: &CallSite,
    digests: &mut Vec<DigestedElements<'c>>,
) -> Plan {
    let stands = chain.iter().filter(|(binding, offers, _)| binding.stands_at(site, *offers));
    let (mut steps, mut elements) = (Vec::with_capacity(chain.len()), Vec::with_capacity(chain.len()));
    let is_tool_call = *site == CallSite::Point(Point::BeforeToolCall);
    for (binding, offers, element) in stands.clone() {
        elements.push(element);
        if is_tool_call && element.is_only_for_tools(binding, *offers) {
            continue;
        }
        let offer = offers.manifest().and_then(|manifest| manifest.offers_at(site));
        let (fixed, not_offered) = (Arc::clone(&element.fixed), offers.lack(site));
        steps.push(Step { template: fixed, offer, not_offered, reserve: Duration::ZERO, group_len: 1 });
    }
    match site {
        CallSite::Point(_) => {
            set_reserves(&mut steps);
            form_groups(&mut steps);
        }
        CallSite::Hook(_) => form_one_group(&mut steps),
    }
    steps.shrink_to_fit();
    // The same elements at another site have the same digest.
    let same = |(others, _): &&DigestedElements<'_>| {
        others.len() == elements.len() && others.iter().zip(&elements).all(|(a, b)| Arc::ptr_eq(a, b))
    };
    let digest = match digests.iter().find(same) {
        Some((_, digest)) => digest.clone(),
        None => digest_elements(&elements),
    };
    digests.push((elements, digest.clone()));
    let tools = is_tool_call.then(|| PlanTools::of(stands.map(|(.., element)| element)));
    Plan { steps, tools: tools.flatten(), digest }
}

/// Sets [`Step::reserve`] of each step.
fn set_reserves(steps: &mut [Step]) {
    let mut reserve = Duration::ZERO;
    for step in steps.iter_mut().rev() {
        step.reserve = reserve;
        if step.on_error == OnError::Fail {
            reserve = reserve.saturating_add(step.timeout);
        }
    }
}

/// The digest of the array of the elements' facts.
fn digest_elements(elements: &[&Arc<ChainElement>]) -> Arc<str> {
    let facts: Vec<_> = elements.iter().map(|element| element.facts.as_slice()).collect();
    digest_of(&[b"[", facts.join(&b","[..]).as_slice(), b"]"].concat()).into()
}
