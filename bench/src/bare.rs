//! The bare path: the gateway's job without any of its features. It takes a tool call, calls the plugins one
//! after another, applies their patches, and answers.
//!
//! There is no token, no limit, no deadline, no check of a payload or a reply, no retry, no telemetry and no
//! configuration. Like any tonic client, it has one connection to each plugin.

use hookgate_proto::{
    gateway::v1 as gateway,
    gateway::v1::extension_point_service_server::{ExtensionPointService, ExtensionPointServiceServer},
    plugin::v1 as plugin,
    plugin::v1::{before_tool_call_response::Verdict, plugin_service_client::PluginServiceClient},
    types::v1::{BeforeToolCallPatch, BeforeToolCallPayload, Decision},
};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, server::TcpIncoming},
};

use crate::{BenchError, payload};

/// Names the configuration of the plugins, which is empty.
const CONFIG_DIGEST: &str = "bare";

type PluginClient = PluginServiceClient<Channel>;

/// Calls a chain of plugins.
struct BareChain {
    plugins: Vec<PluginClient>,
}

impl BareChain {
    /// Connects to each plugin and initialises it.
    async fn connect(addresses: &[String]) -> Result<Self, BenchError> {
        let mut plugins = Vec::with_capacity(addresses.len());
        for address in addresses {
            let channel = Endpoint::from_shared(address.clone())?.tcp_nodelay(true).connect().await?;
            let mut plugin = PluginClient::new(channel);
            plugin.initialize(initialize_request()).await?;
            plugins.push(plugin);
        }
        Ok(BareChain { plugins })
    }

    async fn run(
        &self,
        mut payload: BeforeToolCallPayload,
    ) -> Result<gateway::BeforeToolCallResponse, Status> {
        let mut modified = false;
        for plugin in &self.plugins {
            let call = Some(payload::plugin_call(CONFIG_DIGEST));
            let request = plugin::BeforeToolCallRequest { call, payload: Some(payload.clone()) };
            let reply = plugin.clone().before_tool_call(request).await?.into_inner();
            match reply.verdict {
                Some(Verdict::Continue(_)) => {}
                Some(Verdict::Cancel(cancel)) => return Ok(blocked(cancel)),
                None => return Err(Status::internal("a reply has no verdict")),
            }
            if let Some(patch) = reply.modify {
                apply(patch, &mut payload);
                modified = true;
            }
        }
        Ok(gateway::BeforeToolCallResponse {
            decision: Decision::Continue.into(),
            payload: Some(payload),
            modified,
            ..Default::default()
        })
    }
}

fn initialize_request() -> plugin::InitializeRequest {
    plugin::InitializeRequest {
        config: "{}".into(),
        config_digest: CONFIG_DIGEST.into(),
        gateway_instance_id: CONFIG_DIGEST.into(),
        ..Default::default()
    }
}

fn blocked(cancel: plugin::Cancel) -> gateway::BeforeToolCallResponse {
    let block = gateway::Block { code: cancel.code, message: cancel.message, ..Default::default() };
    gateway::BeforeToolCallResponse {
        decision: Decision::Block.into(),
        block: Some(block),
        ..Default::default()
    }
}

fn apply(patch: BeforeToolCallPatch, payload: &mut BeforeToolCallPayload) {
    if let Some(tool_name) = patch.tool_name {
        payload.tool_name = tool_name;
    }
    if let Some(args) = patch.args {
        payload.args = args;
    }
    if let Some(extra) = patch.extra {
        payload.extra = extra;
    }
}

#[tonic::async_trait]
impl ExtensionPointService for BareChain {
    async fn before_llm_request(
        &self,
        _: Request<gateway::BeforeLlmRequestRequest>,
    ) -> Result<Response<gateway::BeforeLlmRequestResponse>, Status> {
        Err(Status::unimplemented("the bare path takes only tool calls"))
    }

    async fn before_tool_call(
        &self,
        request: Request<gateway::BeforeToolCallRequest>,
    ) -> Result<Response<gateway::BeforeToolCallResponse>, Status> {
        let payload = request.into_inner().payload;
        let payload = payload.ok_or_else(|| Status::invalid_argument("`payload` is missing"))?;
        Ok(Response::new(self.run(payload).await?))
    }

    async fn after_tool_result(
        &self,
        _: Request<gateway::AfterToolResultRequest>,
    ) -> Result<Response<gateway::AfterToolResultResponse>, Status> {
        Err(Status::unimplemented("the bare path takes only tool calls"))
    }

    async fn before_response(
        &self,
        _: Request<gateway::BeforeResponseRequest>,
    ) -> Result<Response<gateway::BeforeResponseResponse>, Status> {
        Err(Status::unimplemented("the bare path takes only tool calls"))
    }
}

/// Connects to the plugins and serves on a free port. `ready` is called with the address.
pub(crate) async fn serve(plugins: &[String], ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let chain = BareChain::connect(plugins).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&format!("http://{}", listener.local_addr()?));
    let router = tonic::transport::Server::builder().add_service(ExtensionPointServiceServer::new(chain));
    Ok(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?)
}
