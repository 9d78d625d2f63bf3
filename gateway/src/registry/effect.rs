//! The effects of a write: compares the plans of every tenant before and after it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hookgate_proto::HookName;
use serde::Serialize;

use crate::{
    config::{Config, Detail, Rate},
    core::{call_site::CallSite, failure::Failure, model_names::ModelNames, point::Point},
    routing::{Plan, PlanTools, RouteTable, Step, TenantPlans, TenantRoute},
};

/// The maximum number of tenants to describe; further ones are only counted.
const MAX_SAMPLE: usize = 100;

/// One side of the comparison.
pub struct EffectInputs<'g> {
    /// Contains the listed tenants.
    pub config: &'g Config,
    /// The plans.
    pub table: &'g RouteTable,
    /// Plugins that can't be called.
    pub troubles: &'g StepFailures,
}

/// Why calls to plugins would fail now, by plugin name.
pub type StepFailures = BTreeMap<String, Failure>;

/// The effects on all tenants.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Effects {
    /// The number of tenants with any change.
    pub tenants: usize,
    /// The first 100 of them, by id; `*` stands for unlisted tenants.
    pub sample: Vec<Effect>,
}

/// The effect on one tenant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// Its id; `*` stands for unlisted tenants.
    pub tenant: String,
    pub before: TenantAdmission,
    pub after: TenantAdmission,
    /// Whether its limits, the detail of its answers or its models change.
    pub settings: bool,
    /// The points at which its plan changes.
    pub points: BTreeMap<Point, PlanEffect>,
    /// The hooks at which its plan changes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<HookName, PlanEffect>,
}

/// Whether a tenant's calls are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantAdmission {
    /// They run through its plans.
    Served,
    /// They are rejected as TENANT_DISABLED.
    Disabled,
    /// They are rejected as TENANT_UNKNOWN.
    Unknown,
}

/// The changes of one plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanEffect {
    /// The new digest; absent if there is no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_digest: Option<String>,
    /// Bindings that are new in it.
    pub added: Vec<String>,
    /// Bindings that are no longer in it.
    pub removed: Vec<String>,
    /// Bindings whose step changes.
    pub changed: Vec<String>,
    /// The bindings in their new order.
    pub order: Vec<String>,
    /// The bindings that would fail, as far as known now.
    pub failing: Vec<FailingBinding>,
    /// Whether calls are refused with STEPS_REQUIRED after the change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lacks_steps: bool,
    /// Whether they were before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lacked_steps: bool,
}

/// A binding whose step would fail if it ran now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailingBinding {
    pub binding: String,
    /// The reason of the step's failure.
    pub reason: &'static str,
    /// One sentence for the operator.
    pub detail: String,
}

/// Compares `before` and `after`, including steps that newly fail.
pub fn effects(before: &EffectInputs<'_>, after: &EffectInputs<'_>) -> Effects {
    let listed = [before.config, after.config].into_iter().flat_map(|config| {
        let listed = config.tenants.list.iter().map(|tenant| &*tenant.id);
        listed.chain(config.bypasses.iter().map(|bypass| &*bypass.tenant))
    });
    let listed: BTreeSet<&str> = listed.collect();
    // No tenant has the id `*`, so it gets the plans of unlisted tenants.
    let ids = ["*"].into_iter().chain(listed);
    let mut effects = Effects::default();
    // The usual case. It lets unchanged plans be skipped.
    let same_troubles = before.troubles.keys().eq(after.troubles.keys());
    for id in ids {
        if let Some(effect) = effect(before, after, same_troubles, id) {
            effects.tenants += 1;
            if effects.sample.len() < MAX_SAMPLE {
                effects.sample.push(effect);
            }
        }
    }
    effects
}

fn effect(
    before: &EffectInputs<'_>,
    after: &EffectInputs<'_>,
    same_troubles: bool,
    tenant: &str,
) -> Option<Effect> {
    let (was, is) = (before.table.tenant(tenant), after.table.tenant(tenant));
    let settings = match (was, is) {
        (TenantRoute::Known(was), TenantRoute::Known(is)) => settings(was) != settings(is),
        _ => false,
    };
    let at = |site: &CallSite| {
        let [lacked, lacks] = [was, is].map(|route| lacks_steps(route, site));
        let (was, is) = (SitePlan::new(was, site), SitePlan::new(is, site));
        let same = was.is_same(is) && lacked == lacks;
        if same && same_troubles {
            return None;
        }
        let [then, now] = [(was, before), (is, after)].map(|(plan, of)| failing(plan, of.troubles));
        let names =
            |failing: &[FailingBinding]| failing.iter().map(|of| of.binding.clone()).collect::<Vec<_>>();
        (!same || names(&then) != names(&now)).then(|| PlanEffect {
            failing: now,
            lacks_steps: lacks,
            lacked_steps: lacked,
            ..plan_effect(was, is)
        })
    };
    let points = Point::ALL.into_iter().filter_map(|point| Some((point, at(&point.into())?)));
    let points: BTreeMap<_, _> = points.collect();
    let names: BTreeSet<_> = [was, is].into_iter().flat_map(hooks).collect();
    let hooks = names.into_iter().filter_map(|hook| Some((hook.clone(), at(&hook.clone().into())?)));
    let hooks: BTreeMap<_, _> = hooks.collect();
    let (was, is) = (tenant_admission(was), tenant_admission(is));
    (was != is || settings || !points.is_empty() || !hooks.is_empty()).then_some(Effect {
        tenant: tenant.to_owned(),
        before: was,
        after: is,
        settings,
        points,
        hooks,
    })
}

