//! Runs a tenant's chain of plugins over one payload.
//!
//! The four extension points and the hooks are types ([`AgentCall`]), and everything is generic over them. [`chain`]
//! runs the steps, [`reply`] reads plugins' replies, [`decide`] decides what follows from a step, and
//! [`budget`] computes times. This module knows nothing of HTTP, tokens or metrics.

use std::{sync::Arc, time::Duration};

use hookgate_proto::plugin::v1 as wire;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    core::{
        call_site::CallSite,
        context::CallContext,
        error::{Code, Error},
        failure::Failure,
    },
    routing::{RouteTable, Step, TenantPlans},
    upstream::{CallMeta, PluginClient, PluginReply},
};

pub mod budget;
pub mod chain;
#[cfg(test)]
mod chain_tests;
mod contribution;
pub mod decide;
pub mod explain;
mod extension;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod hook_tests;
mod observe;
mod outcome;
mod precheck;
mod progress;
pub mod reply;
#[cfg(test)]
mod reply_tests;
#[cfg(test)]
mod scripted;
mod step_runner;
mod windows;

pub use budget::Budget;
pub use chain::{Chain, Plugins};
pub use extension::{
    AfterToolResult, AgentCall, BeforeLlmRequest, BeforeResponse, BeforeToolCall, ExtensionPoint, Hook,
    PayloadSubject, ReplyParts, RequestParts, ResponseParts, Verdict,
};
pub use observe::{Observation, ObserverSink};
pub use outcome::{
    Block, ChainDecision, ChainOutcome, PayloadChange, PluginContribution, Remark, StepReport, ToolAnswer,
};
pub use reply::ReplyLimits;
pub use windows::{PassedText, WindowChain};

/// A routing table, and the plugins that its steps name by index.
pub struct Routes {
    /// The tenants and their plans.
    pub table: RouteTable,
    /// The plugins, in the order of the configuration.
    pub clients: Vec<Arc<PluginClient>>,
    /// The limits of replies.
    pub replies: ReplyLimits,
    /// Receives the results of observers.
    pub observed: Arc<dyn ObserverSink>,
    /// Cancelled when the calls in flight are given up.
    pub abort: CancellationToken,
}

pub struct Invoker {
    routes: Routes,
    budget: Duration,
}

impl Invoker {
    /// An invoker that gives each invocation at most `budget`.
    pub fn new(routes: Routes, budget: Duration) -> Self {
        Invoker { routes, budget }
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The budget of a call received at `received` whose caller waits until `deadline`.
    pub fn budget(&self, received: Instant, deadline: Option<Instant>) -> Budget {
        Budget::new(self.budget, received, deadline)
    }

    /// Runs the tenant's chain at the context's site over `payload`. If the future is dropped, the steps so far go to
    /// `broken_off`, and the current one is reported as `cancelled_by_caller`.
    ///
    /// # Errors
    /// PLAN_CHANGED if the caller expects another plan, STEPS_REQUIRED if the tenant requires a step and the
    /// plan has none. If the chain can't decide, that is not an error
    /// here: the error is in [`ChainOutcome`], beside the reports of the steps.
    pub async fn run<P: AgentCall>(
        &self,
        tenant: &TenantPlans,
        ctx: &CallContext,
        payload: P::Payload,
        expected_digest: Option<&str>,
        broken_off: &mut Vec<StepReport>,
    ) -> Result<ChainOutcome<P>, Error> {
        let site = &ctx.site;
        let plan = tenant.plan_at(site);
        if expected_digest.is_some_and(|expected| expected != &*plan.digest) {
            return Err(Error::new(Code::PlanChanged, "The plan no longer matches `expect_plan_digest`"));
        }
        check_steps(tenant, site)?;
        let (budget, routes) = (self.budget(ctx.received, ctx.deadline), &self.routes);
        let chain = Chain::<P, _>::new(ctx, plan, routes, &routes.replies, budget, payload, broken_off);
        Ok(chain.run(routes.table.revision()).await)
    }
}

/// Refuses a call at `site` if the tenant requires a step there and the plan has none.
///
/// # Errors
/// STEPS_REQUIRED.
pub fn check_steps(tenant: &TenantPlans, site: &CallSite) -> Result<(), Error> {
    if !tenant.lacks_steps(site) {
        return Ok(());
    }
    let message = format!("The tenant requires a step at {site}, and its plan has none");
    Err(Error::new(Code::StepsRequired, message))
}

impl Invoker {
    /// A chain over an answer of `tenant` that still grows.
    pub fn windows<'a>(&'a self, tenant: &'a TenantPlans, ctx: CallContext) -> WindowChain<'a, Routes> {
        let plan = tenant.plan_at(&ctx.site);
        WindowChain::new(ctx, plan, &self.routes, &self.routes.replies, self.budget)
    }
}

impl Plugins for Routes {
    async fn call<P: AgentCall>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
        limit: Duration,
    ) -> Result<PluginReply, Failure> {
        let meta = meta(ctx, limit >= step.timeout);
        self.clients[step.plugin].call(ctx.site.clone(), call, payload, meta, limit).await
    }

    fn observe<P: AgentCall>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
    ) {
        observe::enqueue::<P>(self, step, &ctx.site, call, payload, meta(ctx, true));
    }

    fn is_abandoned(&self) -> bool {
        self.abort.is_cancelled()
    }
}

/// The metadata of a call within `ctx`. `whole`: the step has its full timeout.
fn meta(ctx: &CallContext, whole: bool) -> CallMeta {
    CallMeta { tenant: Arc::clone(&ctx.identity.tenant), depth: ctx.depth + 1, whole, trial: false }
}
