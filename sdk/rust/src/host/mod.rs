//! Serves a [`Plugin`] as the contract's gRPC service. Owns the instances, one per configuration digest;
//! knows nothing of sockets.

mod instances;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use hookgate_proto::plugin::v1::{
    self as wire, DescribeResponse,
    plugin_service_server::{PluginService, PluginServiceServer},
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, async_trait};

use self::instances::{InstanceGuard, Instances, RetiredInstance};
use crate::{
    BeforeToolCallPayload, Capability, Context, HookOffer, Host, HostService, InitError, MAX_CALL_BYTES,
    Offer, Plugin, Point, Tool, ToolCall,
    call_span::CallSpan,
    config::{self, TenantConfigs},
    context::CallSite,
    error::cut,
    host_service::{HostLinks, HostServices},
    wire::{AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, CallWire, OnHook},
};

/// How long the shutdown waits for instances to flush: as long as a gateway waits for Shutdown.
const MAX_FLUSH: Duration = Duration::from_secs(5);
/// The trailer that says why a plugin could not answer.
const REASON: &str = "hookgate-reason";
/// The reason for a call with a configuration that was not initialised in this process.
const NOT_INITIALIZED: &str = "NOT_INITIALIZED";

// The other methods' full names, for spans.
const DESCRIBE: &str = "hookgate.plugin.v1.PluginService/Describe";
const INITIALIZE: &str = "hookgate.plugin.v1.PluginService/Initialize";
const RELEASE: &str = "hookgate.plugin.v1.PluginService/Release";
const SHUTDOWN: &str = "hookgate.plugin.v1.PluginService/Shutdown";

/// The plugin as a tower service, for use in this process or behind a listener.
pub fn service<P: Plugin>() -> PluginServiceServer<PluginHost<P>> {
    server(Arc::new(PluginHost::new()))
}

/// Like [`service`], for a plugin in the gateway's own process: its [`Context::storage`] and [`Host::storage`] call
/// `host`, whatever `host_endpoint` the gateway names.
pub fn service_with_host<P: Plugin>(host: HostService) -> PluginServiceServer<PluginHost<P>> {
    server(Arc::new(PluginHost::with_services(HostServices::in_process(host))))
}

pub(crate) fn server<P: Plugin>(host: Arc<PluginHost<P>>) -> PluginServiceServer<PluginHost<P>> {
    PluginServiceServer::from_arc(host).max_decoding_message_size(MAX_CALL_BYTES)
}

/// A plugin with one configuration, and its tools.
pub(crate) struct StartedPlugin<P: Plugin> {
    plugin: Arc<P>,
    tools: Vec<Tool<P>>,
}

/// A call with what it needs.
struct OpenCall<P: Plugin, Payload> {
    plugin: InstanceGuard<StartedPlugin<P>>,
    tenant: Arc<P::TenantConfig>,
    context: Context,
    payload: Payload,
}

/// The gRPC service of a plugin, with its instances. Created by [`service`].
pub struct PluginHost<P: Plugin> {
    instances: Instances<StartedPlugin<P>>,
    tenant_configs: TenantConfigs<P::TenantConfig>,
    points: Vec<Offer>,
    hooks: Vec<HookOffer>,
    host_services: HostServices,
    /// Instances that are flushing.
    flushes: TaskTracker,
}

impl<P: Plugin> PluginHost<P> {
    pub(crate) fn new() -> Self {
        Self::with_services(HostServices::default())
    }

    fn with_services(host_services: HostServices) -> Self {
        PluginHost {
            host_services,
            instances: Instances::new(),
            tenant_configs: TenantConfigs::new(),
            points: P::points(),
            hooks: P::hooks(),
            flushes: TaskTracker::new(),
        }
    }

    /// Shuts down all instances, the newest first.
    pub(crate) async fn shutdown(&self) {
        for plugin in self.instances.take_all() {
            plugin.plugin.shutdown().await;
        }
        // Also wait for instances that were released earlier and may still be flushing.
        self.flushes.close();
        if timeout(MAX_FLUSH, self.flushes.wait()).await.is_err() {
            tracing::warn!(plugin = P::NAME, "an instance still flushes; stopping without it");
        }
    }

    /// Flushes each of these after its last call. This happens even if the caller stops waiting.
    fn flush(
        &self,
        retired: impl IntoIterator<Item = RetiredInstance<StartedPlugin<P>>>,
    ) -> Vec<JoinHandle<()>> {
        let flush = |instance: RetiredInstance<StartedPlugin<P>>| async move {
            instance.unused().await.plugin.shutdown().await;
        };
        retired.into_iter().map(|instance| self.flushes.spawn(flush(instance))).collect()
    }

    async fn answer<W: CallWire>(
        &self,
        request: Request<W::Request>,
    ) -> Result<Response<W::Response>, Status> {
        let site = W::site(request.get_ref());
        let span = CallSpan::for_call::<P>(W::METHOD, site.as_ref(), request.metadata());
        span.run(self.reply::<W>(site, request)).await
    }

