//! Calls a plugin in a test as a gateway would: Describe, Initialize and calls go through the real gRPC
//! service, and messages are encoded and decoded. There is no socket and no separate process.
//!
//! ```
//! # use hookgate_sdk::{*, harness::TestPlugin};
//! # struct Quiet;
//! # impl Plugin for Quiet {
//! #     const NAME: &'static str = "quiet";
//! #     const VERSION: &'static str = "1.0.0";
//! #     type Config = NoConfig;
//! #     type TenantConfig = NoConfig;
//! #     fn points() -> Vec<Offer> { vec![Point::BeforeToolCall.read()] }
//! #     async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> { Ok(Quiet) }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plugin = TestPlugin::<Quiet>::start(&NoConfig {}).await?;
//! let call = BeforeToolCallPayload { tool_name: "fs.read".into(), ..Default::default() };
//! let reply = plugin.with_tenant("acme").before_tool_call(call).await?;
//! assert_eq!(reply.verdict(), &Verdict::Continue);
//! # Ok(())
//! # }
//! ```
//!
//! The plugin gets a [`TestHost`], an implementation of the gateway's services in memory.
//! [`TestPlugin::start_with_host`] shares one among several plugins or replicas.

mod memory;
mod records;
mod reply_rules;
mod test_host;
mod validation;
mod windows;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use serde::Serialize;
use tonic::{Request, Status};

use hookgate_proto::{
    HookName, SelectFields,
    plugin::v1::{
        self as wire, Call, CallContext, ChainResult, plugin_service_client::PluginServiceClient,
        plugin_service_server::PluginServiceServer,
    },
    types::v1 as types,
};

pub use self::{
    records::{TestEvent, TestLogLine},
    test_host::TestHost,
    windows::WindowedAnswer,
};
use crate::{
    Access, AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, HookPayload,
    HookReply, PayloadFields, Plugin, PluginHost, Point, Reply, Storage, Verdict, host,
    wire::{AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, CallWire, OnHook, PointWire},
};

/// The maximum size of a schema, in bytes (docs/protocol.md, section 2).
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// How many hooks a manifest may list.
const MAX_HOOKS: usize = 64;

/// A plugin that was described and initialised, ready for calls.
///
/// The `with_` methods give another handle to the same instance, for another tenant, configuration or limit.
pub struct TestPlugin<P: Plugin> {
    client: PluginServiceClient<PluginServiceServer<PluginHost<P>>>,
    call: Call,
    tools: Vec<types::Tool>,
    host: TestHost,
    time_left: Option<Duration>,
}

impl<P: Plugin> Clone for TestPlugin<P> {
    fn clone(&self) -> Self {
        TestPlugin {
            client: self.client.clone(),
            call: self.call.clone(),
            tools: self.tools.clone(),
            host: self.host.clone(),
            time_left: self.time_left,
        }
    }
}

impl<P: Plugin> TestPlugin<P> {
    /// Checks the plugin's manifest, then starts the plugin with a plugin-level configuration and new services.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a gateway would reject the manifest; otherwise the plugin's error for the
    /// configuration.
    pub async fn start<C: Serialize + ?Sized>(config: &C) -> Result<Self, Status> {
        Self::start_with_host(config, &TestHost::new()).await
    }

