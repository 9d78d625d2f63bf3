//! The methods that an agent calls as types, so that the code for a call is written once.

use hookgate_proto::{
    gateway::v1::{
        self as wire, Block, PluginNotice, RequestContext,
        extension_point_service_client::ExtensionPointServiceClient,
    },
    types::v1::Decision,
};
use tonic::{Request, Response, Status, transport::Channel};

use super::answer::{AnswerFacts, Payload};
use crate::{MAX_CALL_BYTES, Point};

/// The parts of an answer, for any point.
pub(super) struct ParsedAnswer<P> {
    pub(super) decision: Decision,
    pub(super) payload: Option<P>,
    pub(super) modified: bool,
    pub(super) block: Option<Block>,
    pub(super) notices: Vec<PluginNotice>,
    pub(super) answered: AnswerFacts,
}

/// One method of the gateway on the wire.
pub(super) trait AgentCall {
    type Request: Send;
    type Response;

    fn send(
        channel: Channel,
        request: Request<Self::Request>,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>> + Send;
}

/// One extension point on the wire.
pub(super) trait AgentPoint: AgentCall {
    const POINT: Point;
    type Payload: Clone + Send;

    fn request(
        context: RequestContext,
        payload: Self::Payload,
        plan: Option<String>,
        trace: bool,
    ) -> Self::Request;

    fn open(response: Self::Response) -> ParsedAnswer<Self::Payload>;

    fn any(payload: Self::Payload) -> Payload;
}

macro_rules! agent_point {
    ($point:ident, $method:ident, $request:ident, $response:ident, $payload:ident $(, $takes_results:ident)?) => {
        pub(super) struct $point;

        impl AgentCall for $point {
            type Request = wire::$request;
            type Response = wire::$response;

            async fn send(
                channel: Channel,
                request: Request<Self::Request>,
            ) -> Result<Response<Self::Response>, Status> {
                let client = ExtensionPointServiceClient::new(channel);
                client.max_decoding_message_size(MAX_CALL_BYTES).$method(request).await
            }
        }

        impl AgentPoint for $point {
            const POINT: Point = Point::$point;
            type Payload = crate::$payload;

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
