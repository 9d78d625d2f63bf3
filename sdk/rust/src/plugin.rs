//! What a plugin author implements: the [`Plugin`] trait. Also what a gateway tells a plugin when it starts
//! it.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use hookgate_proto::plugin::v1::{InitializeRequest, Limits};

use crate::{
    AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Capability,
    Context, Event, HookOffer, HookPayload, HookReply, HostError, InitError, Log, Offer, PluginError, Reply,
    Storage, Tool,
    host_service::{HostClient, HostLinks},
};

/// A plugin's result at a point: a reply, or an error.
pub type Answer<Patch> = Result<Reply<Patch>, PluginError>;

/// A plugin.
///
/// One value of the type serves all calls with the same configuration, many at a time. While a
/// configuration changes, several values exist side by side. State that must survive a restart or be shared
/// between processes belongs in the [`Storage`].
///
/// The four point methods answer "continue" unless written, and [`Plugin::on_hook`] contributes nothing. Only points
/// that [`Plugin::points`] lists and hooks that [`Plugin::hooks`] lists are called. Write the methods as `async fn`.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// The name under which it is registered at the gateway.
    const NAME: &'static str;
    /// Its semantic version; `env!("CARGO_PKG_VERSION")` is right for most.
    const VERSION: &'static str;
    /// The capabilities that it asks for; the gateway rejects the plugin if they are not granted.
    const CAPABILITIES: &'static [Capability] = &[];

    /// The names that its tools may have, as globs with `*`, `?` and `[..]`, such as `memory.*`. The gateway's operator approves
    /// them, and the gateway rejects a tool with another name.
    const TOOL_NAMES: &'static [&'static str] = &[];

    /// Plugin-level configuration. It is set by the gateway's operator and may contain secrets. Reject
    /// unknown members with `#[serde(deny_unknown_fields)]`. Use [`NoConfig`](crate::NoConfig) if there is
    /// none.
    type Config: DeserializeOwned + JsonSchema + Send;
    /// Tenant-level configuration. It comes with each call, contains no secrets, and has no member with the
    /// same name as one of `Config`. Use [`NoConfig`](crate::NoConfig) if there is none.
    type TenantConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// The points it answers at, each once. At least one, unless it answers at a hook or provides a tool.
    fn points() -> Vec<Offer>;

    /// The lifecycle hooks it answers at, each once, at most 64.
    fn hooks() -> Vec<HookOffer> {
        Vec::new()
    }

    /// The tools it provides with its configuration, each name once, at most 64. An agent's call of one runs after all other
    /// plugins have let it pass. Called once, after [`Plugin::initialize`].
    fn tools(&self) -> Vec<Tool<Self>> {
        Vec::new()
    }

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

    /// Something happened in the agent's life: `payload.hook` says what. Nothing is decided here; the agent may use
    /// what the reply contributes. Parse the hook's body with [`json::parse`](crate::json::parse).
    ///
    /// After an error the binding's `on_error` decides, as at a point. By default, the agent gets the contributions of
    /// the other plugins.
    fn on_hook(
        &self,
        ctx: &Context,
        tenant: &Self::TenantConfig,
        payload: HookPayload,
    ) -> impl Future<Output = Result<HookReply, PluginError>> + Send {
        let _ = (ctx, tenant, payload);
        std::future::ready(Ok(HookReply::none()))
    }

    /// Called when no gateway uses this configuration any more, or when the process stops. Flush here;
    /// calls that began earlier may still be running. Must not exit the process.
    ///
    /// A gateway that crashes doesn't announce it. Its instances are flushed when the process stops, or
    /// when they make room for newer configurations.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// What a gateway tells a plugin when it starts it.
#[derive(Clone)]
pub struct Host {
    instance_id: String,
    capabilities: Vec<String>,
    limits: Limits,
    links: Arc<HostLinks>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("instance_id", &self.instance_id)
            .field("capabilities", &self.capabilities)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn from_request(request: &InitializeRequest, links: Arc<HostLinks>) -> Self {
        Host {
            links,
            instance_id: request.gateway_instance_id.clone(),
            capabilities: request.capabilities.clone(),
            limits: request.limits.unwrap_or_default(),
        }
    }

    /// The id of the gateway process.
    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    /// Whether the gateway granted `capability`.
    pub fn grants(&self, capability: Capability) -> bool {
        self.capabilities.iter().any(|granted| granted == capability.as_str())
    }

    /// The plugin's own data, which belongs to no tenant, at any gateway that uses this configuration. Keep the
    /// [`Storage`] or this `Host` for background work: the SDK renews the token while the plugin runs. Data of a
    /// tenant is reached with [`Context::storage`].
    pub fn storage(&self) -> Storage {
        Storage::new(self.client())
    }

    /// Writes to the gateway's log outside of calls. Keep the [`Log`], whose lines keep their order.
    pub fn log(&self) -> Log {
        Log::new(&self.client())
    }

    /// Emits an event for the gateway's operators outside of calls. Needs `Capability::Emit`.
    ///
    /// # Errors
    /// See [`HostError`]; [`HostError::RateLimited`] if the plugin emits more than 100 events per second.
    pub async fn emit(&self, event: Event) -> Result<(), HostError> {
        event.emit(&self.client()).await
    }

    fn client(&self) -> HostClient {
        self.links.keep_tokens();
        HostClient::for_plugin(Arc::clone(&self.links))
    }

    /// The size limits of replies; 0 where the gateway did not say.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The maximum size of a payload after a patch, encoded, and of a hook's contributions together; `None` if the
    /// gateway did not say. A larger one fails the step.
    pub fn max_payload_bytes(&self) -> Option<u64> {
        let max = self.limits.max_reply_bytes.saturating_sub(self.limits.max_notice_bytes);
        Some(max).filter(|max| *max > 0)
    }
}
