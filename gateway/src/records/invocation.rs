//! Records one call from its headers to its decision: metrics, span and log line.

use std::{sync::Arc, time::Duration};

use opentelemetry::{
    Context, KeyValue,
    trace::{Status, TraceContextExt as _},
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    auth,
    core::{
        call_site::CallSite,
        context::{CallContext, Identity},
        error::{Code, Error, grpc_name},
        point::Point,
        step::{Mode, Reason, StepOutcome},
    },
    invoke::{AgentCall, Block, ChainDecision, ChainOutcome, Remark, StepReport, ToolAnswer},
    payload::known_hooks::KnownHook,
    records::log_line,
    routing::TenantPlans,
    telemetry::{
        Inner, Telemetry,
        names::{
            AT_HOOK, BINDING, CODE, CONVENTION_OTHER, DECISION, ERROR_TYPE, HOOK, MODE, OPERATOR, OTHER,
            OUTCOME, PLUGIN, POINT, REASON, REQUEST_ID, TENANT,
        },
        trace,
    },
};

/// What is known of a call so far. It outlives the work on the call, so that a call is recorded even if its
/// caller goes away.
#[derive(Debug, Default)]
pub struct CallFacts {
    /// Where plugins are called; `None` for a hook whose name was not read yet.
    pub site: Option<CallSite>,
    /// The caller's own id, if its header was readable.
    pub correlation_id: Option<String>,
    /// Why the caller was rejected.
    pub refused: Option<auth::RefusalReason>,
    /// The verified caller.
    pub identity: Option<Arc<Identity>>,
    /// The context, including what the caller says about itself.
    pub ctx: Option<CallContext>,
    /// The tool's name in the original request.
    pub tool: Option<String>,
    /// The agent's id of the tool call.
    pub call_id: Option<String>,
    /// The plan's digest and the routing table's revision.
    pub plan: Option<(Arc<str>, u64)>,
    /// Whether the tenant has a binding where plugins are called, bypassed or not.
    pub is_bound: bool,
    /// The tenant's plans, if a bypass removed something from them.
    pub bypassed: Option<TenantPlans>,
    /// The steps of a chain that ended early because the caller went away.
    pub broken_off: Vec<StepReport>,
}

impl CallFacts {
    /// Notes what `payload` says of itself, and the plan of `tenant` at `site`.
    pub(crate) fn describe<P: AgentCall>(
        &mut self,
        payload: &P::Payload,
        site: &CallSite,
        tenant: &TenantPlans,
        revision: u64,
    ) {
        let subject = P::subject(payload);
        self.tool = subject.tool.map(str::to_owned);
        self.call_id = subject.call_id.map(str::to_owned);
        let (plan, is_bypassed) = (tenant.plan_at(site), !tenant.bypassed(site).is_empty());
        self.plan = Some((Arc::clone(&plan.digest), revision));
        self.is_bound = is_bypassed || !plan.steps.is_empty();
        self.bypassed = is_bypassed.then(|| tenant.clone());
    }
}

/// How an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Continue,
    Block,
    Answer,
    Error,
    Cancelled,
}

impl Decision {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Decision::Continue => "continue",
            Decision::Block => "block",
            Decision::Answer => "answer",
            Decision::Error => "error",
            Decision::Cancelled => "cancelled",
        }
    }
}

/// The end of an invocation, independent of its point.
pub(crate) struct InvocationEnd<'a> {
    pub(crate) decision: Decision,
    /// The HTTP status of the answer, also for gRPC.
    pub(crate) status: u16,
    pub(crate) block: Option<&'a Block>,
    pub(crate) answer: Option<&'a ToolAnswer>,
    pub(crate) error: Option<&'a Error>,
    pub(crate) steps: &'a [StepReport],
    pub(crate) notices: &'a [Remark],
    pub(crate) took: Duration,
}