    /// Like [`start`](Self::start), with these services. Two plugins of the same type over one `TestHost` are like two
    /// replicas.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub async fn start_with_host<C: Serialize + ?Sized>(
        config: &C,
        test_host: &TestHost,
    ) -> Result<Self, Status> {
        let service = host::service_with_host::<P>(test_host.host_service());
        let mut client = PluginServiceClient::new(service);
        let describe = wire::DescribeRequest { protocol_versions: vec![1], ..Default::default() };
        let manifest = client.describe(describe).await?.into_inner();
        check(&manifest).map_err(Status::failed_precondition)?;
        let config = json(config)?;
        let initialized = client
            .initialize(wire::InitializeRequest {
                config_digest: digest(&config),
                config: config.clone(),
                capabilities: P::CAPABILITIES.iter().map(|c| c.as_str().to_owned()).collect(),
                gateway_instance_id: "test".to_owned(),
                host_endpoint: String::new(),
                host_token: test_host.issue(P::NAME, None, P::CAPABILITIES),
                limits: Some(reply_rules::LIMITS),
            })
            .await?;
        let tools = initialized.into_inner().tools;
        check_tools(&manifest.tools, &tools).map_err(Status::failed_precondition)?;
        let context = CallContext {
            tenant: "test-tenant".to_owned(),
            operator: "test-operator".to_owned(),
            request_id: "01930000-0000-7000-8000-000000000000".to_owned(),
            ..Default::default()
        };
        let call = Call { context: Some(context), config_digest: digest(&config), ..Default::default() };
        Ok(TestPlugin { client, call, tools, host: test_host.clone(), time_left: None })
    }

    /// Calls with this tenant-level configuration; the default is an empty object.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it can't be serialized to JSON.
    pub fn with_tenant_config<C: Serialize + ?Sized>(&self, config: &C) -> Result<Self, Status> {
        let mut other = self.clone();
        other.call.tenant_config = json(config)?;
        other.call.tenant_config_digest = digest(&other.call.tenant_config);
        Ok(other)
    }

    /// Calls for this tenant; the default is `test-tenant`.
    #[must_use]
    pub fn with_tenant(&self, tenant: &str) -> Self {
        self.with_context(|context| tenant.clone_into(&mut context.tenant))
    }

    /// Calls with a changed context.
    #[must_use]
    pub fn with_context(&self, change: impl FnOnce(&mut CallContext)) -> Self {
        let mut other = self.clone();
        change(other.call.context.get_or_insert_default());
        other
    }

    /// Calls it as an observer, after a chain that ended like this.
    #[must_use]
    pub fn with_chain_result(&self, result: ChainResult) -> Self {
        let mut other = self.clone();
        other.call.chain_result = Some(result);
        other
    }

    /// Tells the plugin that it has this much time left. It is not enforced. The default is no limit.
    #[must_use]
    pub fn with_time_left(&self, left: Duration) -> Self {
        TestPlugin { time_left: Some(left), ..self.clone() }
    }

    /// The gateway's services that the plugin uses.
    pub fn test_host(&self) -> &TestHost {
        &self.host
    }

    /// The plugin's data for the tenant, for the test to prepare or to read. It may read and write, whatever the
    /// plugin's capabilities are.
    pub fn storage(&self) -> Storage {
        self.host.storage_of(P::NAME, Some(self.tenant()))
    }

    /// The plugin's own data, which belongs to no tenant. It may read and write, whatever the plugin's capabilities
    /// are.
    pub fn plugin_storage(&self) -> Storage {
        self.host.storage_of(P::NAME, None)
    }

    fn tenant(&self) -> &str {
        self.call.context.as_ref().map_or("", |context| &context.tenant)
    }

    /// Calls it at `before_llm_request`.
    ///
    /// # Errors
    /// The plugin's error; INTERNAL for a reply that a gateway would reject.
    pub async fn before_llm_request(
        &self,
        payload: BeforeLlmRequestPayload,
    ) -> Result<Reply<BeforeLlmRequestPatch>, Status> {
        let request = self.point_request::<BeforeLlmRequest>(payload);
        Self::reply::<BeforeLlmRequest>(self.client.clone().before_llm_request(request).await?.into_inner())
    }

    /// Calls it at `before_tool_call`.
    ///
    /// # Errors
    /// The plugin's error; INTERNAL for a reply that a gateway would reject.
    pub async fn before_tool_call(
        &self,
        payload: BeforeToolCallPayload,
    ) -> Result<Reply<BeforeToolCallPatch>, Status> {
        let request = self.point_request::<BeforeToolCall>(payload);
        Self::reply::<BeforeToolCall>(self.client.clone().before_tool_call(request).await?.into_inner())
    }

    /// The tools that the plugin provides with its configuration.
    pub fn tools(&self) -> &[types::Tool] {
        &self.tools
    }

    /// Runs one of the plugin's tools, as a gateway does after all other plugins have let the call pass. The verdict is a
    /// cancel: [`Cancel::result_json`](crate::Cancel::result_json) has the result, or the code and the message say why
    /// there is none.
    ///
    /// # Errors
    /// The plugin's error; NOT_FOUND if it doesn't provide the tool; INVALID_ARGUMENT if the arguments can't be written as
    /// JSON.
    pub async fn run_tool<A: Serialize + ?Sized>(
        &self,
        tool: &str,
        args: &A,
    ) -> Result<Reply<BeforeToolCallPatch>, Status> {
        let payload =
            BeforeToolCallPayload { tool_name: tool.to_owned(), args: json(args)?, ..Default::default() };
        let mut request = self.request::<BeforeToolCall>(payload);
        if let Some(call) = &mut request.get_mut().call {
            call.run_tool = true;
        }
        read::<BeforeToolCall>(self.client.clone().before_tool_call(request).await?.into_inner())
    }

    /// Calls it at `after_tool_result`.
    ///
    /// # Errors
    /// The plugin's error; INTERNAL for a reply that a gateway would reject.
    pub async fn after_tool_result(
        &self,
        payload: AfterToolResultPayload,
    ) -> Result<Reply<AfterToolResultPatch>, Status> {
        let request = self.point_request::<AfterToolResult>(payload);
        Self::reply::<AfterToolResult>(self.client.clone().after_tool_result(request).await?.into_inner())
    }

    /// Calls it at `before_response`.
    ///
    /// # Errors
    /// The plugin's error; INTERNAL for a reply that a gateway would reject.
    pub async fn before_response(
        &self,
        payload: BeforeResponsePayload,
    ) -> Result<Reply<BeforeResponsePatch>, Status> {
        let request = self.point_request::<BeforeResponse>(payload);
        Self::reply::<BeforeResponse>(self.client.clone().before_response(request).await?.into_inner())
    }

    /// Calls it at a lifecycle hook, with a JSON object as the hook's body.
    ///
    /// # Errors
    /// The plugin's error; INVALID_ARGUMENT if the body can't be written as JSON; INTERNAL for a reply that a gateway would
    /// reject. The schemas of known hooks are not checked.
    pub async fn on_hook<B: Serialize + ?Sized>(&self, hook: &str, body: &B) -> Result<HookReply, Status> {
        let payload = HookPayload { hook: hook.to_owned(), body: json(body)? };
        let response = self.client.clone().on_hook(self.request::<OnHook>(payload)).await?.into_inner();
        let reply = read::<OnHook>(response)?;
        reply_rules::check_hook_reply(&reply).map_err(Status::internal)?;
        Ok(reply)
    }

    /// Shuts the plugin down, as a gateway does at its end.
    ///
    /// # Errors
    /// INTERNAL if the plugin panics.
    pub async fn shutdown(self) -> Result<(), Status> {
        let request = wire::ShutdownRequest { gateway_instance_id: "test".to_owned() };
        self.client.clone().shutdown(request).await.map(drop)
    }

    /// The payload as a gateway sends it, without the fields that the plugin doesn't read.
    fn point_request<W: PointWire<Payload: SelectFields>>(&self, payload: W::Payload) -> Request<W::Request> {
        let reads =
            P::points().into_iter().find(|offer| offer.point == W::POINT).and_then(|offer| offer.reads);
        match reads {
            Some(fields) => self.request::<W>(payload.select_fields(fields)),
            None => self.request::<W>(payload),
        }
    }

    fn request<W: CallWire>(&self, payload: W::Payload) -> Request<W::Request> {
        let mut call = self.call.clone();
        call.host_token = self.host.issue(P::NAME, Some(self.tenant()), P::CAPABILITIES);
        let mut request = Request::new(W::request(call, payload));
        if let Some(left) = self.time_left {
            request.set_timeout(left);
        }
        request
    }

    fn reply<W: PointWire>(response: W::Response) -> Result<Reply<W::Patch>, Status> {
        let reply = read::<W>(response)?;
        let reads = P::points().iter().any(|offer| offer.point == W::POINT && offer.access == Access::Read);
        if reads && reply.modify.is_some() {
            return Err(Status::internal(format!(
                "a patch is forbidden: {} offers READ at {}",
                P::NAME,
                W::POINT
            )));
        }
        // Of a cancel, the gateway keeps the valid notices.
        if reply.verdict == Verdict::Continue {
            reply_rules::check_notices(&reply.notices).map_err(Status::internal)?;
        }
        Ok(reply)
    }
}

