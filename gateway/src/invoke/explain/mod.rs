//! Explains which steps a call of a tenant runs at a point or hook, and why. For operators.
//!
//! Pure, and without rules of its own: it asks [`crate::routing`] which bindings apply,
//! [`crate::routing::Conditions`] whether conditions hold, `precheck.rs` and [`super::decide`] for the
//! steps' outcomes, and [`super::budget`] for their times. An explanation contains names, times and
//! patterns, but never a value of plugins' config.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::Value;

use super::budget;
use crate::{
    config::{self, Bypass, Config},
    core::error::Code,
    routing::{self, Condition, MatchSubject, Plan, RouteTable, Step, TenantRoute},
};

mod llm;
mod model;
#[cfg(test)]
pub(crate) mod tests;
mod walk;
mod warnings;

pub use crate::invoke::explain::llm::{LlmExplanation, PointReport, StepReport, explain_llm};
pub use crate::invoke::explain::model::{
    AbsenceCause, AbsentBinding, BindingSource, BudgetReport, ConditionReport, ExpectedOutcome, ExplainCall,
    ExplainQuery, Explanation, Millis, StepExplanation, StepForecast, TenantLookup, TenantReport,
    TimeoutSource, WorstCase,
};
use walk::{Takes, TimedForecast, walk};

/// Answers `question` from `table`, which was built from `config`. Unless `manifests_known`, a plugin without a
/// manifest in `table` is assumed to offer the points that its bindings name.
pub fn explain(
    config: &Config,
    table: &RouteTable,
    manifests_known: bool,
    question: &ExplainQuery,
) -> Explanation {
    let tenant = tenant(config, table, &question.tenant);
    let caller = question.call.timeout_ms.map(Duration::from_millis);
    let limit = config.limits.budget.0;
    let total = budget::total(limit, caller);
    let mut said = Explanation {
        tenant,
        point: question.site.point(),
        hook: question.site.hook().cloned(),
        call: question.call.clone(),
        revision: manifests_known.then(|| table.revision()),
        manifests_known,
        plan_digest: None,
        steps: Vec::new(),
        absent: Vec::new(),
        budget: BudgetReport {
            limit_ms: Millis(limit),
            caller_timeout_ms: caller.map(Millis),
            margin_ms: caller.map(|caller| Millis(budget::margin(caller))),
            total_ms: Millis(total),
            max_reserved_ms: Millis(total / 2),
        },
        warnings: Vec::new(),
    };
    let TenantRoute::Known(plans) = table.tenant(&question.tenant) else { return said };
    let plan = plans.plan_at(&question.site);
    said.plan_digest = Some(plan.digest.to_string());
    said.steps = steps(config, plan, manifests_known, total, question);
    said.absent = absent(config, table, question);
    said.warnings = warnings::warnings(plan, &said.steps, &said.budget);
    if plans.lacks_steps(&question.site) {
        said.tenant.code = Some(Code::StepsRequired.as_str().to_owned());
        said.warnings.insert(0, warnings::STEPS_REQUIRED.to_owned());
    }
    said
}

/// How `table`, which was built from `config`, lists the tenant `id`.
fn tenant(config: &Config, table: &RouteTable, id: &str) -> TenantReport {
    let list = &config.tenants.list;
    let listed = list.iter().any(|tenant| tenant.id == id);
    let status = match (table.tenant(id), listed) {
        (TenantRoute::Known(_), true) => TenantLookup::Listed,
        (TenantRoute::Known(_), false) => TenantLookup::Unlisted,
        (TenantRoute::Disabled, _) => TenantLookup::Disabled,
        (TenantRoute::Unknown, _) => TenantLookup::Refused,
    };
    let code = match status {
        TenantLookup::Listed | TenantLookup::Unlisted => None,
        TenantLookup::Disabled => Some(Code::TenantDisabled),
        TenantLookup::Refused => Some(Code::TenantUnknown),
    };
    let ids = list.iter().map(|tenant| tenant.id.as_str());
    TenantReport {
        id: id.to_owned(),
        status,
        unknown: config.tenants.unknown,
        code: code.map(|code| code.as_str().to_owned()),
        hint: if listed { None } else { config::did_you_mean(id, ids) },
    }
}

fn steps(
    config: &Config,
    plan: &Plan,
    manifests_known: bool,
    total: Duration,
    question: &ExplainQuery,
) -> Vec<StepExplanation> {
    let mut of_plan: Vec<_> = plan.steps.iter().map(|step| assume_manifest(step, manifests_known)).collect();
    let tool_step = tool_step(plan, question).map(|step| assume_manifest(&step, manifests_known));
    let tool_reserve = tool_step.as_ref().map_or(Duration::ZERO, |step| step.timeout);
    of_plan.extend(tool_step);
    let subject = subject(question);
    let met: Vec<_> = of_plan.iter().map(|step| step.conditions.is_met(&subject)).collect();
    let at_once = walk(&of_plan, &met, total, tool_reserve, Takes::Nothing);
    let in_the_worst_case = walk(&of_plan, &met, total, tool_reserve, Takes::AllItGets);
    let bindings: HashMap<_, _> =
        config.bindings.iter().map(|binding| (binding.effective_name(), binding)).collect();
    let walked = at_once.into_iter().zip(in_the_worst_case);
    let steps = of_plan.iter().zip(walked).enumerate().filter_map(|(at, (step, (went, worst)))| {
        let binding = bindings.get(&*step.binding)?;
        let worst = worst_case(worst, budget::reserved_time(total, step, tool_reserve));
        let explained = explain_step(config, binding, step, question, went, worst);
        Some(StepExplanation { runs_tool: at >= plan.steps.len(), ..explained })
    });
    steps.collect()
}

