//! Runs one plan over one payload. It runs the steps in order, those of a group at the same time, and applies
//! what follows from each in order, until the plan ends or a step decides. Observers get their calls when the
//! chain is over, even if the caller went away.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::stream::{FuturesOrdered, StreamExt};
use hookgate_proto::{SelectFields as _, plugin::v1 as wire, types::v1::Decision};
use prost::Message;
use tokio::time::Instant;

use crate::{
    core::{
        call_site::CallSite,
        context::CallContext,
        error::{Code, Error},
        failure::Failure,
        step::Mode,
    },
    invoke::{
        AgentCall, ChainDecision, ChainOutcome, StepReport, budget::Budget, progress::ChainProgress,
        reply::ReplyLimits, step_runner::StepRunner,
    },
    routing::{Plan, Step, groups},
    upstream::PluginReply,
};

/// The maximum size of the copies of the payload that the calls of a group send, in bytes. Together with the
/// plugins' limits of calls in flight it bounds the memory that groups take beside `limits.bytes_in_flight`.
const MAX_GROUP_BYTES: usize = 1 << 20;

/// The maximum number of calls of a hook at the same time. It bounds the replies that wait for earlier ones.
const MAX_HOOK_CALLS: usize = 16;

/// The plugins behind a plan's steps. [`super::Invoker`] implements it for the gateway; the tests of the
/// chain have their own.
pub trait Plugins: Send + Sync {
    /// Calls the plugin of `step` and returns its undecoded reply.
    fn call<P: AgentCall>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
        limit: Duration,
    ) -> impl Future<Output = Result<PluginReply, Failure>> + Send;

    /// Enqueues the call for an observing plugin; never waits.
    fn observe<P: AgentCall>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        ctx: &CallContext,
    );

    /// Whether the gateway has given up its calls in flight.
    fn is_abandoned(&self) -> bool;
}

/// One run of a plan.
pub struct Chain<'a, P: AgentCall, C: Plugins> {
    plan: &'a Plan,
    runner: StepRunner<'a, P, C>,
    progress: ChainProgress<'a, P>,
    /// How the chain ended; `None` while it runs.
    end: Option<wire::ChainResult>,
    /// What observers are told instead.
    told_end: Option<Box<wire::ChainResult>>,
    /// Receives the steps of a run that is dropped before its end.
    broken_off: &'a mut Vec<StepReport>,
}

impl<'a, P: AgentCall, C: Plugins> Chain<'a, P, C> {
    /// A chain that has not started. If it is dropped before its end, its steps go to `broken_off`.
    pub fn new(
        ctx: &'a CallContext,
        plan: &'a Plan,
        plugins: &'a C,
        limits: &'a ReplyLimits,
        budget: Budget,
        payload: P::Payload,
        broken_off: &'a mut Vec<StepReport>,
    ) -> Self {
        let original = Arc::new(payload);
        let progress = ChainProgress::new(Arc::clone(&original), plan.steps.len(), limits.request, ctx.trace);
        let tool = plan.tools.as_ref().and_then(|tools| tools.route(P::subject(&original).tool?));
        let budget = tool.map_or(budget, |step| budget.with_tool_reserve(step.timeout));
        let runner =
            StepRunner { ctx, plugins, limits, budget, caller: OnceLock::new(), original, window: None };
        Chain { plan, runner, progress, end: None, told_end: None, broken_off }
    }

    /// The same chain over a part of an answer.
    pub(super) fn in_window(mut self, window: wire::ResponseWindow) -> Self {
        self.runner.window = Some(Box::new(window));
        self
    }

    /// The same chain, as a part of one that ended in this way.
    pub(super) fn ending_as(mut self, end: wire::ChainResult) -> Self {
        self.told_end = Some(Box::new(end));
        self
    }

    /// Runs the chain. Dropping the future means that the caller is gone: the current calls are cancelled and
    /// the observers get their calls.
    pub async fn run(mut self, revision: u64) -> ChainOutcome<P> {
        let result = match self.advance().await {
            Ok(ChainDecision::Continue) => self.run_tool().await,
            end => end,
        };
        for step in self.plan.steps.iter().skip(self.progress.steps.len()) {
            if step.mode == Mode::Observe {
                self.progress.observe(&self.runner, step);
            }
        }
        let told = self.told_end.take();
        self.end = Some(told.map_or_else(|| chain_result(&result, &self.runner.ctx.site), |told| *told));
        let progress = &mut self.progress;
        ChainOutcome {
            result,
            payload: Arc::clone(&progress.payload),
            modified: !Arc::ptr_eq(&progress.payload, &self.runner.original),
            contributions: std::mem::take(&mut progress.contributions),
            notices: std::mem::take(&mut progress.notices),
            steps: std::mem::take(&mut progress.steps),
            changes: std::mem::take(&mut progress.changes),
            consumed: progress.consumed,
            plan_digest: Arc::clone(&self.plan.digest),
            revision,
        }
    }

    async fn advance(&mut self) -> Result<ChainDecision, Error> {
        for group in groups(&self.plan.steps) {
            let mut left = group;
            while !left.is_empty() {
                let (steps, later) = left.split_at(self.steps_at_once(group, left));
                left = later;
                self.progress.begin_group();
                let end = match steps {
                    [step] if step.mode == Mode::Observe => {
                        self.progress.observe(&self.runner, step);
                        None
                    }
                    [step] => {
                        self.progress.asked = Some(Instant::now());
                        let went = self.runner.run(step, &self.progress.payload).await;
                        self.progress.settle(step, &self.runner.ctx.site, went)
                    }
                    steps => self.run_group(steps).await,
                };
                if let Some(end) = end {
                    return end;
                }
            }
        }
        Ok(ChainDecision::Continue)
    }

