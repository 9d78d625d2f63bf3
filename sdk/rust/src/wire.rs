//! The four points and the hooks as types, so that serving and testing them is written once: their requests and
//! responses on the wire, and the plugin's method for each.

use hookgate_proto::plugin::v1::{self as wire, Call};

use crate::{
    Cancel, Context, HookPayload, HookReply, Notice, Plugin, PluginError, Point, Reply, Verdict,
    context::CallSite,
};

/// One method of the plugin service at which a plugin answers, on the wire.
pub(crate) trait CallWire {
    /// The method's full name.
    const METHOD: &'static str;
    type Request: Send;
    type Payload: Send;
    type Reply: Send;
    type Response;

    /// Where the request calls the plugin; `None` if it doesn't say so.
    fn site(request: &Self::Request) -> Option<CallSite>;

    /// Builds a request as a gateway sends it.
    fn request(call: Call, payload: Self::Payload) -> Self::Request;

    /// Splits a request; a part is `None` if the gateway omitted it.
    fn open(request: Self::Request) -> (Option<Call>, Option<Self::Payload>);

    /// Calls the plugin's method.
    fn ask<P: Plugin>(
        plugin: &P,
        ctx: &Context,
        tenant: &P::TenantConfig,
        payload: Self::Payload,
    ) -> impl Future<Output = Result<Self::Reply, PluginError>> + Send;

    /// Builds the response that a gateway receives.
    fn response(reply: Self::Reply) -> Self::Response;

    /// The reply in a response; `None` if it lacks the verdict that it needs.
    fn reply(response: Self::Response) -> Option<Self::Reply>;
}

/// One extension point on the wire.
pub(crate) trait PointWire: CallWire<Reply = Reply<Self::Patch>> {
    const POINT: Point;
    type Patch;
}

macro_rules! point_wire {
    ($point:ident, $method:ident, $request:ident, $response:ident, $verdict:ident, $payload:ident, $patch:ident $(, $consumed:ident)?) => {
        pub(crate) struct $point;

        impl PointWire for $point {
            const POINT: Point = Point::$point;
            type Patch = crate::$patch;
        }

        impl CallWire for $point {
            const METHOD: &'static str = concat!("hookgate.plugin.v1.PluginService/", stringify!($point));
            type Request = wire::$request;
            type Payload = crate::$payload;
            type Reply = Reply<crate::$patch>;
            type Response = wire::$response;

            fn site(_: &Self::Request) -> Option<CallSite> {
                Some(CallSite::Point(Point::$point))
            }

            fn request(call: Call, payload: Self::Payload) -> Self::Request {
                wire::$request { call: Some(call), payload: Some(payload) }
            }

            fn open(request: Self::Request) -> (Option<Call>, Option<Self::Payload>) {
                (request.call, request.payload)
            }

            fn ask<P: Plugin>(
                plugin: &P,
                ctx: &Context,
                tenant: &P::TenantConfig,
                payload: Self::Payload,
            ) -> impl Future<Output = Result<Self::Reply, PluginError>> + Send {
                plugin.$method(ctx, tenant, payload)
            }

            fn response(reply: Self::Reply) -> Self::Response {
                let verdict = match reply.verdict {
                    Verdict::Continue => wire::$verdict::Verdict::Continue(wire::Continue {}),
                    Verdict::Cancel(cancel) => wire::$verdict::Verdict::Cancel(cancel.into_wire()),
                };
                wire::$response {
                    verdict: Some(verdict),
                    modify: reply.modify,
                    notices: reply.notices.into_iter().map(Notice::into_wire).collect(),
                    $($consumed: reply.$consumed,)?
                }
            }

            fn reply(response: Self::Response) -> Option<Self::Reply> {
                let verdict = match response.verdict? {
                    wire::$verdict::Verdict::Continue(_) => Verdict::Continue,
                    wire::$verdict::Verdict::Cancel(cancel) => Verdict::Cancel(Cancel::from_wire(cancel)),
                };
                let notices = response.notices.into_iter().map(Notice::from_wire).collect();
                Some(Reply { notices, $($consumed: response.$consumed,)? modify: response.modify, ..Reply::from(verdict) })
            }
        }
    };
}

point_wire!(
    BeforeLlmRequest,
    before_llm_request,
    BeforeLlmRequestRequest,
    BeforeLlmRequestResponse,
    before_llm_request_response,
    BeforeLlmRequestPayload,
    BeforeLlmRequestPatch
);
point_wire!(
    BeforeToolCall,
    before_tool_call,
    BeforeToolCallRequest,
    BeforeToolCallResponse,
    before_tool_call_response,
    BeforeToolCallPayload,
    BeforeToolCallPatch
);
point_wire!(
    AfterToolResult,
    after_tool_result,
    AfterToolResultRequest,
    AfterToolResultResponse,
    after_tool_result_response,
    AfterToolResultPayload,
    AfterToolResultPatch
);
point_wire!(
    BeforeResponse,
    before_response,
    BeforeResponseRequest,
    BeforeResponseResponse,
    before_response_response,
    BeforeResponsePayload,
    BeforeResponsePatch,
    consumed
);

/// Every lifecycle hook on the wire: they share a method.
pub(crate) struct OnHook;

impl CallWire for OnHook {
    const METHOD: &'static str = "hookgate.plugin.v1.PluginService/OnHook";
    type Request = wire::OnHookRequest;
    type Payload = HookPayload;
    type Reply = HookReply;
    type Response = wire::OnHookResponse;

    fn site(request: &Self::Request) -> Option<CallSite> {
        request.payload.as_ref().map(|payload| CallSite::Hook(payload.hook.clone()))
    }

    fn request(call: Call, payload: HookPayload) -> Self::Request {
        wire::OnHookRequest { call: Some(call), payload: Some(payload) }
    }

    fn open(request: Self::Request) -> (Option<Call>, Option<HookPayload>) {
        (request.call, request.payload)
    }

    fn ask<P: Plugin>(
        plugin: &P,
        ctx: &Context,
        tenant: &P::TenantConfig,
        payload: HookPayload,
    ) -> impl Future<Output = Result<HookReply, PluginError>> + Send {
        plugin.on_hook(ctx, tenant, payload)
    }

    fn response(reply: HookReply) -> Self::Response {
        let HookReply { contributions, notices } = reply;
        wire::OnHookResponse { contributions, notices: notices.into_iter().map(Notice::into_wire).collect() }
    }

    fn reply(response: Self::Response) -> Option<HookReply> {
        let wire::OnHookResponse { contributions, notices } = response;
        Some(HookReply { contributions, notices: notices.into_iter().map(Notice::from_wire).collect() })
    }
}
