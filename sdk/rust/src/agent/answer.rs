//! The gateway's answers at points as an agent sees them: continue, a block, or no decision; and its errors. Only decodes
//! messages.

use std::time::Duration;

use bytes::Bytes;
use hookgate_proto::{
    gateway::v1::{BeforeToolCallResponse, Block, ChainReport, PluginNotice, Step},
    types::v1::{CancelScope, Decision},
};
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{StatusExt, pb::Status as RpcStatus};

use super::wire::{AgentPoint, BeforeToolCall, ParsedAnswer};
use crate::{
    AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload, Point,
};

/// The domain of the gateway's error codes in `google.rpc.ErrorInfo`.
const ERROR_DOMAIN: &str = "hookgate";
/// The type of the error detail that contains the chain's steps.
const CHAIN_REPORT_TYPE: &str = "type.googleapis.com/hookgate.gateway.v1.ChainReport";

/// Go on, with this payload.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Continue<P> {
    /// The payload as the chain left it: use it, not your own.
    pub payload: P,
    /// Whether a plugin changed it.
    pub modified: bool,
    /// The plugins' notices, in the order of the chain.
    pub notices: Vec<PluginNotice>,
    /// Facts about the answer.
    pub answered: AnswerFacts,
    /// Why there was no decision, if the agent was told to go on without one; the payload is then the
    /// agent's own.
    pub no_decision: Option<NoDecision>,
}

impl<P> Continue<P> {
    pub(super) fn without_decision(payload: P, why: NoDecision) -> Self {
        let answered = AnswerFacts::default();
        Continue { payload, modified: false, notices: Vec::new(), answered, no_decision: Some(why) }
    }
}

/// What to do before a tool call.
#[derive(Debug, Clone)]
pub enum ToolCallDecision {
    /// Run the tool, with this payload.
    Run(Continue<BeforeToolCallPayload>),
    /// Don't run the tool: a plugin gave its result.
    Answered(ToolResult),
}

/// A tool's result by a plugin. Go on with it as if the tool had run: `after_tool_result` follows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolResult {
    /// A JSON value.
    pub result: Bytes,
    /// The payload as the chain left it.
    pub payload: BeforeToolCallPayload,
    /// The plugins' notices, in the order of the chain.
    pub notices: Vec<PluginNotice>,
    /// Facts about the answer.
    pub answered: AnswerFacts,
}

/// Facts about an answer, for logs and for `Agent::with_plan`.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AnswerFacts {
    /// The gateway's id of this invocation.
    pub request_id: String,
    /// The digest of the plan that ran.
    pub plan_digest: String,
    /// The revision of the routing table.
    pub revision: u64,
    /// What happened at each step; empty if the gateway doesn't reveal it.
    pub steps: Vec<Step>,
}

/// Why the action must not go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    /// A plugin blocked the action. Never retry it.
    #[error(transparent)]
    Blocked(Box<BlockedCall>),
    /// There is no decision because of an error, a timeout or an unreachable gateway.
    #[error(transparent)]
    NoDecision(Box<NoDecision>),
}

/// A plugin stopped the action.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct BlockedCall {
    /// The point of the call.
    pub point: Point,
    /// Machine-readable reason, such as `TOOL_NOT_ALLOWED`.
    pub code: String,
    /// For the user, or for the model as a tool error.
    pub message: String,
    /// This one action, or the whole run.
    pub scope: Scope,
    /// When it makes sense to try again.
    pub retry_after: Option<Duration>,
    /// The plugin, if the gateway reveals it.
    pub plugin: Option<String>,
    /// The binding that put it into the chain, if the gateway reveals it.
    pub binding: Option<String>,
    /// The payload as the chain left it.
    pub payload: Payload,
    /// The plugins' notices, in the order of the chain.
    pub notices: Vec<PluginNotice>,
    /// Facts about the answer.
    pub answered: AnswerFacts,
}

/// How far a block reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This one action: tell the model and go on.
    Step,
    /// The whole run: end it.
    Run,
}

/// A payload of any point.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // named like their points
pub enum Payload {
    BeforeLlmRequest(BeforeLlmRequestPayload),
    BeforeToolCall(BeforeToolCallPayload),
    AfterToolResult(AfterToolResultPayload),
    BeforeResponse(BeforeResponsePayload),
}

/// No decision could be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no decision at {point}: {error}")]
#[non_exhaustive]
pub struct NoDecision {
    /// The point of the call.
    pub point: Point,
    /// Why.
    pub error: CallError,
}

impl NoDecision {
    pub(super) fn from_status(point: Point, status: &Status) -> Self {
        NoDecision { point, error: CallError::from_status(status) }
    }