    /// Has the tool run by the plugin that provides it, if one does. Then the chain ends here, whatever the plugin says:
    /// the agent can't run the tool.
    async fn run_tool(&mut self) -> Result<ChainDecision, Error> {
        let payload = Arc::clone(&self.progress.payload);
        let tool = P::subject(&payload).tool.unwrap_or_default();
        let Some(step) = self.plan.tools.as_ref().and_then(|tools| tools.route(tool)) else {
            return Ok(ChainDecision::Continue);
        };
        self.progress.begin_tool(&step);
        let went = self.runner.run_tool(&step, &payload, tool).await;
        let end = self.progress.settle(&step, &self.runner.ctx.site, went);
        end.unwrap_or_else(|| Err(Error::new(Code::Internal, "the step of a tool did not end the chain")))
    }

    /// How many of the steps `left` of `group` run at the same time, each call with a copy of the payload. At a point that
    /// is all of them or one; at a hook as many as fit.
    fn steps_at_once(&self, group: &[Step], left: &[Step]) -> usize {
        let most = (MAX_GROUP_BYTES / self.progress.payload.encoded_len().max(1)).max(1);
        let calls = |steps: &[Step]| steps.iter().filter(|step| step.mode != Mode::Observe).count();
        match self.runner.ctx.site {
            // Its first step ran alone.
            CallSite::Point(_) if left.len() < group.len() => 1,
            CallSite::Point(_) if calls(group) > most && self.sent_bytes(group) > MAX_GROUP_BYTES => 1,
            CallSite::Point(_) => left.len(),
            CallSite::Hook(_) => calls_of_different_plugins(left, most.min(MAX_HOOK_CALLS)),
        }
    }

    /// The size of what the calls of `steps` send of the payload.
    fn sent_bytes(&self, steps: &[Step]) -> usize {
        let payload = &self.progress.payload;
        let sent = |step: &Step| match step.offer.and_then(|offer| offer.reads) {
            Some(fields) => payload.select_fields(fields).encoded_len(),
            None => payload.encoded_len(),
        };
        steps.iter().filter(|step| step.mode != Mode::Observe).map(sent).sum()
    }

    /// Runs the steps of `group` at the same time. Each result waits for those of the steps before it. When a
    /// step ends the chain, the remaining calls are cancelled.
    async fn run_group(&mut self, group: &'a [Step]) -> Option<Result<ChainDecision, Error>> {
        let payload = Arc::clone(&self.progress.payload);
        let started = Instant::now();
        let mut runs = FuturesOrdered::new();
        for step in group.iter().filter(|step| step.mode != Mode::Observe) {
            runs.push_back(self.runner.run(step, &payload));
        }
        for step in group {
            if step.mode == Mode::Observe {
                self.progress.observe(&self.runner, step);
                continue;
            }
            self.progress.asked = Some(started);
            let end = match runs.next().await {
                Some(went) => self.progress.settle(step, &self.runner.ctx.site, went),
                None => Some(Err(Error::new(Code::Internal, "a step of a group did not run"))),
            };
            if end.is_some() {
                return end;
            }
        }
        None
    }
}

impl<P: AgentCall, C: Plugins> Drop for Chain<'_, P, C> {
    /// Sends the observers their calls. It happens here so that it also happens when the caller goes away.
    fn drop(&mut self) {
        let Chain { plan, runner, progress, broken_off, end, .. } = self;
        let end = end.take().unwrap_or_else(|| {
            progress.break_off(runner, plan);
            **broken_off = std::mem::take(&mut progress.steps);
            let code = match runner.plugins.is_abandoned() {
                _ if std::thread::panicking() => Code::Internal,
                true => Code::Draining,
                false => Code::Cancelled,
            };
            wire::ChainResult { code: Some(code.as_str().into()), ..wire::ChainResult::default() }
        });
        for (step, payload) in std::mem::take(&mut progress.observers) {
            let message = runner.message(step, Some(end.clone()));
            runner.plugins.observe::<P>(step, message, payload, runner.ctx);
        }
    }
}

/// How many of `steps`, at least one, have at most `most` calls and never two of one plugin: two could fill its limit of
/// concurrent calls, which one after the other don't.
fn calls_of_different_plugins(steps: &[Step], most: usize) -> usize {
    let mut plugins = Vec::with_capacity(most);
    let end = steps.iter().position(|step| {
        let is_call = step.mode != Mode::Observe;
        let ends = is_call && (plugins.len() == most || plugins.contains(&step.plugin));
        if is_call {
            plugins.push(step.plugin);
        }
        ends
    });
    end.unwrap_or(steps.len())
}

pub(super) fn chain_result(result: &Result<ChainDecision, Error>, site: &CallSite) -> wire::ChainResult {
    let (decision, plugin, code) = match result {
        // A hook decides nothing.
        Ok(_) if site.hook().is_some() => (Decision::Unspecified, None, None),
        Ok(ChainDecision::Continue) => (Decision::Continue, None, None),
        Ok(ChainDecision::Block(block)) => {
            (Decision::Block, Some(block.plugin.to_string()), Some(block.code.clone()))
        }
        Ok(ChainDecision::Answer(answer)) => (Decision::Answer, Some(answer.plugin.to_string()), None),
        Err(error) => {
            let plugin = error.step.as_ref().map(|step| step.plugin.to_string());
            (Decision::Unspecified, plugin, Some(error.code.to_string()))
        }
    };
    wire::ChainResult { decision: decision.into(), plugin, code }
}
