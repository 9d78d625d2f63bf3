//! Calls Hookgate from an agent. [`Agent`] implements most of a caller's duties (docs/protocol.md, section
//! 4). The rest depends on the result of a call:
//!
//! - `Ok(Continue { payload, .. })`: go on **with this payload**, not with your own. If a person must
//!   approve the action, show them this one.
//! - `Err(AgentError::Blocked(..))`: stop the action, and never retry it. Before a tool call: don't run the
//!   tool, give the model the message as a tool error, and don't call `after_tool_result`. After a tool
//!   result: the message replaces the result; the tool is not run again, and your own error still applies.
//!   Before the response: the message replaces the content.
//! - `Err(AgentError::NoDecision(..))`: stop. If an outage may be ignored at a point, say so with
//!   [`Agent::on_no_decision`]; the result is then `Ok`, with your own payload and the reason in
//!   `no_decision`. If a plugin is to blame, [`CallError`] names its step and contains the steps that ran.
//!
//! Plugins may provide tools: [`Agent::list_tools`] lists them, and [`Agent::before_tool_call_or_result`] has a plugin run
//! its own.
//!
//! A lifecycle hook decides nothing: [`Agent::run_hook`] tells plugins what happened, and gathers what they contribute.
//!
//! ```no_run
//! # use std::time::Duration;
//! use hookgate_sdk::{BeforeToolCallPayload, agent::{Agent, AgentError, Claims, Signer}};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let claims = Claims {
//!     issuer: "https://id.example.com".into(),
//!     audience: "hookgate".into(),
//!     tenant: "acme".into(),
//!     operator: "support-bot".into(),
//! };
//! let agent = Agent::new("http://127.0.0.1:8080", Signer::hs256(&std::fs::read("jwt.key")?, claims)?)?
//!     .with_timeout(Duration::from_secs(5));
//! let call = BeforeToolCallPayload { tool_name: "fs.read".into(), args: r#"{"path":"/a"}"#.into(), ..Default::default() };
//! match agent.before_tool_call(call).await {
//!     Ok(go) => println!("run {} with {:?}", go.payload.tool_name, go.payload.args),
//!     Err(AgentError::Blocked(block)) => println!("tell the model: {}", block.message),
//!     Err(AgentError::NoDecision(outage)) => return Err(outage.into()),
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod hook;
mod token;
mod tools;
mod wire;

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Request, Status, transport::Channel};

use hookgate_proto::gateway::v1 as messages;
pub use hookgate_proto::gateway::v1::{
    ListToolsResponse, ListedTool, PluginNotice, RequestContext, Step, StepOutcome, StepReason,
};

use self::wire::{AfterToolResult, AgentCall, AgentPoint, BeforeLlmRequest, BeforeResponse, BeforeToolCall};
use crate::{
    Address, AddressError, AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload,
    BeforeToolCallPayload, Context, Point, context::ForwardedMetadata,
};

pub use answer::{
    AgentError, AnswerFacts, BlockedCall, CallError, Continue, NoDecision, Payload, Scope, ToolCallDecision,
    ToolResult,
};
pub use hook::{HookAnswer, HookError, PluginContribution};
pub use token::{Claims, Signer, Token, TokenError};

/// The gateway's default budget for an invocation; by default, waiting longer is useless.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do at a point when no decision could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnNoDecision {
    /// Raise [`NoDecision`]: the action must not go on.
    #[default]
    Stop,
    /// Go on with the caller's own payload if a later call may succeed ([`CallError::is_transient`]). An error that the
    /// request can cause still stops: who ignores an outage must not be brought to ignore a rule.
    GoOn,
}

/// An agent's connection to a gateway, cheap to clone. Methods that begin with `with_` give a changed copy over
/// the same connection.
#[derive(Debug, Clone)]
pub struct Agent {
    channel: Channel,
    token: Token,
    timeout: Duration,
    until: Option<Instant>,
    on_no_decision: [OnNoDecision; Point::ALL.len()],
    context: RequestContext,
    plan: Option<String>,
    trace: bool,
    forwarded: ForwardedMetadata,
}

impl Agent {
    /// An agent of the gateway at `http://host:port` or `unix:///path`. Connects with the first call, and again
    /// after a lost connection. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the address can't be read.
    pub fn new(gateway: &str, token: impl Into<Token>) -> Result<Self, AddressError> {
        let address: Address = gateway.parse()?;
        let endpoint = Channel::from_shared(address.to_string()).map_err(|_| AddressError::new(gateway))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        Ok(Agent {
            channel: endpoint.connect_lazy(),
            token: token.into(),
            timeout: DEFAULT_TIMEOUT,
            until: None,
            on_no_decision: Default::default(),
            context: RequestContext::default(),
            plan: None,
            trace: false,
            forwarded: ForwardedMetadata::default(),
        })
    }

