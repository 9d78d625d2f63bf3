//! The effects of a write: compares the plans of every tenant before and after it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hookgate_proto::HookName;
use serde::Serialize;

use crate::{
    config::{Config, Detail, Rate},
    core::{call_site::CallSite, failure::Failure, point::Point},
    routing::{RouteTable, Step, TenantPlans, TenantRoute},
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
    /// Whether its limits or the detail of its answers change.
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
        let ((was, _), (is, digest)) = (steps(was, site), steps(is, site));
        let same = are_same(was, is);
        if same && same_troubles {
            return None;
        }
        let [then, now] = [(was, before), (is, after)].map(|(steps, of)| failing(steps, of.troubles));
        let names =
            |failing: &[FailingBinding]| failing.iter().map(|of| of.binding.clone()).collect::<Vec<_>>();
        (!same || names(&then) != names(&now)).then(|| plan_effect(was, is, digest, now))
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

fn settings(plans: &TenantPlans) -> (Detail, usize, Option<Rate>) {
    (plans.detail, plans.in_flight, plans.rate)
}

/// The hooks with a plan.
fn hooks(route: TenantRoute<'_>) -> impl Iterator<Item = &HookName> {
    let plans = match route {
        TenantRoute::Known(plans) => Some(plans),
        TenantRoute::Disabled | TenantRoute::Unknown => None,
    };
    plans.into_iter().flat_map(TenantPlans::hooks)
}

fn steps<'t>(route: TenantRoute<'t>, site: &CallSite) -> (&'t [Step], Option<&'t str>) {
    match route {
        TenantRoute::Known(plans) => {
            let plan = plans.plan_at(site);
            (&plan.steps, Some(&plan.digest))
        }
        TenantRoute::Disabled | TenantRoute::Unknown => (&[], None),
    }
}

fn are_same(was: &[Step], is: &[Step]) -> bool {
    // The usual case: tables share the plans of unaffected tenants.
    std::ptr::eq(was, is) || was.len() == is.len() && was.iter().zip(is).all(|(was, is)| same(was, is))
}

/// The steps that would fail if they ran now.
fn failing(steps: &[Step], troubles: &StepFailures) -> Vec<FailingBinding> {
    let one = |step: &Step| {
        let failure = step.flaw().or_else(|| troubles.get(&*step.plugin_name).cloned())?;
        let (binding, reason) = (step.binding.to_string(), failure.reason.as_str());
        Some(FailingBinding { binding, reason, detail: failure.detail })
    };
    steps.iter().filter_map(one).collect()
}

fn plan_effect(was: &[Step], is: &[Step], digest: Option<&str>, failing: Vec<FailingBinding>) -> PlanEffect {
    let find = |steps: &'_ [Step], name: &str| steps.iter().position(|step| *step.binding == *name);
    let name = |step: &Step| step.binding.to_string();
    let changed = |step: &&Step| find(was, &step.binding).is_some_and(|at| !same(&was[at], step));
    PlanEffect {
        plan_digest: digest.map(str::to_owned),
        added: is.iter().filter(|step| find(was, &step.binding).is_none()).map(name).collect(),
        removed: was.iter().filter(|step| find(is, &step.binding).is_none()).map(name).collect(),
        changed: is.iter().filter(changed).map(name).collect(),
        order: is.iter().map(name).collect(),
        failing,
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