fn tenant_admission(route: TenantRoute<'_>) -> TenantAdmission {
    match route {
        TenantRoute::Known(_) => TenantAdmission::Served,
        TenantRoute::Disabled => TenantAdmission::Disabled,
        TenantRoute::Unknown => TenantAdmission::Unknown,
    }
}

fn settings(plans: &TenantPlans) -> (Detail, usize, Option<Rate>, Option<&ModelNames>) {
    (plans.detail, plans.in_flight, plans.rate, plans.models.as_deref())
}

fn lacks_steps(route: TenantRoute<'_>, site: &CallSite) -> bool {
    matches!(route, TenantRoute::Known(plans) if plans.lacks_steps(site))
}

/// The hooks with a plan.
fn hooks(route: TenantRoute<'_>) -> impl Iterator<Item = &HookName> {
    let plans = match route {
        TenantRoute::Known(plans) => Some(plans),
        TenantRoute::Disabled | TenantRoute::Unknown => None,
    };
    plans.into_iter().flat_map(TenantPlans::hooks)
}

/// A tenant's plan at one point or hook. Without steps if the tenant is not served.
#[derive(Clone, Copy)]
struct SitePlan<'t>(Option<&'t Plan>);

impl<'t> SitePlan<'t> {
    fn new(route: TenantRoute<'t>, site: &CallSite) -> Self {
        match route {
            TenantRoute::Known(plans) => SitePlan(Some(plans.plan_at(site))),
            TenantRoute::Disabled | TenantRoute::Unknown => SitePlan(None),
        }
    }

    fn tools(self) -> Option<&'t PlanTools> {
        self.0.and_then(|plan| plan.tools.as_deref())
    }

    /// The steps in order, then those that are called only for their tools.
    fn steps(self) -> Vec<&'t Step> {
        let mut steps: Vec<_> = self.0.iter().flat_map(|plan| &plan.steps).collect();
        for step in self.tools().into_iter().flat_map(PlanTools::steps) {
            if !steps.iter().any(|other| other.binding == step.binding) {
                steps.push(step);
            }
        }
        steps
    }

    /// The tools with the bindings that provide them.
    fn tool_names(self) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.tools()
            .into_iter()
            .flat_map(PlanTools::iter)
            .map(|tool| (tool.tool.name.as_str(), &*tool.step.binding))
    }

    fn is_same(self, other: Self) -> bool {
        // The usual case: tables share the plans of unaffected tenants.
        if self.0.zip(other.0).is_some_and(|(plan, other)| std::ptr::eq(plan, other)) {
            return true;
        }
        let (steps, others) = (self.steps(), other.steps());
        steps.len() == others.len()
            && steps.iter().zip(others).all(|(step, other)| same(step, other))
            && self.tool_names().eq(other.tool_names())
    }
}

/// The steps that would fail if they ran now.
fn failing(plan: SitePlan<'_>, troubles: &StepFailures) -> Vec<FailingBinding> {
    let one = |step: &Step| {
        let failure = step.flaw().or_else(|| troubles.get(&*step.plugin_name).cloned())?;
        let (binding, reason) = (step.binding.to_string(), failure.reason.as_str());
        Some(FailingBinding { binding, reason, detail: failure.detail })
    };
    plan.steps().into_iter().filter_map(one).collect()
}

/// The changes of the steps alone.
fn plan_effect(was: SitePlan<'_>, is: SitePlan<'_>) -> PlanEffect {
    let tools = |plan: SitePlan<'_>, binding: &str| -> Vec<String> {
        plan.tool_names().filter(|(_, of)| *of == binding).map(|(name, _)| name.to_owned()).collect()
    };
    let (then, now) = (was.steps(), is.steps());
    let find = |steps: &[&Step], name: &str| steps.iter().position(|step| *step.binding == *name);
    let name = |step: &&Step| step.binding.to_string();
    let changed = |step: &&&Step| {
        let is_other =
            |at: usize| !same(then[at], step) || tools(was, &step.binding) != tools(is, &step.binding);
        find(&then, &step.binding).is_some_and(is_other)
    };
    PlanEffect {
        plan_digest: is.0.map(|plan| plan.digest.to_string()),
        added: now.iter().filter(|step| find(&then, &step.binding).is_none()).map(name).collect(),
        removed: then.iter().filter(|step| find(&now, &step.binding).is_none()).map(name).collect(),
        changed: now.iter().filter(changed).map(name).collect(),
        order: now.iter().map(name).collect(),
        failing: Vec::new(),
        lacks_steps: false,
        lacked_steps: false,
    }
}

/// Whether two steps behave the same. Plans' digests can't be compared instead, because they leave out
/// `writable`.
fn same(a: &Step, b: &Step) -> bool {
    let (written, other) = (&a.written, &b.written);
    (&a.binding, &a.plugin_name, a.mode, a.on_error, a.timeout, &a.tenant_config_digest, &a.config_refused)
        == (
            &b.binding,
            &b.plugin_name,
            b.mode,
            b.on_error,
            b.timeout,
            &b.tenant_config_digest,
            &b.config_refused,
        )
        && a.writable == b.writable
        && (a.offer, a.not_offered) == (b.offer, b.not_offered)
        && (written.priority, a.conditions.source(), &written.version, &written.config_digest)
            == (other.priority, b.conditions.source(), &other.version, &other.config_digest)
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
