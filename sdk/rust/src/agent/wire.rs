//! The four points as types on the agent's side, so that the code for a call is written once.

use hookgate_proto::{
    gateway::v1::{
        self as wire, Block, PluginNotice, RequestContext,
        extension_point_service_client::ExtensionPointServiceClient,
    },
    types::v1::Decision,
};
use tonic::{Request, Response, Status, transport::Channel};

use super::answer::{AnswerFacts, Payload};
use crate::Point;

/// The parts of an answer, for any point.
pub(super) struct ParsedAnswer<P> {
    pub(super) decision: Decision,
    pub(super) payload: Option<P>,
    pub(super) modified: bool,
    pub(super) block: Option<Block>,
    pub(super) notices: Vec<PluginNotice>,
    pub(super) answered: AnswerFacts,
}

/// One extension point on the wire.
pub(super) trait AgentPoint {
    const POINT: Point;
    type Payload: Clone + Send;
    type Request: Send;
    type Response;

    fn request(
        context: RequestContext,
        payload: Self::Payload,
        plan: Option<String>,
        trace: bool,
    ) -> Self::Request;

    fn send(
        client: ExtensionPointServiceClient<Channel>,
        request: Request<Self::Request>,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>> + Send;

    fn open(response: Self::Response) -> ParsedAnswer<Self::Payload>;

    fn any(payload: Self::Payload) -> Payload;
}

macro_rules! agent_point {
    ($point:ident, $method:ident, $request:ident, $response:ident, $payload:ident $(, $takes_results:ident)?) => {
        pub(super) struct $point;

        impl AgentPoint for $point {
            const POINT: Point = Point::$point;
            type Payload = crate::$payload;
            type Request = wire::$request;
            type Response = wire::$response;

            fn request(
                context: RequestContext,
                payload: Self::Payload,
                plan: Option<String>,
                trace: bool,
            ) -> Self::Request {
                let (context, payload) = (Some(context), Some(payload));
                wire::$request {
                    context,
                    payload,
                    expect_plan_digest: plan,
                    trace,
                    $($takes_results: false,)?
                }
            }

            async fn send(
                mut client: ExtensionPointServiceClient<Channel>,
                request: Request<Self::Request>,
            ) -> Result<Response<Self::Response>, Status> {
                client.$method(request).await
            }

            fn open(response: Self::Response) -> ParsedAnswer<Self::Payload> {
                ParsedAnswer {
                    decision: response.decision(),
                    payload: response.payload,
                    modified: response.modified,
                    block: response.block,
                    notices: response.notices,
                    answered: AnswerFacts {
                        request_id: response.request_id,
                        plan_digest: response.plan_digest,
                        revision: response.revision,
                        steps: response.steps,
                    },
                }
            }

            fn any(payload: Self::Payload) -> Payload {
                Payload::$point(payload)
            }
        }
    };
}

agent_point!(
    BeforeLlmRequest,
    before_llm_request,
    BeforeLlmRequestRequest,
    BeforeLlmRequestResponse,
    BeforeLlmRequestPayload
);
agent_point!(
    BeforeToolCall,
    before_tool_call,
    BeforeToolCallRequest,
    BeforeToolCallResponse,
    BeforeToolCallPayload,
    takes_results
);
agent_point!(
    AfterToolResult,
    after_tool_result,
    AfterToolResultRequest,
    AfterToolResultResponse,
    AfterToolResultPayload
);
agent_point!(
    BeforeResponse,
    before_response,
    BeforeResponseRequest,
    BeforeResponseResponse,
    BeforeResponsePayload
);
