//! Warnings about surprising consequences of a plan.

use std::collections::HashMap;

use super::{BudgetReport, ExpectedOutcome, Millis, StepExplanation};
use crate::{
    core::step::{Mode, OnError},
    routing::{Plan, Step, groups},
};

/// For a plan without the step that `require_steps` asks for.
pub(super) const STEPS_REQUIRED: &str = "`require_steps` names this point, and the plan has no step in mode enforce or \
                                         advise: calls are refused with STEPS_REQUIRED";

pub(super) fn warnings(plan: &Plan, steps: &[StepExplanation], budget: &BudgetReport) -> Vec<String> {
    let mut warnings: Vec<_> = steps.iter().filter_map(at_once).collect();
    warnings.extend(add_up(plan, steps, budget));
    warnings.extend(steps.iter().filter_map(in_the_worst_case));
    warnings
}

/// Warns about a step that can't work, no matter how fast the plugins are.
fn at_once(step: &StepExplanation) -> Option<String> {
    let why = || {
        let reason = step.comes.reason.as_deref().unwrap_or_default();
        let detail = step.comes.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
        format!("({reason}{detail})")
    };
    let name = &step.binding;
    match step.comes.outcome {
        ExpectedOutcome::Failed => {
            Some(format!("`{name}` fails without being called {}: the chain ends there, undecided", why()))
        }
        ExpectedOutcome::FailedOpen => {
            Some(format!("`{name}` fails without being called {}: the chain continues without it", why()))
        }
        ExpectedOutcome::SkippedBudget => {
            Some(format!("`{name}` is never called, even if all other steps are fast: too little time"))
        }
        ExpectedOutcome::Observed if step.comes.reason.is_some() => {
            Some(format!("`{name}` queues calls that its plugin never sees {}", why()))
        }
        ExpectedOutcome::SkippedCondition if step.runs_tool => Some(format!(
            "`{name}` provides the tool, and its conditions exclude the call: a block with TOOL_NOT_ALLOWED"
        )),
        ExpectedOutcome::Called
        | ExpectedOutcome::Observed
        | ExpectedOutcome::SkippedCondition
        | ExpectedOutcome::NotReached => None,
    }
}

/// Warns if mandatory steps can take longer than the invocation. Of the steps of a group, which are called at
/// the same time, the longest counts.
fn add_up(plan: &Plan, steps: &[StepExplanation], budget: &BudgetReport) -> Option<String> {
    let (tool, of_plan): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step.runs_tool);
    let mandatory: HashMap<_, _> = of_plan
        .iter()
        .filter(|step| step.mode != Mode::Observe && step.on_error == OnError::Fail)
        .filter(|step| step.comes.outcome == ExpectedOutcome::Called)
        .map(|step| (step.binding.as_str(), step.timeout_ms.0))
        .collect();
    let longest =
        |group: &[Step]| group.iter().filter_map(|step| mandatory.get(&*step.binding)).max().copied();
    let tool = tool.iter().map(|step| step.timeout_ms.0);
    let sum = Millis(groups(&plan.steps).filter_map(longest).chain(tool).sum());
    (sum > budget.total_ms).then(|| {
        format!(
            "the timeouts of the steps with `on_error: fail` add up to {}, the budget is {}: if they take that long, \
             calls end with BUDGET_EXHAUSTED",
            sum, budget.total_ms
        )
    })
}

fn in_the_worst_case(step: &StepExplanation) -> Option<String> {
    (step.comes.outcome == ExpectedOutcome::Called && step.worst_case.comes.outcome == ExpectedOutcome::SkippedBudget).then(|| {
        format!(
            "`{}` is not called if the steps before it use up their time: the rest is reserved for later steps with \
             `on_error: fail`",
            step.binding
        )
    })
}