    async fn reply<W: CallWire>(
        &self,
        site: Option<CallSite>,
        request: Request<W::Request>,
    ) -> Result<Response<W::Response>, Status> {
        let site = site.ok_or_else(|| Status::invalid_argument("`payload` is missing"))?;
        if !self.offers(&site) {
            return Err(Status::unimplemented(cut(format!("{} does not answer at {site}", P::NAME))));
        }
        let OpenCall { plugin, tenant, context, payload } = self.open::<W>(site, request)?;
        let asked =
            AssertUnwindSafe(W::ask(&*plugin.plugin, &context, &tenant, payload)).catch_unwind().await;
        match asked.map_err(|_| panicked::<P>(&format!("at {}", context.site)))? {
            // Nobody waits for it any more, and the plugin may have ended its work early for that reason.
            Ok(_) if context.deadline().has_passed() => {
                Err(Status::deadline_exceeded("the time of the call is over"))
            }
            Ok(reply) => Ok(Response::new(W::response(reply))),
            Err(error) => Err(error.into_status()),
        }
    }

    /// Runs one of the plugin's own tools.
    async fn run_tool(
        &self,
        request: Request<wire::BeforeToolCallRequest>,
    ) -> Result<Response<wire::BeforeToolCallResponse>, Status> {
        let site = CallSite::Point(Point::BeforeToolCall);
        let OpenCall { plugin, tenant, context, payload } = self.open::<BeforeToolCall>(site, request)?;
        let BeforeToolCallPayload { tool_name, args, .. } = payload;
        let tool = plugin.tools.iter().find(|tool| tool.name() == tool_name);
        let tool = tool.ok_or_else(|| {
            Status::not_found(cut(format!("{} does not provide the tool {tool_name}", P::NAME)))
        })?;
        let call = ToolCall { plugin: Arc::clone(&plugin.plugin), context, tenant_config: tenant, args };
        let ran = AssertUnwindSafe(tool.run(call)).catch_unwind().await;
        match ran.map_err(|_| panicked::<P>(&format!("in the tool {tool_name}")))? {
            Ok(reply) => Ok(Response::new(BeforeToolCall::response(reply))),
            Err(error) => Err(error.into_status()),
        }
    }

    fn open<W: CallWire>(
        &self,
        site: CallSite,
        request: Request<W::Request>,
    ) -> Result<OpenCall<P, W::Payload>, Status> {
        let missing = |field: &str| Status::invalid_argument(format!("`{field}` is missing"));
        let (metadata, _, message) = request.into_parts();
        let (call, payload) = W::open(message);
        let mut call = call.ok_or_else(|| missing("call"))?;
        let payload = payload.ok_or_else(|| missing("payload"))?;
        let plugin = self.instances.get(&call.config_digest).ok_or_else(not_initialized)?;
        let tenant = self
            .tenant_configs
            .get(&call.tenant_config_digest, &call.tenant_config)
            .map_err(|error| Status::invalid_argument(cut(format!("tenant-level config: {error}"))))?;
        let context = Context::new(site, &mut call, &metadata, plugin.links());
        Ok(OpenCall { plugin, tenant, context, payload })
    }

    fn offers(&self, site: &CallSite) -> bool {
        match site {
            CallSite::Point(point) => self.points.iter().any(|offer| offer.point == *point),
            CallSite::Hook(name) => self.hooks.iter().any(|offer| offer.hook == name),
        }
    }

    async fn initialize_instance(
        &self,
        request: wire::InitializeRequest,
    ) -> Result<Response<wire::InitializeResponse>, Status> {
        let (digest, gateway) = (&request.config_digest, &request.gateway_instance_id);
        if digest.is_empty() {
            return Err(Status::invalid_argument("`config_digest` is missing"));
        }
        // Initialize doesn't wait for the calls of the instance that made room.
        let link = Arc::new(self.host_services.link(&request));
        let start = |links| self.start(&request, links);
        drop(self.flush(self.instances.start(digest, gateway, link, start).await?));
        let plugin = self.instances.get(digest).ok_or_else(not_initialized)?;
        let tools = plugin.tools.iter().map(|tool| tool.definition().clone()).collect();
        Ok(Response::new(wire::InitializeResponse { tools }))
    }

    async fn start(
        &self,
        request: &wire::InitializeRequest,
        links: Arc<HostLinks>,
    ) -> Result<StartedPlugin<P>, Status> {
        let config = config::parse_config::<P::Config>(&request.config)
            .map_err(|error| InitError::from_refusal(format!("config: {error}")).into_status())?;
        let started = async {
            let plugin = P::initialize(config, Host::from_request(request, links)).await?;
            let tools = plugin.tools();
            Ok(StartedPlugin { plugin: Arc::new(plugin), tools })
        };
        let started = AssertUnwindSafe(started).catch_unwind().await;
        started.map_err(|_| panicked::<P>("at initialize"))?.map_err(InitError::into_status)
    }
}