fn read<W: CallWire>(response: W::Response) -> Result<W::Reply, Status> {
    W::reply(response).ok_or_else(|| Status::internal("the reply has no verdict"))
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, Status> {
    crate::json::to_bytes(value).map_err(crate::PluginError::into_status)
}

/// Digests are opaque to a plugin, so the text itself can serve as its digest.
fn digest(config: &Bytes) -> String {
    String::from_utf8_lossy(config).into_owned()
}

/// Why any gateway would reject the manifest.
fn check(manifest: &wire::DescribeResponse) -> Result<(), String> {
    if let Err(error) = semver::Version::parse(&manifest.version) {
        return Err(format!("VERSION `{}` isn't a semantic version: {error}", manifest.version));
    }
    check_offers(manifest)?;
    for (level, schema) in
        [("Config", &manifest.config_schema), ("TenantConfig", &manifest.tenant_config_schema)]
    {
        if schema.len() > MAX_SCHEMA_BYTES {
            return Err(format!("the JSON Schema of {level} is over 64 KiB"));
        }
    }
    let plugin_level = properties(&manifest.config_schema)?;
    match properties(&manifest.tenant_config_schema)?.intersection(&plugin_level).next() {
        Some(shared) => Err(format!("Config and TenantConfig both name `{shared}`: rename one")),
        None => Ok(()),
    }
}

fn check_offers(manifest: &wire::DescribeResponse) -> Result<(), String> {
    let wire::DescribeResponse { points, hooks, tools, .. } = manifest;
    if points.is_empty() && hooks.is_empty() && tools.is_empty() {
        return Err("points() must list a point, hooks() a hook, or TOOL_NAMES a name".to_owned());
    }
    if points.iter().map(|offer| offer.point).collect::<BTreeSet<_>>().len() != points.len() {
        return Err("points() must list each point once".to_owned());
    }
    for offer in points {
        if let (Some(point), Some(reads)) = (Point::from_wire(offer.point()), &offer.reads) {
            PayloadFields::from_names(point, &reads.names).map_err(|error| error.to_string())?;
        }
        if let Some(point) = Point::from_wire(offer.point()).filter(|_| offer.windows) {
            let names = offer.reads.as_ref().map(|reads| PayloadFields::from_names(point, &reads.names));
            point.check_windows(names.and_then(Result::ok))?;
        }
    }
    if hooks.len() > MAX_HOOKS {
        return Err(format!("hooks() must list at most {MAX_HOOKS} hooks"));
    }
    let mut names = BTreeSet::new();
    for offer in hooks {
        let name =
            HookName::new(&offer.hook).map_err(|error| format!("hooks() lists `{}`: {error}", offer.hook))?;
        if !names.insert(name) {
            return Err("hooks() must list each hook once".to_owned());
        }
    }
    Ok(())
}

/// Why any gateway would reject the tools of a plugin whose manifest covers `names`.
fn check_tools(names: &[String], tools: &[types::Tool]) -> Result<(), String> {
    hookgate_proto::check_tools(tools)?;
    let covered = hookgate_glob::compile("TOOL_NAMES", names).map_err(|error| error.to_string())?;
    for types::Tool { name, input_schema, .. } in tools {
        if !covered.is_match(name) {
            return Err(format!("no glob in TOOL_NAMES covers the tool `{name}`"));
        }
        let schema: serde_json::Value =
            serde_json::from_slice(input_schema).map_err(|error| error.to_string())?;
        if schema.get("type").and_then(serde_json::Value::as_str) != Some("object") {
            return Err(format!("the arguments of `{name}` must be a struct with named fields"));
        }
    }
    Ok(())
}

fn properties(schema: &[u8]) -> Result<BTreeSet<String>, String> {
    let schema: serde_json::Value = serde_json::from_slice(schema).map_err(|error| error.to_string())?;
    let named = schema.get("properties").and_then(serde_json::Value::as_object);
    Ok(named.map(|members| members.keys().cloned().collect()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tool_tests;
