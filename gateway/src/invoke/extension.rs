//! The four extension points and the lifecycle hooks as types. Everything behind the edge is generic over
//! [`AgentCall`]; all differences between the points are in this file.

use std::sync::Arc;

use hookgate_proto::{
    HookName, HookNameError, SelectFields,
    gateway::v1 as gateway,
    plugin::v1 as plugin,
    types::v1::{
        AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
        BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Contribution,
        HookPayload, Notice,
    },
};
use prost::Message;

use crate::{
    core::{call_site::CallSite, point::Point},
    payload::Validate,
};

mod sealed {
    pub trait Sealed {}
}

/// One of the four points.
pub trait ExtensionPoint: AgentCall {
    /// The point as a value.
    const POINT: Point;
}

/// A point or the hooks, with the messages that belong to them.
pub trait AgentCall: sealed::Sealed + Send + Sync + 'static {
    /// What the agent is about to send, run or show; or what happened.
    type Payload: Message + Validate + SelectFields + Default + Clone + PartialEq + 'static;
    /// The changes that a plugin may make to the payload.
    type Patch: Message + Validate + Default;
    /// A plugin's reply.
    type Reply: Message + Default;
    /// An agent's request.
    type Request: Message + Validate + Default;
    /// The answer to the agent.
    type Response: Message + Default;

    /// The point; `None` for the hooks, whose names are in their payloads.
    fn point() -> Option<Point>;

    /// Where plugins are called with `payload`.
    ///
    /// # Errors
    /// The payload doesn't name a hook.
    fn site(payload: &Self::Payload) -> Result<CallSite, HookNameError>;

    fn request_parts(request: Self::Request) -> RequestParts<Self::Payload>;

    fn reply_parts(reply: Self::Reply) -> ReplyParts<Self::Patch>;

    fn response(parts: ResponseParts<Self::Payload>) -> Self::Response;

    /// The names of the fields in `patch`.
    fn fields(patch: &Self::Patch) -> Vec<&'static str>;

    /// Applies each field in `patch` to `payload`.
    fn fold(payload: &mut Self::Payload, patch: Self::Patch);

    /// The values for match conditions and the log.
    fn subject(payload: &Self::Payload) -> PayloadSubject<'_>;
}

/// An agent's request, taken apart.
pub struct RequestParts<Payload> {
    /// What the agent says about its call.
    pub context: gateway::RequestContext,
    /// `None` violates the contract.
    pub payload: Option<Payload>,
    /// The digest of the plan that the agent expects.
    pub expect_plan_digest: Option<String>,
    /// Whether the agent asked for the changes of each step.
    pub trace: bool,
    /// Whether the agent takes a tool's result from a plugin.
    pub takes_results: bool,
}

/// A plugin's reply, taken apart.
pub struct ReplyParts<Patch> {
    /// `None` is a bad reply.
    pub verdict: Option<Verdict>,
    /// The changes to the payload.
    pub modify: Option<Patch>,
    pub notices: Vec<Notice>,
    /// Always empty at points.
    pub contributions: Vec<Contribution>,
    /// In a window: how many characters of the text it is about; absent means all.
    pub consumed: Option<u32>,
}

pub enum Verdict {
    Continue,
    Cancel(plugin::Cancel),
}

/// The parts of an answer to the agent.
pub struct ResponseParts<Payload> {
    /// The payload as the chain left it.
    pub payload: Arc<Payload>,
    /// Whether a plugin changed it.
    pub modified: bool,
    /// Present if a plugin blocked.
    pub block: Option<gateway::Block>,
    /// Present if a plugin gave the tool's result.
    pub result: Option<bytes::Bytes>,
    /// In the order of the chain; always empty at points.
    pub contributions: Vec<gateway::PluginContribution>,
    /// In the order of the chain.
    pub notices: Vec<gateway::PluginNotice>,
    /// In the order of the chain.
    pub steps: Vec<gateway::Step>,
    /// The digest of the plan that ran.
    pub plan_digest: String,
    /// The revision of the routing table.
    pub revision: u64,
    /// The gateway's id of the invocation.
    pub request_id: String,
}