async fn finished<P: Plugin>(flushes: Vec<JoinHandle<()>>) -> Result<(), Status> {
    let all = join_all(flushes).await;
    all.into_iter().collect::<Result<_, _>>().map_err(|_| panicked::<P>("at shutdown"))
}

/// A panic in the plugin fails only that call; the panic hook has already printed it.
fn panicked<P: Plugin>(place: &str) -> Status {
    Status::internal(format!("{} panicked {place}", P::NAME))
}

/// The answer to a call whose `config_digest` was not initialised in this process: the gateway initialises the plugin and
/// repeats the call (docs/protocol.md, "Configuration digests").
pub fn not_initialized() -> Status {
    let mut status = Status::failed_precondition("no instance for this config digest: call Initialize");
    status.metadata_mut().insert(REASON, tonic::metadata::AsciiMetadataValue::from_static(NOT_INITIALIZED));
    status
}

/// The plugin's manifest.
pub(crate) fn manifest<P: Plugin>() -> DescribeResponse {
    DescribeResponse {
        name: P::NAME.to_owned(),
        version: P::VERSION.to_owned(),
        protocol_versions: vec![1],
        points: P::points().into_iter().map(Offer::to_wire).collect(),
        hooks: P::hooks().into_iter().map(HookOffer::to_wire).collect(),
        capabilities: P::CAPABILITIES.iter().copied().map(|c: Capability| c.as_str().to_owned()).collect(),
        tools: P::TOOL_NAMES.iter().map(|&name| name.to_owned()).collect(),
        config_schema: config::schema::<P::Config>(),
        tenant_config_schema: config::schema::<P::TenantConfig>(),
    }
}

#[async_trait]
impl<P: Plugin> PluginService for PluginHost<P> {
    async fn describe(
        &self,
        request: Request<wire::DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let span = CallSpan::for_method::<P>(DESCRIBE, request.metadata());
        span.run(async { Ok(Response::new(manifest::<P>())) }).await
    }

    async fn initialize(
        &self,
        request: Request<wire::InitializeRequest>,
    ) -> Result<Response<wire::InitializeResponse>, Status> {
        let span = CallSpan::for_method::<P>(INITIALIZE, request.metadata());
        span.run(self.initialize_instance(request.into_inner())).await
    }

    async fn before_llm_request(
        &self,
        request: Request<wire::BeforeLlmRequestRequest>,
    ) -> Result<Response<wire::BeforeLlmRequestResponse>, Status> {
        self.answer::<BeforeLlmRequest>(request).await
    }

    async fn before_tool_call(
        &self,
        request: Request<wire::BeforeToolCallRequest>,
    ) -> Result<Response<wire::BeforeToolCallResponse>, Status> {
        if request.get_ref().call.as_ref().is_some_and(|call| call.run_tool) {
            let site = CallSite::Point(Point::BeforeToolCall);
            let span = CallSpan::for_call::<P>(BeforeToolCall::METHOD, Some(&site), request.metadata());
            return span.run(self.run_tool(request)).await;
        }
        self.answer::<BeforeToolCall>(request).await
    }

    async fn after_tool_result(
        &self,
        request: Request<wire::AfterToolResultRequest>,
    ) -> Result<Response<wire::AfterToolResultResponse>, Status> {
        self.answer::<AfterToolResult>(request).await
    }

    async fn before_response(
        &self,
        request: Request<wire::BeforeResponseRequest>,
    ) -> Result<Response<wire::BeforeResponseResponse>, Status> {
        self.answer::<BeforeResponse>(request).await
    }

    async fn on_hook(
        &self,
        request: Request<wire::OnHookRequest>,
    ) -> Result<Response<wire::OnHookResponse>, Status> {
        self.answer::<OnHook>(request).await
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseResponse>, Status> {
        let span = CallSpan::for_method::<P>(RELEASE, request.metadata());
        let wire::ReleaseRequest { gateway_instance_id, config_digest } = request.into_inner();
        span.run(async {
            let retired = self.instances.release(&gateway_instance_id, Some(&config_digest));
            finished::<P>(self.flush(retired)).await?;
            Ok(Response::new(wire::ReleaseResponse {}))
        })
        .await
    }

    async fn shutdown(
        &self,
        request: Request<wire::ShutdownRequest>,
    ) -> Result<Response<wire::ShutdownResponse>, Status> {
        let span = CallSpan::for_method::<P>(SHUTDOWN, request.metadata());
        let gateway = request.into_inner().gateway_instance_id;
        span.run(async {
            finished::<P>(self.flush(self.instances.release(&gateway, None))).await?;
            Ok(Response::new(wire::ShutdownResponse {}))
        })
        .await
    }
}

#[cfg(test)]
mod hook_tests;
#[cfg(test)]
mod tests;