    fn bad_answer(point: Point, message: &str) -> Box<Self> {
        Box::new(NoDecision::from_status(point, &Status::internal(message)))
    }
}

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} {message}", code.as_deref().unwrap_or("(no code)"))]
#[non_exhaustive]
pub struct CallError {
    /// The gateway's error code, such as `PLUGIN_TIMEOUT`; `None` if the gateway did not answer.
    pub code: Option<String>,
    /// The gRPC status.
    pub status: Code,
    /// One sentence.
    pub message: String,
    /// When to try again, if the gateway says so.
    pub retry_after: Option<Duration>,
    /// What is wrong with the request: JSON pointer and sentence.
    pub violations: Vec<(String, String)>,
    /// The plugin of the step that ended the chain, if a step did and the gateway reveals it. The same
    /// holds for the next fields.
    pub plugin: Option<String>,
    /// The binding that put it into the chain.
    pub binding: Option<String>,
    /// Why that step failed, such as `timeout` or `breaker_open`.
    pub reason: Option<String>,
    /// What happened at each step; the one that ended the chain is `FAILED`. Empty if the gateway doesn't
    /// reveal it.
    pub steps: Vec<Step>,
    /// How many steps of a long chain are omitted before the first of `steps`.
    pub omitted_steps: u32,
}

impl CallError {
    pub(super) fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        let metadata = |key: &str| info.and_then(|info| info.metadata.get(key)).cloned();
        let ChainReport { steps, omitted_steps } = chain_report(status).unwrap_or_default();
        CallError {
            code: info.map(|info| info.reason.clone()),
            status: status.code(),
            message: status.message().to_owned(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
            violations: violations.iter().map(|bad| (bad.field.clone(), bad.description.clone())).collect(),
            plugin: metadata("plugin"),
            binding: metadata("binding"),
            reason: metadata("step_reason"),
            steps,
            omitted_steps,
        }
    }

    /// Whether the same call may succeed later. Trying again runs the plugins again.
    pub fn is_transient(&self) -> bool {
        match self.code.as_deref() {
            Some(code) => matches!(
                code,
                "OVERLOADED"
                    | "DRAINING"
                    | "STORE_UNAVAILABLE"
                    | "RECORD_UNAVAILABLE"
                    | "PLUGIN_UNAVAILABLE"
                    | "PLUGIN_TIMEOUT"
                    | "BUDGET_EXHAUSTED"
                    | "TENANT_LIMITED"
            ),
            None => matches!(self.status, Code::Unavailable | Code::DeadlineExceeded),
        }
    }
}

/// The chain report in the details of an error.
fn chain_report(status: &Status) -> Option<ChainReport> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let report = details.iter().find(|detail| detail.type_url == CHAIN_REPORT_TYPE)?;
    ChainReport::decode(&*report.value).ok()
}

/// Reads an answer. An answer without a decision is a [`NoDecision`].
pub(super) fn read<W: AgentPoint>(
    response: W::Response,
) -> Result<Result<Continue<W::Payload>, BlockedCall>, Box<NoDecision>> {
    let ParsedAnswer { decision, payload, modified, block, notices, answered } = W::open(response);
    let Some(payload) = payload else {
        return Err(NoDecision::bad_answer(W::POINT, "the gateway's answer holds no payload"));
    };
    match (decision, block) {
        (Decision::Continue, None) => {
            Ok(Ok(Continue { payload, modified, notices, answered, no_decision: None }))
        }
        (Decision::Block, block) => {
            Ok(Err(blocked(W::POINT, block.unwrap_or_default(), W::any(payload), notices, answered)))
        }
        (Decision::Continue, Some(_)) => {
            Err(NoDecision::bad_answer(W::POINT, "the gateway's answer both continues and blocks"))
        }
        (Decision::Answer, _) => {
            Err(NoDecision::bad_answer(W::POINT, "the gateway's answer is a result that was not asked for"))
        }
        (Decision::Unspecified, _) => {
            Err(NoDecision::bad_answer(W::POINT, "the gateway's answer holds no decision"))
        }
    }
}

/// Reads an answer to an agent that takes results.
pub(super) fn read_tool_call(
    mut response: BeforeToolCallResponse,
) -> Result<Result<ToolCallDecision, BlockedCall>, Box<NoDecision>> {
    if response.decision() != Decision::Answer {
        if !response.result.is_empty() {
            let message = "the gateway's answer has a result, and isn't an answer with one";
            return Err(NoDecision::bad_answer(Point::BeforeToolCall, message));
        }
        return Ok(match read::<BeforeToolCall>(response)? {
            Ok(go_on) => Ok(ToolCallDecision::Run(go_on)),
            Err(block) => Err(block),
        });
    }
    let result = std::mem::take(&mut response.result);
    let ParsedAnswer { payload, block, notices, answered, .. } = BeforeToolCall::open(response);
    match (payload, block) {
        (Some(payload), None) if !result.is_empty() => {
            Ok(Ok(ToolCallDecision::Answered(ToolResult { result, payload, notices, answered })))
        }
        _ => Err(NoDecision::bad_answer(Point::BeforeToolCall, "the gateway's answer holds no result")),
    }
}

fn blocked(
    point: Point,
    block: Block,
    payload: Payload,
    notices: Vec<PluginNotice>,
    answered: AnswerFacts,
) -> BlockedCall {
    let scope = match block.scope() {
        CancelScope::Run => Scope::Run,
        CancelScope::Step | CancelScope::Unspecified => Scope::Step,
    };
    BlockedCall {
        point,
        code: block.code,
        message: block.message,
        scope,
        retry_after: block.retry_after_ms.map(Duration::from_millis),
        plugin: block.plugin,
        binding: block.binding,
        payload,
        notices,
        answered,
    }
}