impl<'a> InvocationEnd<'a> {
    fn new(decision: Decision, status: u16, took: Duration) -> Self {
        InvocationEnd {
            decision,
            status,
            block: None,
            answer: None,
            error: None,
            steps: &[],
            notices: &[],
            took,
        }
    }

    fn failed(error: &'a Error, took: Duration) -> Self {
        InvocationEnd { error: Some(error), ..InvocationEnd::new(Decision::Error, error.code.http(), took) }
    }

    /// The code of the error or of the block.
    pub(crate) fn code(&self) -> Option<&'a str> {
        let cancelled = (self.decision == Decision::Cancelled).then_some(Code::Cancelled.as_str());
        let error = self.error.map(|error| error.code.as_str());
        self.block.map(|block| block.code.as_str()).or(error).or(cancelled)
    }
}

/// A call in flight. If it is dropped without [`Invocation::ended`], its caller went away.
#[must_use = "dropped, it records that the caller went away"]
pub struct Invocation {
    inner: Arc<Inner>,
    request_id: Uuid,
    received: Instant,
    /// The context of the request's span.
    context: Context,
    is_ended: bool,
    /// What is known of it so far.
    pub facts: CallFacts,
}

impl Telemetry {
    /// Begins a call at `point`, or at a hook, whose headers arrived at `received`.
    pub fn invocation(&self, point: Option<Point>, request_id: Uuid, received: Instant) -> Invocation {
        Invocation {
            inner: Arc::clone(&self.0),
            request_id,
            received,
            context: Context::current(),
            is_ended: false,
            facts: CallFacts { site: point.map(CallSite::Point), ..CallFacts::default() },
        }
    }
}

impl Invocation {
    /// Records the end of the call. `status` returns the HTTP status of a block.
    pub fn ended<P: AgentCall>(
        mut self,
        result: &Result<ChainOutcome<P>, Error>,
        status: impl FnOnce(&Block) -> u16,
    ) {
        self.is_ended = true;
        let took = self.received.elapsed();
        let broken_off = std::mem::take(&mut self.facts.broken_off);
        let end = match result {
            Err(error) => InvocationEnd { steps: &broken_off, ..InvocationEnd::failed(error, took) },
            Ok(ended) => {
                let end = match &ended.result {
                    Err(error) => InvocationEnd::failed(error, took),
                    Ok(ChainDecision::Continue) => InvocationEnd::new(Decision::Continue, 200, took),
                    Ok(ChainDecision::Answer(answer)) => InvocationEnd {
                        answer: Some(answer),
                        ..InvocationEnd::new(Decision::Answer, 200, took)
                    },
                    Ok(ChainDecision::Block(block)) => InvocationEnd {
                        block: Some(block),
                        ..InvocationEnd::new(Decision::Block, status(block), took)
                    },
                };
                InvocationEnd { steps: &ended.steps, notices: &ended.notices, ..end }
            }
        };
        self.record(&end, result.is_ok());
    }

    /// Says that the call has lasted so long until now: not since it was received, because it also waited for a model.
    pub(crate) fn has_lasted(&mut self, took: Duration) {
        self.received = Instant::now().checked_sub(took).unwrap_or(self.received);
    }

    fn record(&self, end: &InvocationEnd<'_>, chain_ran: bool) {
        let tenant = self.facts.identity.as_ref().map(|identity| &identity.tenant);
        let (site, tenant) = (self.facts.site.as_ref(), self.inner.tenant_label(tenant));
        let measured = InvocationMetrics::new(&self.inner, site, self.facts.is_bound, tenant);
        measured.invocation(end, chain_ran);
        if let Some(plans) = &self.facts.bypassed {
            measured.bypassed(plans);
        }
        if let Some(reason) = self.facts.refused {
            let reason = KeyValue::new(REASON, reason.as_str());
            self.inner.instruments.auth_failures.add(1, &[reason]);
        }
        self.describe(end);
        let _current = self.context.clone().attach();
        log_line::write(&log_line::CallRecord {
            site,
            request_id: self.request_id,
            trace_id: trace::id(&self.context),
            facts: &self.facts,
            end,
            is_slow: end.took > self.inner.known.load().slow,
        });
    }

