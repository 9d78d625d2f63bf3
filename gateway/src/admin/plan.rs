//! The active plans of a tenant: which binding runs at which point or hook, and with which rights. Configuration is
//! shown by digest only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hookgate_proto::HookName;
use serde::Serialize;
use serde_json::Value;

use crate::{
    config::{Bypass, Until},
    core::{
        call_site::CallSite,
        point::Point,
        step::{Mode, OnError},
    },
    routing::{self, PlanTool, PlanTools, TenantPlans},
};

/// The plans of `tenant` at `site`, or at all points and hooks, and those of `bypasses` that are the tenant's.
pub(super) fn view<'a>(
    tenant: &'a str,
    revision: u64,
    plans: &'a TenantPlans,
    bypasses: &'a [Arc<Bypass>],
    for_operators: bool,
    site: Option<&CallSite>,
) -> PlanView<'a> {
    let is_wanted = |at: &CallSite| site.is_none_or(|wanted| wanted == at);
    let plan = |at: &CallSite| {
        let plan = plans.plan_at(at);
        let tools = plan.tools.as_deref().into_iter().flat_map(PlanTools::iter);
        SitePlanView {
            plan_digest: &plan.digest,
            steps: plan.steps.iter().map(step).collect(),
            tools: tools.map(tool).collect(),
        }
    };
    let points = Point::ALL.into_iter().filter(|point| is_wanted(&(*point).into()));
    let hooks: BTreeSet<_> = match site {
        Some(site) => site.hook().into_iter().cloned().collect(),
        None => plans.hooks().cloned().collect(),
    };
    let bypassed = bypasses.iter().filter(|bypass| bypass.tenant == tenant).map(|bypass| BypassView {
        binding: &bypass.binding,
        until: bypass.until,
        reason: for_operators.then_some(&*bypass.reason),
    });
    PlanView {
        tenant,
        revision,
        points: points.map(|point| (point, plan(&point.into()))).collect(),
        hooks: hooks.into_iter().map(|hook| (hook.clone(), plan(&hook.into()))).collect(),
        bypassed: bypassed.collect(),
    }
}

#[derive(Serialize)]
pub(super) struct PlanView<'a> {
    tenant: &'a str,
    revision: u64,
    points: BTreeMap<Point, SitePlanView<'a>>,
    /// The hooks with any step; absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hooks: BTreeMap<HookName, SitePlanView<'a>>,
    /// Bindings that are temporarily left out.
    bypassed: Vec<BypassView<'a>>,
}

#[derive(Serialize)]
struct BypassView<'a> {
    binding: &'a str,
    until: Until,
    /// Null for a caller confined to the tenant.
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct SitePlanView<'a> {
    plan_digest: &'a str,
    steps: Vec<StepView<'a>>,
    /// The tools that the plugins provide, in the order of their names; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<PlanToolView<'a>>,
}

#[derive(Serialize)]
struct PlanToolView<'a> {
    name: &'a str,
    plugin: &'a str,
    binding: &'a str,
    /// Another binding that provides the same name, so that calls of the tool fail; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    rival: Option<&'a str>,
}

#[derive(Serialize)]
struct StepView<'a> {
    binding: &'a str,
    plugin: &'a str,
    /// Null until a manifest is accepted.
    version: Option<&'a str>,
    priority: i64,
    mode: Mode,
    on_error: OnError,
    timeout_ms: u128,
    /// `global` for bindings to all tenants or to a selector, `tenant` for a binding to this tenant.
    source: &'static str,
    /// As written; null if the binding has none.
    r#match: &'a Value,
    /// Null means all fields that the point and the plugin's access allow.
    writable: Option<&'a Arc<[String]>>,
    /// The digest of the plugin-level configuration, with references unresolved.
    config_digest: &'a str,
    /// The digest of the step's tenant-level configuration.
    tenant_config_digest: &'a str,
}

fn tool(PlanTool { tool, step, rival }: PlanTool<'_>) -> PlanToolView<'_> {
    PlanToolView {
        name: &tool.name,
        plugin: &step.plugin_name,
        binding: &step.binding,
        rival: rival.map(|rival| &*rival.binding),
    }
}

fn step(step: &routing::Step) -> StepView<'_> {
    let written = &*step.written;
    StepView {
        binding: &step.binding,
        plugin: &step.plugin_name,
        version: written.version.as_deref(),
        priority: written.priority,
        mode: step.mode,
        on_error: step.on_error,
        timeout_ms: step.timeout.as_millis(),
        source: if written.is_floor { "global" } else { "tenant" },
        r#match: step.conditions.source(),
        writable: step.writable.as_ref(),
        config_digest: &written.config_digest,
        tenant_config_digest: &step.tenant_config_digest,
    }
}