/// The values in a payload for match conditions and the log; `None` if the point or the payload lacks one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PayloadSubject<'a> {
    /// The tool's name.
    pub tool: Option<&'a str>,
    /// The user's text, or the answer's.
    pub text: Option<&'a str>,
    /// The model that answered.
    pub model: Option<&'a str>,
    /// The agent's id of the tool call.
    pub call_id: Option<&'a str>,
}

/// A field of a patch, which may be absent.
trait PatchField {
    fn is_present(&self) -> bool;
}

impl PatchField for Option<String> {
    fn is_present(&self) -> bool {
        self.is_some()
    }
}

impl PatchField for Option<bytes::Bytes> {
    /// Empty bytes for a JSON value mean that it is absent (docs/protocol.md, section 1).
    fn is_present(&self) -> bool {
        self.as_ref().is_some_and(|json| !json.is_empty())
    }
}

impl PatchField for Option<hookgate_proto::types::v1::MediaList> {
    fn is_present(&self) -> bool {
        self.is_some()
    }
}

macro_rules! extension_point {
    (
        $(#[$doc:meta])* $name:ident: $payload:ident, $patch:ident, $request:ident, $response:ident,
        subject: |$seen:ident| $subject:expr,
        fold: |$target:ident| { $($field:ident => $apply:expr,)+ }
        $(, results: $takes_results:ident => $result:ident)?
        $(, windows: $consumed:ident)?
    ) => {
        $(#[$doc])*
        pub struct $name;

        impl sealed::Sealed for $name {}

        impl ExtensionPoint for $name {
            const POINT: Point = Point::$name;
        }

        impl AgentCall for $name {
            type Payload = $payload;
            type Patch = $patch;
            type Reply = plugin::$response;
            type Request = gateway::$request;
            type Response = gateway::$response;

            fn point() -> Option<Point> {
                Some(Point::$name)
            }

            fn site(_: &$payload) -> Result<CallSite, HookNameError> {
                Ok(CallSite::Point(Point::$name))
            }

            fn request_parts(request: Self::Request) -> RequestParts<$payload> {
                RequestParts {
                    takes_results: false $(| request.$takes_results)?,
                    context: request.context.unwrap_or_default(),
                    payload: request.payload,
                    expect_plan_digest: request.expect_plan_digest,
                    trace: request.trace,
                }
            }

            fn reply_parts(reply: Self::Reply) -> ReplyParts<$patch> {
                ReplyParts {
                    verdict: reply.verdict.map(Verdict::from),
                    modify: reply.modify,
                    notices: reply.notices,
                    contributions: Vec::new(),
                    consumed: None$(.or(reply.$consumed))?,
                }
            }

            fn response(parts: ResponseParts<$payload>) -> Self::Response {
                use hookgate_proto::types::v1::Decision;
                let decision = match (&parts.block, &parts.result) {
                    (Some(_), _) => Decision::Block,
                    (None, Some(_)) => Decision::Answer,
                    (None, None) => Decision::Continue,
                };
                gateway::$response {
                    decision: decision.into(),
                    payload: Some(Arc::unwrap_or_clone(parts.payload)),
                    modified: parts.modified,
                    block: parts.block,
                    $($result: parts.result.unwrap_or_default(),)?
                    notices: parts.notices,
                    steps: parts.steps,
                    plan_digest: parts.plan_digest,
                    revision: parts.revision,
                    request_id: parts.request_id,
                }
            }

            fn fields(patch: &$patch) -> Vec<&'static str> {
                let mut fields = Vec::new();
                $(if patch.$field.is_present() { fields.push(stringify!($field)); })+
                fields
            }

            fn fold($target: &mut $payload, patch: $patch) {
                $(if patch.$field.is_present() && let Some(value) = patch.$field { ($apply)(value); })+
            }

            fn subject($seen: &$payload) -> PayloadSubject<'_> {
                $subject
            }
        }
    };
}

macro_rules! verdict_from {
    ($($module:ident),+) => {
        $(impl From<plugin::$module::Verdict> for Verdict {
            fn from(verdict: plugin::$module::Verdict) -> Self {
                match verdict {
                    plugin::$module::Verdict::Continue(plugin::Continue {}) => Verdict::Continue,
                    plugin::$module::Verdict::Cancel(cancel) => Verdict::Cancel(cancel),
                }
            }
        })+
    };
}

