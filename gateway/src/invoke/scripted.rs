//! Chains of plugins that are closures, for tests under a paused clock.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::{
        self as wire, BeforeToolCallResponse, Cancel, Continue,
        before_tool_call_response::Verdict as WireVerdict,
    },
    types::v1::{BeforeToolCallPatch, BeforeToolCallPayload},
};
use prost::Message;
use tokio::time::Instant;

use super::*;
use crate::{
    core::{
        call_site::CallSite,
        context::{CallContext, Identity},
        failure::Failure,
        manifest::{Access, PointAccess, SideEffects},
        point::Point,
        step::{Mode, OnError, Reason, StepOutcome},
    },
    routing::{Conditions, Plan, Step, StepTemplate, form_groups},
    upstream::{PluginReply, ServingEndpoint},
};

/// Where the chains run.
pub(super) static SITE: CallSite = CallSite::Point(Point::BeforeToolCall);
pub(super) const FAIL: OnError = OnError::Fail;
pub(super) const SKIP: OnError = OnError::Skip;
pub(super) const LIMITS: ReplyLimits =
    ReplyLimits { request: 4096, notices: 16, notice_bytes: 8192, details_bytes: 4096 };

#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // there are few of them
pub(super) enum Script {
    Say(BeforeToolCallResponse),
    Fail(Reason),
    Hang(Reason),
}

#[derive(Default)]
pub(super) struct ScriptedPlugins {
    pub(super) scripts: HashMap<usize, Script>,
    /// How long each plugin takes; nothing without an entry.
    pub(super) delays: HashMap<usize, Duration>,
    /// The plugins that are called now. Each takes one call at a time and refuses others.
    pub(super) busy: Mutex<HashSet<usize>>,
    pub(super) called: Mutex<Vec<(usize, BeforeToolCallPayload, Duration)>>,
    pub(super) observed: Mutex<Vec<(usize, BeforeToolCallPayload, wire::ChainResult)>>,
    pub(super) given_up: bool,
}

pub(super) fn tool_call<P: AgentCall>(payload: &P::Payload) -> BeforeToolCallPayload {
    BeforeToolCallPayload::decode(payload.encode_to_vec().as_slice()).expect("the tests use one point")
}

/// A call of a plugin that takes one at a time.
struct BusyPlugin<'s>(&'s ScriptedPlugins, usize);

impl<'s> BusyPlugin<'s> {
    fn enter(plugins: &'s ScriptedPlugins, plugin: usize) -> Option<Self> {
        let is_free = plugins.busy.lock().expect("no panic").insert(plugin);
        is_free.then(|| BusyPlugin(plugins, plugin))
    }
}

impl Drop for BusyPlugin<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().expect("no panic").remove(&self.1);
    }
}

impl Plugins for ScriptedPlugins {
    async fn call<P: AgentCall>(
        &self,
        step: &Step,
        _call: wire::Call,
        payload: Arc<P::Payload>,
        _ctx: &CallContext,
        limit: Duration,
    ) -> Result<PluginReply, Failure> {
        self.called.lock().expect("no panic").push((step.plugin, tool_call::<P>(&payload), limit));
        let script = self.scripts[&step.plugin].clone();
        let Some(_busy) = BusyPlugin::enter(self, step.plugin) else {
            return Err(Failure::new(Reason::BulkheadFull, "it takes one call at a time"));
        };
        if let Some(delay) = self.delays.get(&step.plugin) {
            tokio::time::sleep(*delay).await;
        }
        match script {
            Script::Say(reply) => Ok(PluginReply {
                bytes: reply.encode_to_vec().into(),
                queue: Duration::ZERO,
                served: ServingEndpoint::default(),
            }),
            Script::Fail(reason) => Err(Failure::new(reason, "it was told to")),
            Script::Hang(reason) => {
                tokio::time::sleep(limit).await;
                Err(Failure::ran_out(reason, "it did not answer in time"))
            }
        }
    }

    fn observe<P: AgentCall>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        _ctx: &CallContext,
    ) {
        let seen = (step.plugin, tool_call::<P>(&payload), call.chain_result.expect("observers are told"));
        self.observed.lock().expect("no panic").push(seen);
    }

    fn is_abandoned(&self) -> bool {
        self.given_up
    }
}

#[derive(Default)]
pub(super) struct Setup {
    pub(super) plugins: ScriptedPlugins,
    pub(super) steps: Vec<Step>,
}

