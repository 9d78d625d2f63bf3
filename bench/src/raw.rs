//! The floor: a tonic server and a tonic client without any feature. The server answers both contracts. The
//! client calls it over one connection in a closed loop and does nothing else: no clock, no histogram.

use std::{
    io::BufRead as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hookgate_proto::{
    gateway::v1 as gateway,
    gateway::v1::extension_point_service_server::{ExtensionPointService, ExtensionPointServiceServer},
    plugin::v1 as plugin,
    plugin::v1::{
        plugin_service_client::PluginServiceClient,
        plugin_service_server::{PluginService, PluginServiceServer},
    },
    types::v1::Decision,
};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, server::TcpIncoming},
};

use crate::{
    BenchError,
    payload::{self, GatewayRequest, Payload},
};

/// Returns every payload to an agent, and answers "continue" as a plugin.
struct RawService;

/// The methods of the gateway's contract, which return the payload unchanged.
macro_rules! return_payload {
    ($($method:ident($request:ident) -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl ExtensionPointService for RawService {
            $(async fn $method(
                &self,
                request: Request<gateway::$request>,
            ) -> Result<Response<gateway::$response>, Status> {
                let (decision, payload) = (Decision::Continue.into(), request.into_inner().payload);
                Ok(Response::new(gateway::$response { decision, payload, ..Default::default() }))
            })*
        }
    };
}

return_payload! {
    before_llm_request(BeforeLlmRequestRequest) -> BeforeLlmRequestResponse;
    before_tool_call(BeforeToolCallRequest) -> BeforeToolCallResponse;
    after_tool_result(AfterToolResultRequest) -> AfterToolResultResponse;
    before_response(BeforeResponseRequest) -> BeforeResponseResponse;
}

/// The methods of the plugins' contract: "continue" at a point, the empty message elsewhere.
macro_rules! answer_continue {
    ($($method:ident($request:ident) -> $response:ident = $answer:expr;)*) => {
        #[tonic::async_trait]
        impl PluginService for RawService {
            $(async fn $method(
                &self,
                _: Request<plugin::$request>,
            ) -> Result<Response<plugin::$response>, Status> {
                Ok(Response::new($answer))
            })*
        }
    };
}

answer_continue! {
    describe(DescribeRequest) -> DescribeResponse = Default::default();
    initialize(InitializeRequest) -> InitializeResponse = Default::default();
    before_llm_request(BeforeLlmRequestRequest) -> BeforeLlmRequestResponse =
        plugin::BeforeLlmRequestResponse {
            verdict: Some(plugin::before_llm_request_response::Verdict::Continue(plugin::Continue {})),
            ..Default::default()
        };
    before_tool_call(BeforeToolCallRequest) -> BeforeToolCallResponse =
        plugin::BeforeToolCallResponse {
            verdict: Some(plugin::before_tool_call_response::Verdict::Continue(plugin::Continue {})),
            ..Default::default()
        };
    after_tool_result(AfterToolResultRequest) -> AfterToolResultResponse =
        plugin::AfterToolResultResponse {
            verdict: Some(plugin::after_tool_result_response::Verdict::Continue(plugin::Continue {})),
            ..Default::default()
        };
    before_response(BeforeResponseRequest) -> BeforeResponseResponse =
        plugin::BeforeResponseResponse {
            verdict: Some(plugin::before_response_response::Verdict::Continue(plugin::Continue {})),
            ..Default::default()
        };
    on_hook(OnHookRequest) -> OnHookResponse = Default::default();
    release(ReleaseRequest) -> ReleaseResponse = Default::default();
    shutdown(ShutdownRequest) -> ShutdownResponse = Default::default();
}

/// Serves both contracts on a free port. `ready` is called with the address.
pub(crate) async fn serve(ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&format!("http://{}", listener.local_addr()?));
    let router = tonic::transport::Server::builder()
        .add_service(ExtensionPointServiceServer::new(RawService))
        .add_service(PluginServiceServer::new(RawService));
    Ok(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?)
}

/// Calls the raw server with `concurrency` calls in flight until the process is killed. `ready` is called
/// once, and `say` with the number of calls so far for each line of standard input.
pub(crate) async fn call(
    address: &str,
    payload: Payload,
    concurrency: usize,
    ready: impl FnOnce(&str),
    say: impl Fn(u64) + Send + 'static,
) -> Result<(), BenchError> {
    let channel = Endpoint::from_shared(address.to_owned())?.tcp_nodelay(true).connect().await?;
    let request = PluginRequest::of(payload)?;
    let calls = Arc::new(AtomicU64::new(0));
    let running = (0..concurrency).map(|_| {
        let (client, request) = (PluginServiceClient::new(channel.clone()), request.clone());
        tokio::spawn(request.send_again_and_again(client, Arc::clone(&calls)))
    });
    let running: Vec<_> = running.collect();
    ready(address);
    tokio::task::spawn_blocking(move || {
        let lines = std::io::stdin().lock().lines();
        lines.map_while(Result::ok).for_each(|_| say(calls.load(Ordering::Relaxed)));
    });
    for ended in running {
        ended.await??;
    }
    Ok(())
}

/// What the client sends to a plugin.
#[derive(Clone)]
enum PluginRequest {
    BeforeToolCall(plugin::BeforeToolCallRequest),
    BeforeResponse(plugin::BeforeResponseRequest),
}

impl PluginRequest {
    /// The request to a plugin that the gateway makes of an agent's.
    fn of(payload: Payload) -> Result<Self, BenchError> {
        let call = Some(payload::plugin_call("raw"));
        match payload.requests().pop() {
            Some(GatewayRequest::BeforeToolCall(request)) => {
                let payload = request.payload;
                Ok(PluginRequest::BeforeToolCall(plugin::BeforeToolCallRequest { call, payload }))
            }
            Some(GatewayRequest::BeforeResponse(request)) => {
                let payload = request.payload;
                Ok(PluginRequest::BeforeResponse(plugin::BeforeResponseRequest { call, payload }))
            }
            _ => Err("the raw client doesn't send this payload".into()),
        }
    }

    async fn send_again_and_again(
        self,
        mut client: PluginServiceClient<Channel>,
        calls: Arc<AtomicU64>,
    ) -> Result<(), Status> {
        loop {
            match &self {
                PluginRequest::BeforeToolCall(request) => {
                    client.before_tool_call(request.clone()).await?;
                }
                PluginRequest::BeforeResponse(request) => {
                    client.before_response(request.clone()).await?;
                }
            }
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }
}
