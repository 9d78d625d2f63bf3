//! The plugin service: the handshake, and the execution of scripts.

use std::{collections::BTreeMap, sync::Arc};

use hookgate_proto::{
    plugin::v1::{
        AfterToolResultRequest, AfterToolResultResponse, BeforeLlmRequestRequest, BeforeLlmRequestResponse,
        BeforeResponseRequest, BeforeResponseResponse, BeforeToolCallRequest, BeforeToolCallResponse, Call,
        Continue, DescribeRequest, DescribeResponse, InitializeRequest, InitializeResponse, OnHookRequest,
        OnHookResponse, ReleaseRequest, ReleaseResponse, ShutdownRequest, ShutdownResponse,
        after_tool_result_response, before_llm_request_response, before_response_response,
        before_tool_call_response, plugin_service_server::PluginService,
    },
    types::v1::ExtensionPoint,
};
use prost::Message;
use tonic::{
    Request, Response, Status,
    metadata::{KeyAndValueRef, MetadataMap, MetadataValue},
};

use super::{
    HOOKS, Handshake, State,
    act::{Act, Answer, Patch, Reply, Verdict},
    record::{Payload, Seen},
    wire::{WireBehaviour, WireFault},
};

#[derive(Clone)]
pub(super) struct Service {
    pub(super) state: Arc<State>,
}

impl Service {
    pub(super) fn new(state: Arc<State>) -> Self {
        Service { state }
    }

    async fn handle<R: PointRequest>(&self, request: Request<R>) -> Result<Response<R::Reply>, Status> {
        let metadata = ascii(request.metadata());
        let (call, payload) = request.into_inner().split();
        if !self.state.behaviour().known_digests.contains(&call.config_digest) {
            self.state.record.count(|counts| counts.uninitialized += 1);
            return Err(not_initialized());
        }
        let seen = Seen { point: R::POINT, call, payload, metadata, number: 0 };
        // Read the script first: a test that sees the call counted may replace it immediately.
        let script = self.state.behaviour().scripts.get(&R::POINT.into()).cloned();
        let (seen, under_way) = self.state.record.begin(seen);
        let act = script.map_or_else(Act::pass, |script| script(&seen));
        tokio::time::sleep(act.delay).await;
        if let Some(gate) = &act.gate {
            gate.passed().await;
        }
        let result = match act.reply {
            Reply::Answer(answer) => Ok(respond(R::reply(*answer), act.wire)),
            Reply::Status(status) => Err(status),
            Reply::Hang => std::future::pending().await,
        };
        under_way.finish();
        result
    }
}

/// Marks an answer that is to be sent in another way than the proper one, for the connection.
fn respond<M: Message>(reply: M, wire: WireBehaviour) -> Response<M> {
    let misconduct = (!matches!(wire, WireBehaviour::Proper))
        .then(|| WireFault { message: reply.encode_to_vec().into(), wire });
    let mut response = Response::new(reply);
    if let Some(misconduct) = misconduct {
        response.extensions_mut().insert(misconduct);
    }
    response
}

fn not_initialized() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("hookgate-reason", MetadataValue::from_static("NOT_INITIALIZED"));
    Status::with_metadata(tonic::Code::FailedPrecondition, "this configuration is not known here", metadata)
}

fn ascii(metadata: &MetadataMap) -> BTreeMap<String, String> {
    metadata
        .iter()
        .filter_map(|entry| match entry {
            KeyAndValueRef::Ascii(key, value) => Some((key.to_string(), value.to_str().ok()?.to_owned())),
            KeyAndValueRef::Binary(..) => None,
        })
        .collect()
}

async fn conduct(handshake: Handshake) -> Result<(), Status> {
    match handshake {
        Handshake::Proper => Ok(()),
        Handshake::Slow(delay) => {
            tokio::time::sleep(delay).await;
            Ok(())
        }
        Handshake::Fails(status) => Err(status),
        Handshake::Hangs => std::future::pending().await,
    }
}