    /// Describes the outcome on the request's span.
    fn describe(&self, end: &InvocationEnd<'_>) {
        let span = self.context.span();
        if !span.is_recording() {
            return;
        }
        match &self.facts.site {
            Some(CallSite::Point(point)) => span.set_attribute(KeyValue::new(POINT, point.as_str())),
            Some(CallSite::Hook(hook)) => span.set_attribute(KeyValue::new(HOOK, hook.to_string())),
            None => {}
        }
        span.set_attribute(KeyValue::new(REQUEST_ID, self.request_id.to_string()));
        span.set_attribute(KeyValue::new(DECISION, end.decision.as_str()));
        if let Some(identity) = &self.facts.identity {
            span.set_attribute(KeyValue::new(TENANT, Arc::clone(&identity.tenant)));
            span.set_attribute(KeyValue::new(OPERATOR, Arc::clone(&identity.operator)));
        }
        if let Some(code) = end.code() {
            span.set_attribute(KeyValue::new(CODE, code.to_owned()));
        }
        if end.error.is_some_and(|error| error.code.http() >= 500) {
            let code = end.error.map_or(tonic::Code::Unknown, |error| error.code.grpc());
            span.set_status(Status::error(grpc_name(code)));
        }
    }
}

impl Drop for Invocation {
    fn drop(&mut self) {
        if !self.is_ended {
            let broken_off = std::mem::take(&mut self.facts.broken_off);
            let end =
                InvocationEnd::new(Decision::Cancelled, Code::Cancelled.http(), self.received.elapsed());
            self.record(&InvocationEnd { steps: &broken_off, ..end }, false);
        }
    }
}

/// The metrics of one invocation.
pub(crate) struct InvocationMetrics<'a> {
    inner: &'a Inner,
    site: Option<&'a CallSite>,
    /// The point's name, or [`AT_HOOK`].
    point: KeyValue,
    /// The hook's name.
    hook: Option<KeyValue>,
    /// The tenant's attribute, if the tenant has its own series.
    tenant: Option<KeyValue>,
}

impl<'a> InvocationMetrics<'a> {
    /// `is_bound`: the tenant has a binding there, so that an operator chose the name of the hook. A name that only an agent chose is
    /// no attribute, because each one would be a series.
    pub(crate) fn new(
        inner: &'a Inner,
        site: Option<&'a CallSite>,
        is_bound: bool,
        tenant: Option<KeyValue>,
    ) -> Self {
        let point = site.and_then(CallSite::point).map_or(AT_HOOK, Point::as_str);
        let hook = site.and_then(CallSite::hook).map(|hook| {
            let is_known = is_bound || KnownHook::named(hook.as_str()).is_some();
            if is_known {
                KeyValue::new(HOOK, hook.to_string())
            } else {
                KeyValue::new(HOOK, CONVENTION_OTHER)
            }
        });
        InvocationMetrics { inner, site, point: KeyValue::new(POINT, point), hook, tenant }
    }

