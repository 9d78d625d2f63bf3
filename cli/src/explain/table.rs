//! Renders an explanation: a table of the steps with remarks, the bindings that don't run, the time budget, and
//! warnings.

use std::{collections::BTreeMap, fmt::Write};

use hookgate_proto::HookName;

use super::super::output::{columns, indented, printable};
use hookgate::{
    config::UnknownTenant,
    core::{
        point::Point,
        step::{Mode, OnError},
    },
    invoke::explain::{
        AbsenceCause, AbsentBinding, BindingSource, ConditionReport, ExpectedOutcome, Explanation, Millis,
        StepExplanation, TenantLookup, TenantReport, TimeoutSource,
    },
    routing::ConditionOutcome,
};

/// Longest line of running text.
const MAX_LINE_WIDTH: usize = 100;

/// Renders the explanation that came from `source`, a file or a gateway.
pub(super) fn render(said: &Explanation, source: &str) -> String {
    let mut text = columns(&head(said, source));
    if said.plan_digest.is_none() {
        return text;
    }
    text.push_str(&steps(said));
    if !said.absent.is_empty() {
        text.push_str("\nNOT IN THIS CHAIN\n");
        let rows: Vec<_> = said.absent.iter().map(absent).collect();
        text.push_str(&indented(2, &columns(&rows)));
    }
    if !said.steps.is_empty() {
        text.push_str(&budget(said));
    }
    if !said.warnings.is_empty() {
        text.push_str("\nWARNINGS\n");
        for warning in &said.warnings {
            text.push_str(&wrapped("  - ", warning));
        }
    }
    text
}

fn head(said: &Explanation, source: &str) -> Vec<[String; 2]> {
    let site = said.point.map(Point::as_str).or(said.hook.as_ref().map(HookName::as_str));
    let mut call = vec![site.unwrap_or_default().to_owned()];
    call.extend(
        said.call.texts().iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))),
    );
    call.extend(said.call.labels.iter().map(|(key, value)| format!("label {key}={value}")));
    let revision = said.revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
    let mut rows = vec![
        ["from".to_owned(), format!("{source}{revision}")],
        ["tenant".to_owned(), tenant(&said.tenant)],
        ["call".to_owned(), call.join(", ")],
    ];
    rows.extend(said.plan_digest.iter().map(|digest| ["plan".to_owned(), digest.clone()]));
    rows.extend(said.tenant.hint.iter().map(|hint| ["hint".to_owned(), hint.clone()]));
    if !said.manifests_known && said.steps.iter().any(|step| step.version.is_none()) {
        let open = "points and versions of plugins that aren't built in are unknown, so the digest isn't a gateway's";
        rows.push(["open".to_owned(), open.to_owned()]);
    }
    rows
}

pub(super) fn tenant(tenant: &TenantReport) -> String {
    let others = match tenant.unknown {
        UnknownTenant::Accept => "`tenants.unknown: accept`",
        UnknownTenant::Refuse => "`tenants.unknown: refuse`",
    };
    let code = tenant.code.as_deref().unwrap_or_default();
    let status = match tenant.status {
        TenantLookup::Listed => "listed".to_owned(),
        TenantLookup::Unlisted => format!("not listed, served with the global bindings ({others})"),
        TenantLookup::Disabled => format!("disabled, its calls are refused: {code}"),
        TenantLookup::Refused => format!("not listed, its calls are refused: {code} ({others})"),
    };
    format!("{}: {status}", tenant.id)
}

fn steps(said: &Explanation) -> String {
    if said.steps.is_empty() {
        return match &said.tenant.code {
            Some(code) => format!("\nNo binding applies here: the call is refused with {code}.\n"),
            None => "\nNo binding applies here: the call passes unchanged.\n".to_owned(),
        };
    }
    let titles = ["#", "STEP", "PLUGIN", "VERSION", "PRIORITY", "MODE", "ON ERROR", "TIME-OUT", "OUTCOME"];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(said.steps.iter().enumerate().map(|(at, step)| row(at + 1, step)));
    let table = columns(&rows);
    let mut lines = table.lines();
    let mut text = format!("\n{}\n", lines.next().unwrap_or_default());
    for (line, step) in lines.zip(&said.steps) {
        let _ = writeln!(text, "{line}");
        for remark in remarks(step) {
            text.push_str(&wrapped("     ", &remark));
        }
    }
    text
}

fn row(number: usize, step: &StepExplanation) -> [String; 9] {
    let on_error = match (step.mode, step.on_error) {
        (Mode::Observe, _) => "-",
        (_, OnError::Fail) => "fail",
        (_, OnError::Skip) => "skip",
    };
    [
        number.to_string(),
        step.binding.clone(),
        step.plugin.clone(),
        step.version.clone().unwrap_or_else(|| "-".to_owned()),
        step.priority.to_string(),
        step.mode.as_str().to_owned(),
        on_error.to_owned(),
        step.timeout_ms.to_string(),
        step.comes.outcome.as_str().to_owned(),
    ]
}