impl Setup {
    pub(super) fn step(mut self, mode: Mode, on_error: OnError, script: Script) -> Self {
        let plugin = self.steps.len();
        self.plugins.scripts.insert(plugin, script);
        let fixed = StepTemplate {
            plugin,
            plugin_name: format!("p{plugin}").into(),
            binding: format!("b{plugin}").into(),
            mode,
            on_error,
            timeout: Duration::from_secs(5),
            tenant_config: Bytes::from_static(b"{}"),
            tenant_config_digest: "d".into(),
            config_refused: None,
            writable: None,
            conditions: Conditions::default(),
            written: Arc::default(),
        };
        self.steps.push(Step {
            template: Arc::new(fixed),
            offer: Some(PointAccess::new(Access::Modify, SideEffects::Some)),
            not_offered: false,
            reserve: Duration::ZERO,
            group_len: 1,
        });
        self
    }

    /// Makes the last step's plugin one that reads, without side effects, and takes this long.
    pub(super) fn reads(mut self, delay: Duration) -> Self {
        let step = self.steps.last_mut().expect("there is a step");
        step.offer = Some(PointAccess::new(Access::Read, SideEffects::None));
        self.plugins.delays.insert(step.plugin, delay);
        self
    }

    /// Sets the steps' timeouts in order, and the reserves that follow from them.
    pub(super) fn timeouts(mut self, timeouts: &[Duration]) -> Self {
        for (step, timeout) in self.steps.iter_mut().zip(timeouts) {
            Arc::make_mut(&mut step.template).timeout = *timeout;
        }
        let mut reserve = Duration::ZERO;
        for step in self.steps.iter_mut().rev() {
            step.reserve = reserve;
            if step.on_error == OnError::Fail && step.mode != Mode::Observe {
                reserve += step.timeout;
            }
        }
        self
    }

    /// The plan, with its groups.
    pub(super) fn plan(&self) -> Plan {
        let mut steps = self.steps.clone();
        form_groups(&mut steps);
        Plan { steps, tools: None, digest: "digest".into() }
    }

    pub(super) async fn run(self) -> (ChainOutcome<BeforeToolCall>, ScriptedPlugins) {
        let (plan, ctx) = (self.plan(), context());
        let budget = Budget::new(Duration::from_secs(15), ctx.received, None);
        let mut broken_off = Vec::new();
        let (plugins, limits) = (&self.plugins, &LIMITS);
        let chain =
            Chain::<BeforeToolCall, _>::new(&ctx, &plan, plugins, limits, budget, payload(), &mut broken_off);
        let ended = chain.run(1).await;
        (ended, self.plugins)
    }
}

pub(super) fn context() -> CallContext {
    CallContext {
        site: SITE.clone(),
        identity: Arc::new(Identity {
            tenant: "acme".into(),
            operator: "ops".into(),
            user_id: None,
            claims: Default::default(),
        }),
        request_id: uuid::Uuid::now_v7(),
        correlation_id: None,
        request: Default::default(),
        received: Instant::now(),
        deadline: None,
        depth: 0,
        trace: false,
        takes_results: false,
        exchange: None,
    }
}

pub(super) fn payload() -> BeforeToolCallPayload {
    BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: Bytes::from_static(br#"{"n":9007199254740993,"x":null}"#),
        ..Default::default()
    }
}

pub(super) fn continues() -> Script {
    Script::Say(BeforeToolCallResponse {
        verdict: Some(WireVerdict::Continue(Continue {})),
        ..Default::default()
    })
}

pub(super) fn rename(tool: &str) -> Option<BeforeToolCallPatch> {
    Some(BeforeToolCallPatch { tool_name: Some(tool.into()), ..Default::default() })
}

pub(super) fn patches(tool: &str) -> Script {
    let verdict = Some(WireVerdict::Continue(Continue {}));
    Script::Say(BeforeToolCallResponse { verdict, modify: rename(tool), notices: vec![] })
}

pub(super) fn cancels(code: &str) -> BeforeToolCallResponse {
    let cancel = Cancel { code: code.into(), message: "no".into(), ..Default::default() };
    BeforeToolCallResponse { verdict: Some(WireVerdict::Cancel(cancel)), ..Default::default() }
}

pub(super) fn outcomes(ended: &ChainOutcome<BeforeToolCall>) -> Vec<StepOutcome> {
    ended.steps.iter().map(|step| step.outcome).collect()
}