/// The step that runs the tool of the call, after all others.
fn tool_step(plan: &Plan, question: &ExplainQuery) -> Option<Step> {
    let step = plan.tools.as_ref()?.route(question.call.tool.as_deref()?)?;
    Some(step.into_owned())
}

fn worst_case(worst: TimedForecast, reserved: Duration) -> WorstCase {
    WorstCase {
        allowance_ms: worst.limit.map(Millis),
        reserved_ms: worst.limit.map(|_| Millis(reserved)),
        budget_limited: worst.limit.is_some() && worst.cut,
        comes: worst.comes,
    }
}

/// Returns `step`; unless `manifests_known`, a step without a manifest is returned as if its plugin offered what the
/// binding names.
fn assume_manifest(step: &Step, manifests_known: bool) -> Step {
    let mut step = step.clone();
    if !manifests_known && step.written.version.is_none() {
        step.offer = Some(routing::PointAccess::new(routing::Access::Modify, routing::SideEffects::None));
    }
    step
}

/// The values for conditions. A payload's values before and after patches are equal, because no plugin is
/// called.
fn subject(question: &ExplainQuery) -> MatchSubject<'_> {
    let ExplainQuery { call, text, .. } = question;
    MatchSubject {
        site: &question.site,
        tool: call.tool.as_deref().map(|tool| [tool, tool]),
        text: text.as_deref().map(|text| [text, text]),
        model: call.model.as_deref(),
        agent: call.agent.as_deref(),
        agent_path: call.agent_path.as_deref(),
        labels: &call.labels,
    }
}

fn explain_step(
    config: &Config,
    binding: &config::Binding,
    step: &Step,
    question: &ExplainQuery,
    went: TimedForecast,
    worst_case: WorstCase,
) -> StepExplanation {
    let written = &*step.written;
    let tenant = config.tenants.list.iter().find(|tenant| tenant.id == question.tenant);
    let own = tenant.and_then(|tenant| tenant.config.get(&*step.plugin_name));
    StepExplanation {
        binding: step.binding.to_string(),
        plugin: step.plugin_name.to_string(),
        version: written.version.as_deref().map(str::to_owned),
        priority: written.priority,
        mode: step.mode,
        on_error: step.on_error,
        timeout_ms: Millis(step.timeout),
        timeout_source: if binding.timeout.is_some() {
            TimeoutSource::Binding
        } else {
            TimeoutSource::Plugin
        },
        source: if written.is_floor { BindingSource::Global } else { BindingSource::Tenant },
        selector: binding.selector.clone(),
        overrides: own.into_iter().flat_map(|own| own.keys().cloned()).collect(),
        conditions: condition_reports(step, question),
        worst_case,
        comes: went.comes,
        runs_tool: false,
    }
}

/// The conditions of `step`, in evaluation order.
fn condition_reports(step: &Step, question: &ExplainQuery) -> Vec<ConditionReport> {
    let call = &question.call;
    let one = |(condition, result)| {
        let value = match condition {
            Condition::Agents => call.agent.clone(),
            Condition::AgentPaths => call.agent_path.clone(),
            Condition::Models => call.model.clone(),
            Condition::Label(key) => call.labels.get(key).cloned(),
            Condition::Tools => call.tool.clone(),
            // The text may be long, and the caller knows it.
            Condition::Text => None,
        };
        let source = step.conditions.source();
        let (field, written) = match condition {
            Condition::Agents => ("agents".to_owned(), &source["agents"]),
            Condition::AgentPaths => ("agent_paths".to_owned(), &source["agent_paths"]),
            Condition::Models => ("models".to_owned(), &source["models"]),
            Condition::Label(key) => (format!("labels.{key}"), &source["labels"][key]),
            Condition::Tools => ("tools".to_owned(), &source["tools"]),
            Condition::Text => ("text".to_owned(), &source["text"]),
        };
        ConditionReport {
            field,
            patterns: patterns(written),
            value: value.filter(|value| !value.is_empty()),
            result,
        }
    };
    step.conditions.each(subject(question)).map(one).collect()
}

/// A condition's patterns as written: a list, or for `text` the lists of its members.
fn patterns(written: &Value) -> Vec<String> {
    match written {
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::Object(members) => {
            let of_member = |(name, list): (&String, &Value)| {
                patterns(list).into_iter().map(move |pattern| format!("{name} {pattern}")).collect::<Vec<_>>()
            };
            members.iter().flat_map(of_member).collect()
        }
        _ => Vec::new(),
    }
}

fn absent(config: &Config, table: &RouteTable, question: &ExplainQuery) -> Vec<AbsentBinding> {
    let absent = routing::absent(config, |at| table.manifest(at), &question.tenant, &question.site);
    let one = |(binding, why): (&config::Binding, routing::AbsenceReason)| {
        let name = binding.effective_name();
        let is_it = |bypass: &&Arc<Bypass>| bypass.binding == name && bypass.tenant == question.tenant;
        let is_elsewhere = why == routing::AbsenceReason::PointNotListed;
        let is_bypassed = why == routing::AbsenceReason::Bypassed;
        let bypass = config.bypasses.iter().find(is_it).filter(|_| is_bypassed);
        AbsentBinding {
            plugin: binding.plugin.clone(),
            cause: why.into(),
            selector: binding.selector.clone().filter(|_| why == routing::AbsenceReason::NotSelected),
            points: binding.points.clone().filter(|_| is_elsewhere),
            hooks: binding.hooks.clone().filter(|_| is_elsewhere),
            until: bypass.map(|bypass| bypass.until),
            reason: bypass.map(|bypass| bypass.reason.clone()),
            binding: name.into_owned(),
        }
    };
    absent.into_iter().map(one).collect()
}