/// The remarks beneath a step.
fn remarks(step: &StepExplanation) -> Vec<String> {
    let whom = match (step.source, &step.selector) {
        (BindingSource::Tenant, _) => "tenant: for this tenant only".to_owned(),
        (BindingSource::Global, None) => "global: for every tenant".to_owned(),
        (BindingSource::Global, Some(selector)) => format!("global: for tenants with {}", labels(selector)),
    };
    let timeout = match step.timeout_source {
        TimeoutSource::Binding => "the binding",
        TimeoutSource::Plugin => "the plugin",
    };
    let mut remarks = vec![format!("{whom}; timeout from {timeout}")];
    if step.runs_tool {
        remarks.push("runs the call's tool, after all other steps".to_owned());
    }
    if !step.overrides.is_empty() {
        remarks.push(format!("the tenant's own configuration sets {}", step.overrides.join(", ")));
    }
    remarks.extend(step.conditions.iter().map(condition_line));
    remarks.extend(step.comes.detail.as_ref().map(|detail| {
        let reason = step.comes.reason.as_deref().unwrap_or_default();
        format!("{reason}: {detail}")
    }));
    remarks
}

fn condition_line(tried: &ConditionReport) -> String {
    let what = format!("{} {}", tried.field, tried.patterns.join(" | "));
    let value = tried.value.as_ref().map(|value| format!(" by `{value}`")).unwrap_or_default();
    match tried.result {
        ConditionOutcome::Matched => format!("{what}: matched{value}"),
        ConditionOutcome::NotMatched => format!("{what}: not matched{value}"),
        ConditionOutcome::NotSent => format!("{what}: counts as matched, the call doesn't have it"),
        ConditionOutcome::NotApplied => format!("{what}: not applied, this point has none"),
    }
}

fn absent(absent: &AbsentBinding) -> [String; 3] {
    let why = match absent.cause {
        AbsenceCause::BindingDisabled => "the binding has `enabled: false`".to_owned(),
        AbsenceCause::PluginDisabled => "its plugin has `enabled: false`".to_owned(),
        AbsenceCause::Selector => {
            format!("is for tenants with {}", absent.selector.as_ref().map(labels).unwrap_or_default())
        }
        AbsenceCause::Disabled => "the tenant's `disable` names it".to_owned(),
        AbsenceCause::Bypassed => {
            let until = absent.until.map(|until| format!(" until {until}")).unwrap_or_default();
            let reason = absent.reason.iter().map(|reason| format!(": {}", printable(reason)));
            format!("is bypassed{until}{}", reason.collect::<String>())
        }
        AbsenceCause::Points => {
            let points = absent.points.iter().flatten().map(|point| point.as_str());
            let sites = points.chain(absent.hooks.iter().flatten().map(HookName::as_str));
            format!("applies only at {}", sites.collect::<Vec<_>>().join(", "))
        }
        AbsenceCause::NotOffered => "its plugin doesn't offer this point".to_owned(),
    };
    [absent.binding.clone(), absent.plugin.clone(), why]
}

fn budget(said: &Explanation) -> String {
    let budget = &said.budget;
    let whole = match (budget.caller_timeout_ms, budget.margin_ms) {
        (Some(caller), Some(margin)) => format!(
            "the smaller of `limits.budget` ({}) and the caller's {} less {}",
            budget.limit_ms, caller, margin
        ),
        _ => "`limits.budget`, because the caller sets no deadline".to_owned(),
    };
    let mut text = format!("\nBUDGET {}: {whole}.\n", budget.total_ms);
    text.push_str(&wrapped(
        "",
        &format!(
            "If every plugin uses its whole allowance and then continues (steps that may be skipped reserve at most \
             {} for later steps that must not fail):",
            budget.max_reserved_ms
        ),
    ));
    let mut rows = vec![["#", "STEP", "ALLOWANCE", "RESERVED", "OUTCOME"].map(str::to_owned)];
    for (at, step) in said.steps.iter().enumerate().filter(|(_, step)| step.mode != Mode::Observe) {
        let span = |time: Option<Millis>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
        let outcome = match (step.worst_case.comes.outcome, step.worst_case.budget_limited) {
            (ExpectedOutcome::Called, true) => "called, limited by the budget".to_owned(),
            (ExpectedOutcome::Failed, true) => "failed (budget): nothing is left".to_owned(),
            (outcome, _) => outcome.as_str().to_owned(),
        };
        let (gets, keeps) = (span(step.worst_case.allowance_ms), span(step.worst_case.reserved_ms));
        rows.push([(at + 1).to_string(), step.binding.clone(), gets, keeps, outcome]);
    }
    text + &indented(2, &columns(&rows))
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Wraps `text` at [`MAX_LINE_WIDTH`], the first line after `lead` and the others aligned with it.
pub(super) fn wrapped(lead: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), lead.to_owned());
    let indent = " ".repeat(lead.chars().count());
    let mut fresh = true;
    for word in printable(text).split_whitespace() {
        if !fresh && line.chars().count() + 1 + word.chars().count() > MAX_LINE_WIDTH {
            let _ = writeln!(lines, "{line}");
            line.clone_from(&indent);
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    lines + &line + "\n"
}
