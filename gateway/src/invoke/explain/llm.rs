//! Explains what the LLM proxy does for a tenant, and whose steps cause it. [`crate::llm::explain`] knows the proxy.

use serde::{Deserialize, Serialize};

use crate::{
    config::Config,
    core::{call_site::CallSite, point::Point, step::Mode},
    invoke::explain::{TenantReport, tenant},
    llm::{
        explain::{self, ProxyReport, TenantRules},
        guarded_points::GuardedPoints,
        routes::ModelRoutes,
    },
    routing::{RouteTable, TenantPlans, TenantRoute},
};

/// Explains what the LLM proxy does for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlmExplanation {
    /// Revision of the table; `None` for a file.
    pub revision: Option<u64>,
    pub tenant: TenantReport,
    /// Whether all accepted manifests are known. From a file alone it is unknown what plugins offer that aren't built in.
    pub manifests_known: bool,
    /// All four; none if the tenant isn't served.
    pub points: Vec<PointReport>,
    /// Present if the configuration has `llm`, and the tenant is served.
    pub proxy: Option<ProxyReport>,
}

/// Who is asked at a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointReport {
    pub point: Point,
    /// Whether a step can block or change, or one that could is required and missing.
    pub is_guarded: bool,
    /// Whether requests end there with STEPS_REQUIRED.
    pub lacks_steps: bool,
    /// In the order in which they run.
    pub steps: Vec<StepReport>,
    /// Names of the bindings that an operator bypasses.
    pub bypassed: Vec<String>,
}

/// A step at a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    pub binding: String,
    pub plugin: String,
    /// From the accepted manifest; `None` until there is one.
    pub version: Option<String>,
    pub mode: Mode,
}

/// Explains what the LLM proxy does for the tenant `id`. `table` and `routes` were built from `config`. Unless
/// `manifests_known`, a plugin without a manifest in `table` is assumed to offer the points that its bindings name.
pub fn explain_llm(
    config: &Config,
    table: &RouteTable,
    routes: Option<&ModelRoutes>,
    manifests_known: bool,
    id: &str,
) -> LlmExplanation {
    let mut said = LlmExplanation {
        revision: manifests_known.then(|| table.revision()),
        tenant: tenant(config, table, id),
        manifests_known,
        points: Vec::new(),
        proxy: None,
    };
    let TenantRoute::Known(plans) = table.tenant(id) else { return said };
    said.points = Point::ALL.map(|point| point_report(plans, point)).into();
    if let (Some(llm), Some(routes)) = (&config.llm, routes) {
        let listed = config.tenants.list.iter().find(|tenant| tenant.id == id);
        let asks = |point: &Point| plans.asks(&CallSite::Point(*point));
        let rules = TenantRules {
            guarded: GuardedPoints::new(|point| plans.is_guarded(point)),
            asked: Point::ALL.into_iter().filter(asks).collect(),
            answer_way: plans.answer_way(),
            models: plans.models.as_deref(),
            limited_to: listed.and_then(|tenant| tenant.llm.models.clone()),
        };
        said.proxy = Some(explain::explain(llm, routes, rules));
    }
    said
}

fn point_report(plans: &TenantPlans, point: Point) -> PointReport {
    let site = CallSite::Point(point);
    let steps = plans.plan(point).steps.iter().map(|step| StepReport {
        binding: step.binding.to_string(),
        plugin: step.plugin_name.to_string(),
        version: step.written.version.as_deref().map(str::to_owned),
        mode: step.mode,
    });
    PointReport {
        point,
        is_guarded: plans.is_guarded(point),
        lacks_steps: plans.lacks_steps(&site),
        steps: steps.collect(),
        bypassed: plans.bypassed(&site).iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
#[path = "llm_tests.rs"]
mod tests;
