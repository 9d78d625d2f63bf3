//! The four points as types, so that serving and testing them is written once: their requests and responses
//! on the wire, and the plugin's method for each.

use hookgate_proto::plugin::v1::{self as wire, Call};

use crate::{Answer, Cancel, Context, Notice, Plugin, Point, Reply, Verdict};

/// One extension point on the wire.
pub(crate) trait PointWire {
    const POINT: Point;
    type Request: Send;
    type Payload: Send;
    type Patch: Send;
    type Response;

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
    ) -> impl Future<Output = Answer<Self::Patch>> + Send;

    /// Builds the response that a gateway receives.
    fn response(reply: Reply<Self::Patch>) -> Self::Response;

    /// The reply in a response; `None` if it has no verdict.
    fn reply(response: Self::Response) -> Option<Reply<Self::Patch>>;
}

macro_rules! point_wire {
    ($point:ident, $method:ident, $request:ident, $response:ident, $verdict:ident, $payload:ident, $patch:ident) => {
        pub(crate) struct $point;

        impl PointWire for $point {
            const POINT: Point = Point::$point;
            type Request = wire::$request;
            type Payload = crate::$payload;
            type Patch = crate::$patch;
            type Response = wire::$response;

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
            ) -> impl Future<Output = Answer<Self::Patch>> + Send {
                plugin.$method(ctx, tenant, payload)
            }

            fn response(reply: Reply<Self::Patch>) -> Self::Response {
                let verdict = match reply.verdict {
                    Verdict::Continue => wire::$verdict::Verdict::Continue(wire::Continue {}),
                    Verdict::Cancel(cancel) => wire::$verdict::Verdict::Cancel(cancel.into_wire()),
                };
                wire::$response {
                    verdict: Some(verdict),
                    modify: reply.modify,
                    notices: reply.notices.into_iter().map(Notice::into_wire).collect(),
                }
            }

            fn reply(response: Self::Response) -> Option<Reply<Self::Patch>> {
                let verdict = match response.verdict? {
                    wire::$verdict::Verdict::Continue(_) => Verdict::Continue,
                    wire::$verdict::Verdict::Cancel(cancel) => Verdict::Cancel(Cancel::from_wire(cancel)),
                };
                let notices = response.notices.into_iter().map(Notice::from_wire).collect();
                Some(Reply { verdict, modify: response.modify, notices })
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
    BeforeResponsePatch
);