verdict_from!(
    before_llm_request_response,
    before_tool_call_response,
    after_tool_result_response,
    before_response_response
);

extension_point! {
    /// The agent is about to send user input to a model.
    BeforeLlmRequest: BeforeLlmRequestPayload, BeforeLlmRequestPatch, BeforeLlmRequestRequest, BeforeLlmRequestResponse,
    subject: |payload| PayloadSubject { text: Some(&payload.text), ..PayloadSubject::default() },
    fold: |payload| {
        text => |value| payload.text = value,
        images => |list: hookgate_proto::types::v1::MediaList| payload.images = list.items,
        files => |list: hookgate_proto::types::v1::MediaList| payload.files = list.items,
        system_prompt => |value| payload.system_prompt = Some(value),
        messages => |json| payload.messages = json,
        tools => |json| payload.tools = json,
        extra => |json| payload.extra = json,
    }
}

extension_point! {
    /// The agent is about to run a tool.
    BeforeToolCall: BeforeToolCallPayload, BeforeToolCallPatch, BeforeToolCallRequest, BeforeToolCallResponse,
    subject: |payload| PayloadSubject {
        tool: Some(&payload.tool_name),
        call_id: payload.call_id.as_deref(),
        ..PayloadSubject::default()
    },
    fold: |payload| {
        tool_name => |value| payload.tool_name = value,
        args => |json| payload.args = json,
        extra => |json| payload.extra = json,
    },
    results: takes_results => result
}

extension_point! {
    /// The agent is about to hand a tool's result, or its failure, back to the model.
    AfterToolResult: AfterToolResultPayload, AfterToolResultPatch, AfterToolResultRequest, AfterToolResultResponse,
    subject: |payload| PayloadSubject {
        tool: Some(&payload.tool_name),
        call_id: payload.call_id.as_deref(),
        ..PayloadSubject::default()
    },
    fold: |payload| {
        result => |json| payload.result = json,
        extra => |json| payload.extra = json,
    }
}

extension_point! {
    /// The agent is about to show the answer to the user.
    BeforeResponse: BeforeResponsePayload, BeforeResponsePatch, BeforeResponseRequest, BeforeResponseResponse,
    subject: |payload| PayloadSubject {
        text: Some(&payload.content),
        model: payload.model.as_deref(),
        ..PayloadSubject::default()
    },
    fold: |payload| {
        content => |value| payload.content = value,
        reasoning => |value| payload.reasoning = Some(value),
        extra => |json| payload.extra = json,
    },
    windows: consumed
}

/// Something happened in the agent's life. Plugins may contribute, and decide nothing.
pub struct Hook;

impl sealed::Sealed for Hook {}

impl AgentCall for Hook {
    type Payload = HookPayload;
    type Patch = ();
    type Reply = plugin::OnHookResponse;
    type Request = gateway::RunHookRequest;
    type Response = gateway::RunHookResponse;

    fn point() -> Option<Point> {
        None
    }

    fn site(payload: &HookPayload) -> Result<CallSite, HookNameError> {
        HookName::new(&payload.hook).map(CallSite::Hook)
    }

    fn request_parts(request: Self::Request) -> RequestParts<HookPayload> {
        RequestParts {
            context: request.context.unwrap_or_default(),
            payload: Some(HookPayload { hook: request.hook, body: request.body }),
            expect_plan_digest: request.expect_plan_digest,
            trace: false,
            takes_results: false,
        }
    }

    fn reply_parts(reply: Self::Reply) -> ReplyParts<()> {
        ReplyParts {
            verdict: Some(Verdict::Continue),
            modify: None,
            notices: reply.notices,
            contributions: reply.contributions,
            consumed: None,
        }
    }

    fn response(parts: ResponseParts<HookPayload>) -> Self::Response {
        gateway::RunHookResponse {
            contributions: parts.contributions,
            notices: parts.notices,
            steps: parts.steps,
            plan_digest: parts.plan_digest,
            revision: parts.revision,
            request_id: parts.request_id,
        }
    }

    fn fields((): &()) -> Vec<&'static str> {
        Vec::new()
    }

    fn fold(_: &mut HookPayload, (): ()) {}

    fn subject(_: &HookPayload) -> PayloadSubject<'_> {
        PayloadSubject::default()
    }
}