#[tonic::async_trait]
impl PluginService for Service {
    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        self.state.record.count(|counts| counts.describes += 1);
        let handshake = self.state.behaviour().describe.clone();
        conduct(handshake).await?;
        Ok(Response::new(self.state.behaviour().manifest.clone()))
    }

    async fn initialize(
        &self,
        request: Request<InitializeRequest>,
    ) -> Result<Response<InitializeResponse>, Status> {
        let request = request.into_inner();
        let digest = request.config_digest.clone();
        self.state.record.initialize(request);
        let handshake = self.state.behaviour().initialize.clone();
        conduct(handshake).await?;
        self.state.behaviour().known_digests.insert(digest);
        let tools = self.state.behaviour().tools.clone();
        Ok(Response::new(InitializeResponse { tools }))
    }

    async fn before_llm_request(
        &self,
        request: Request<BeforeLlmRequestRequest>,
    ) -> Result<Response<BeforeLlmRequestResponse>, Status> {
        self.handle(request).await
    }

    async fn before_tool_call(
        &self,
        request: Request<BeforeToolCallRequest>,
    ) -> Result<Response<BeforeToolCallResponse>, Status> {
        self.handle(request).await
    }

    async fn after_tool_result(
        &self,
        request: Request<AfterToolResultRequest>,
    ) -> Result<Response<AfterToolResultResponse>, Status> {
        self.handle(request).await
    }

    async fn before_response(
        &self,
        request: Request<BeforeResponseRequest>,
    ) -> Result<Response<BeforeResponseResponse>, Status> {
        self.handle(request).await
    }

    async fn on_hook(&self, request: Request<OnHookRequest>) -> Result<Response<OnHookResponse>, Status> {
        self.handle(request).await
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let digest = request.into_inner().config_digest;
        self.state.behaviour().known_digests.remove(&digest);
        self.state.record.release(digest);
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn shutdown(&self, _: Request<ShutdownRequest>) -> Result<Response<ShutdownResponse>, Status> {
        self.state.record.shut_down();
        Ok(Response::new(ShutdownResponse {}))
    }
}

impl PointRequest for OnHookRequest {
    type Reply = OnHookResponse;
    const POINT: ExtensionPoint = HOOKS;

    fn split(self) -> (Call, Payload) {
        (self.call.unwrap_or_default(), Payload::Hook(self.payload.unwrap_or_default()))
    }

    fn reply(answer: Answer) -> OnHookResponse {
        OnHookResponse { contributions: answer.contributions, notices: answer.notices }
    }
}

/// The common parts of the requests of the four points and of hooks.
trait PointRequest {
    type Reply: Message;
    const POINT: ExtensionPoint;
    fn split(self) -> (Call, Payload);
    fn reply(answer: Answer) -> Self::Reply;
}

macro_rules! point_request {
    ($($point:ident: $request:ty => $reply:ident in $module:ident $(with $rest:ident)?;)*) => {
        $(impl PointRequest for $request {
            type Reply = $reply;
            const POINT: ExtensionPoint = ExtensionPoint::$point;

            fn split(self) -> (Call, Payload) {
                (self.call.unwrap_or_default(), Payload::$point(self.payload.unwrap_or_default()))
            }

            fn reply(answer: Answer) -> $reply {
                let verdict = answer.verdict.map(|verdict| match verdict {
                    Verdict::Continue => $module::Verdict::Continue(Continue {}),
                    Verdict::Cancel(cancel) => $module::Verdict::Cancel(cancel),
                });
                let modify = answer.patch.map(|patch| match patch {
                    Patch::$point(patch) => patch,
                    other => panic!("the script patches {other:?} at {:?}", Self::POINT),
                });
                $reply { verdict, modify, notices: answer.notices $(, $rest: answer.$rest)? }
            }
        })*
    };
}
point_request! {
    BeforeLlmRequest: BeforeLlmRequestRequest => BeforeLlmRequestResponse in before_llm_request_response;
    BeforeToolCall: BeforeToolCallRequest => BeforeToolCallResponse in before_tool_call_response;
    AfterToolResult: AfterToolResultRequest => AfterToolResultResponse in after_tool_result_response;
    BeforeResponse: BeforeResponseRequest => BeforeResponseResponse in before_response_response with consumed;
}
