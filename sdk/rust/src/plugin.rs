//! What a plugin author writes: the [`Plugin`] trait, and what a gateway tells a plugin when it starts it.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use hookgate_proto::plugin::v1::{InitializeRequest, Limits};

use crate::{
    AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Capability,
    Context, InitError, Offer, PluginError, Reply,
};

/// What a plugin answers at a point: a reply, or why it could not make one.
pub type Answer<Patch> = Result<Reply<Patch>, PluginError>;

/// A plugin.
///
/// One value of the type serves every call that names the same configuration, many at a time; several stand side
/// by side while a configuration changes. State that must survive a restart or be shared between processes
/// belongs elsewhere.
///
/// The four point methods answer "continue" unless written; only those that [`Plugin::points`] lists are called.
/// Write them as `async fn`.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// The name under which it is registered at the gateway.
    const NAME: &'static str;
    /// Its semantic version; `env!("CARGO_PKG_VERSION")` is right for most.
    const VERSION: &'static str;
    /// What it wants of the gateway; refused when not granted.
    const CAPABILITIES: &'static [Capability] = &[];

    /// Plugin-level configuration: set by whoever runs the gateway, may hold secrets. Refuse unknown members with
    /// `#[serde(deny_unknown_fields)]`. [`NoConfig`](crate::NoConfig) for none.
    type Config: DeserializeOwned + JsonSchema + Send;
    /// Tenant-level configuration: comes with each call, holds no secret, and shares no member's name with
    /// `Config`. [`NoConfig`](crate::NoConfig) for none.
    type TenantConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// The points it answers at, at least one, each once.
    fn points() -> Vec<Offer>;

    /// Starts it with a configuration. Called once per configuration; answer within 10 s.
    fn initialize(config: Self::Config, host: Host) -> impl Future<Output = Result<Self, InitError>> + Send;

    /// The agent is about to send user input to a model.
    fn before_llm_request(
        &self,
        ctx: &Context,
        tenant: &Self::TenantConfig,
        payload: BeforeLlmRequestPayload,
    ) -> impl Future<Output = Answer<BeforeLlmRequestPatch>> + Send {
        let _ = (ctx, tenant, payload);
        std::future::ready(Ok(Reply::proceed()))
    }

    /// The agent is about to run a tool.
    fn before_tool_call(
        &self,
        ctx: &Context,
        tenant: &Self::TenantConfig,
        payload: BeforeToolCallPayload,
    ) -> impl Future<Output = Answer<BeforeToolCallPatch>> + Send {
        let _ = (ctx, tenant, payload);
        std::future::ready(Ok(Reply::proceed()))
    }

    /// The agent is about to hand a tool's result, or its failure, back to the model.
    fn after_tool_result(
        &self,
        ctx: &Context,
        tenant: &Self::TenantConfig,
        payload: AfterToolResultPayload,
    ) -> impl Future<Output = Answer<AfterToolResultPatch>> + Send {
        let _ = (ctx, tenant, payload);
        std::future::ready(Ok(Reply::proceed()))
    }

    /// The agent is about to show the answer to the user.
    fn before_response(
        &self,
        ctx: &Context,
        tenant: &Self::TenantConfig,
        payload: BeforeResponsePayload,
    ) -> impl Future<Output = Answer<BeforeResponsePatch>> + Send {
        let _ = (ctx, tenant, payload);
        std::future::ready(Ok(Reply::proceed()))
    }

    /// No gateway uses this configuration any longer, or the process stops: flush. Calls that began before may
    /// still be under way. Never exits the process.
    ///
    /// A gateway that crashed doesn't say that it is gone: what it used is flushed when the process stops, or when
    /// the instance has to make room for newer configurations.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// What a gateway says of itself when it starts a plugin.
#[derive(Debug, Clone)]
pub struct Host {
    instance_id: String,
    capabilities: Vec<String>,
    limits: Limits,
}

impl Host {
    pub(crate) fn from_request(request: &InitializeRequest) -> Self {
        Host {
            instance_id: request.gateway_instance_id.clone(),
            capabilities: request.capabilities.clone(),
            limits: request.limits.unwrap_or_default(),
        }
    }

    /// Id of the gateway process.
    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    /// Whether the gateway granted it.
    pub fn grants(&self, capability: Capability) -> bool {
        self.capabilities.iter().any(|granted| granted == capability.as_str())
    }

    /// Sizes to keep to; 0 where the gateway did not say.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