    /// Waits this long for an answer; the gateway is told. The default is 15 s.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends this with each call: session, run, agent, model, labels.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.context = context;
        self
    }

    /// Accepts only answers of the plan that an earlier answer named. Use it to resume a paused run.
    #[must_use]
    pub fn with_plan(mut self, plan_digest: impl Into<String>) -> Self {
        self.plan = Some(plan_digest.into());
        self
    }

    /// Asks for the changes of each step: `answered.steps[].changes`, empty if the gateway doesn't reveal
    /// its steps. Meant for inspecting a chain; it makes answers larger.
    #[must_use]
    pub fn with_trace(mut self) -> Self {
        self.trace = true;
        self
    }

    /// For a plugin that itself calls a gateway: limits calls to the time that its caller has left, and
    /// forwards the trace context and the call depth, by which a gateway detects loops. With the cargo
    /// feature `otel`, the gateway's span becomes a child of the current OpenTelemetry span instead of the
    /// caller's.
    #[must_use]
    pub fn with_caller(mut self, ctx: &Context) -> Self {
        self.until = ctx.time_left().and_then(|left| Instant::now().checked_add(left));
        self.forwarded = ctx.forwarded.clone();
        self
    }

    /// Says what to do at a point when no decision could be made. The default is to stop.
    #[must_use]
    pub fn on_no_decision(mut self, point: Point, then: OnNoDecision) -> Self {
        self.on_no_decision[point as usize] = then;
        self
    }

    /// Call it before a model is asked.
    ///
    /// # Errors
    /// A block, or that no decision could be made.
    pub async fn before_llm_request(
        &self,
        payload: BeforeLlmRequestPayload,
    ) -> Result<Continue<BeforeLlmRequestPayload>, AgentError> {
        self.call::<BeforeLlmRequest>(payload).await
    }

    /// Call it before a tool runs.
    ///
    /// # Errors
    /// A block, or that no decision could be made.
    pub async fn before_tool_call(
        &self,
        payload: BeforeToolCallPayload,
    ) -> Result<Continue<BeforeToolCallPayload>, AgentError> {
        self.call::<BeforeToolCall>(payload).await
    }

    /// Like [`Self::before_tool_call`], for an agent that takes a tool's result from a plugin instead of running the tool.
    ///
    /// # Errors
    /// A block, or that no decision could be made.
    pub async fn before_tool_call_or_result(
        &self,
        payload: BeforeToolCallPayload,
    ) -> Result<ToolCallDecision, AgentError> {
        let own = self.own::<BeforeToolCall>(&payload);
        let request = messages::BeforeToolCallRequest {
            takes_results: true,
            ..self.request::<BeforeToolCall>(payload)
        };
        let answered = self.send::<BeforeToolCall>(request).await;
        decided::<BeforeToolCall, _>(answered, own, answer::read_tool_call, ToolCallDecision::Run)
    }

    /// Call it after a tool ran, on success and on failure; not for a tool whose call was blocked.
    ///
    /// # Errors
    /// A block, or that no decision could be made.
    pub async fn after_tool_result(
        &self,
        payload: AfterToolResultPayload,
    ) -> Result<Continue<AfterToolResultPayload>, AgentError> {
        self.call::<AfterToolResult>(payload).await
    }

    /// Call it before the answer is shown.
    ///
    /// # Errors
    /// A block, or that no decision could be made.
    pub async fn before_response(
        &self,
        payload: BeforeResponsePayload,
    ) -> Result<Continue<BeforeResponsePayload>, AgentError> {
        self.call::<BeforeResponse>(payload).await
    }

    async fn call<W: AgentPoint>(&self, payload: W::Payload) -> Result<Continue<W::Payload>, AgentError> {
        let own = self.own::<W>(&payload);
        let answered = self.send::<W>(self.request::<W>(payload)).await;
        decided::<W, _>(answered, own, answer::read::<W>, |go_on| go_on)
    }

    /// The payload to go on with during an outage.
    fn own<W: AgentPoint>(&self, payload: &W::Payload) -> Option<W::Payload> {
        match self.on_no_decision[W::POINT as usize] {
            OnNoDecision::Stop => None,
            OnNoDecision::GoOn => Some(payload.clone()),
        }
    }

    fn request<W: AgentPoint>(&self, payload: W::Payload) -> W::Request {
        W::request(self.context.clone(), payload, self.plan.clone(), self.trace)
    }

    /// Makes one call. A call is never sent twice.
    async fn send<W: AgentCall>(&self, message: W::Request) -> Result<W::Response, Status> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map_or(self.timeout, |left| left.min(self.timeout));
        let overdue = || Status::deadline_exceeded(format!("no answer from the gateway within {left:?}"));
        if left.is_zero() {
            return Err(overdue());
        }
        let mut request = Request::new(message);
        request.set_timeout(left);
        request.metadata_mut().insert("authorization", self.token.header());
        self.forwarded.add_to(request.metadata_mut());
        #[cfg(feature = "otel")]
        crate::telemetry::inject(request.metadata_mut());
        let began = Instant::now();
        match tokio::time::timeout(left, W::send(self.channel.clone(), request)).await {
            Err(_) => Err(overdue()),
            // tonic enforces the timeout too, and reports it as a cancellation.
            Ok(Err(status)) if status.code() == tonic::Code::Cancelled && began.elapsed() >= left => {
                Err(overdue())
            }
            Ok(answered) => answered.map(tonic::Response::into_inner),
        }
    }
}

/// What follows from the gateway's answer. `own` is the payload to go on with during an outage.
fn decided<W: AgentPoint, T>(
    answered: Result<W::Response, Status>,
    own: Option<W::Payload>,
    read: impl FnOnce(W::Response) -> Result<Result<T, BlockedCall>, Box<NoDecision>>,
    go_on: impl FnOnce(Continue<W::Payload>) -> T,
) -> Result<T, AgentError> {
    let no_decision = match answered {
        Ok(response) => match read(response) {
            Ok(decision) => return decision.map_err(|blocked| AgentError::Blocked(Box::new(blocked))),
            Err(no_decision) => no_decision,
        },
        Err(status) => Box::new(NoDecision::from_status(W::POINT, &status)),
    };
    match own {
        Some(payload) if no_decision.error.is_transient() => {
            Ok(go_on(Continue::without_decision(payload, *no_decision)))
        }
        _ => Err(AgentError::NoDecision(no_decision)),
    }
}

#[cfg(test)]
mod tests;