    fn invocation(&self, end: &InvocationEnd<'_>, chain_ran: bool) {
        let instruments = &self.inner.instruments;
        let point = self.point.clone();
        let decision = KeyValue::new(DECISION, end.decision.as_str());
        let error = match end.decision {
            Decision::Error => end.error.map(|error| KeyValue::new(ERROR_TYPE, error.code.as_str())),
            Decision::Cancelled => Some(KeyValue::new(ERROR_TYPE, Code::Cancelled.as_str())),
            Decision::Continue | Decision::Block | Decision::Answer => None,
        };
        let attributes = self.attributes([point.clone(), decision].into_iter().chain(error));
        instruments.invocation.record(end.took.as_secs_f64(), &attributes);
        if chain_ran {
            let plugins: Duration = end.steps.iter().map(|step| step.added).sum();
            let own = end.took.saturating_sub(plugins);
            instruments.overhead.record(own.as_secs_f64(), &self.attributes([point.clone()]));
        }
        if let Some(block) = end.block {
            let known = self.inner.known.load().codes.get(block.code.as_str()).cloned();
            let code = known.map_or(KeyValue::new(CODE, OTHER), |code| KeyValue::new(CODE, code));
            let plugin = KeyValue::new(PLUGIN, Arc::clone(&block.plugin));
            instruments.blocks.add(1, &self.attributes([plugin, point.clone(), code]));
        }
        let out_of_time = end.error.is_some_and(|error| error.code == Code::BudgetExhausted)
            || end.steps.iter().any(|step| step.reason == Some(Reason::Budget));
        if out_of_time {
            instruments.budget_exhausted.add(1, &self.attributes([point]));
        }
        // Observers' steps are counted when their results are known.
        let own_steps = end.steps.iter().filter(|step| step.outcome != StepOutcome::Observed);
        own_steps.for_each(|step| self.step(step));
    }

    fn bypassed(&self, plans: &TenantPlans) {
        let bypassed = self.site.map_or(&[][..], |site| plans.bypassed(site));
        for binding in bypassed {
            let binding = KeyValue::new(BINDING, Arc::clone(binding));
            let attributes = self.attributes([self.point.clone(), binding]);
            self.inner.instruments.bypassed.add(1, &attributes);
        }
    }

    fn step(&self, step: &StepReport) {
        let instruments = &self.inner.instruments;
        self.outcome(&step.plugin, step.mode, step.outcome, step.reason, step.duration);
        let (plugin, point) = (KeyValue::new(PLUGIN, Arc::clone(&step.plugin)), self.point.clone());
        if step.failed_open {
            let reason = KeyValue::new(REASON, step.reason.map_or(OTHER, Reason::as_str));
            let attributes = self.attributes([plugin.clone(), point.clone(), reason]);
            instruments.failed_open.add(1, &attributes);
        }
        if !step.duration.is_zero() {
            instruments.plugin_queue.record(step.queue.as_secs_f64(), std::slice::from_ref(&plugin));
            let outcome = KeyValue::new(OUTCOME, step.outcome.as_str());
            let called = step.duration.saturating_sub(step.queue);
            let attributes = self.attributes([plugin, point, outcome]);
            instruments.plugin_call.record(called.as_secs_f64(), &attributes);
        }
    }

    /// Counts a step's outcome and duration. Also used for observers.
    pub(crate) fn outcome(
        &self,
        plugin: &Arc<str>,
        mode: Mode,
        outcome: StepOutcome,
        reason: Option<Reason>,
        took: Duration,
    ) {
        if let Some(site) = self.site {
            self.inner.known.load().tallies.add(plugin, site, outcome, took);
        }
        let instruments = &self.inner.instruments;
        let plugin = KeyValue::new(PLUGIN, Arc::clone(plugin));
        let point = self.point.clone();
        if outcome == StepOutcome::WouldBlock {
            let mode = KeyValue::new(MODE, mode.as_str());
            instruments.would_block.add(1, &self.attributes([plugin.clone(), point.clone(), mode]));
        }
        let reason = reason.map(|reason| KeyValue::new(REASON, reason.as_str()));
        let known = [plugin, point, KeyValue::new(OUTCOME, outcome.as_str())];
        instruments.steps.add(1, &self.attributes(known.into_iter().chain(reason)));
    }

    fn attributes(&self, known: impl IntoIterator<Item = KeyValue>) -> Vec<KeyValue> {
        known.into_iter().chain(self.hook.clone()).chain(self.tenant.clone()).collect()
    }
}
