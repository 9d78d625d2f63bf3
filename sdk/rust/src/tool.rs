//! Tools that a plugin provides: typed functions, whose JSON Schemas are derived (docs/protocol.md, section 10).

use std::{fmt, pin::Pin, sync::Arc};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use hookgate_proto::types::v1::{self as types, ToolAnnotations};

use crate::{BeforeToolCallPatch, Cancel, Context, Plugin, PluginError, Reply, config, json};

/// The code of a block by a tool that failed.
const TOOL_FAILED: &str = "TOOL_FAILED";
/// The code of a block by a tool whose arguments don't fit its type.
const TOOL_ARGS_INVALID: &str = "TOOL_ARGS_INVALID";

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs a tool, given its arguments as JSON.
type RunTool<P> = dyn Fn(ToolCall<P, Bytes>) -> BoxFuture<Result<Bytes, ToolError>> + Send + Sync;

/// A tool that a plugin provides: an async function from typed arguments to a typed result.
///
/// ```
/// # use hookgate_sdk::*;
/// # use schemars::JsonSchema;
/// # use serde::Deserialize;
/// # struct Memory;
/// # impl Plugin for Memory {
/// #     const NAME: &'static str = "memory";
/// #     const VERSION: &'static str = "1.0.0";
/// #     type Config = NoConfig;
/// #     type TenantConfig = NoConfig;
/// #     fn points() -> Vec<Offer> { vec![] }
/// #     async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> { Ok(Memory) }
/// # }
/// /// The arguments. Doc comments become descriptions in the schema.
/// #[derive(Deserialize, JsonSchema)]
/// struct Retain {
///     /// What to remember.
///     fact: String,
/// }
///
/// async fn retain(call: ToolCall<Memory, Retain>) -> Result<String, ToolError> {
///     if call.args.fact.is_empty() {
///         return Err(ToolError::failed("There is nothing to remember."));
///     }
///     call.context.storage().put("fact", call.args.fact).await?;
///     Ok("Remembered.".to_owned())
/// }
///
/// let tool = Tool::new("memory.retain", "Remembers a fact.", retain).destructive(false);
/// ```
pub struct Tool<P: Plugin> {
    definition: types::Tool,
    run: Arc<RunTool<P>>,
}

impl<P: Plugin> Clone for Tool<P> {
    fn clone(&self) -> Self {
        Tool { definition: self.definition.clone(), run: Arc::clone(&self.run) }
    }
}

impl<P: Plugin> fmt::Debug for Tool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.definition.name).finish()
    }
}

/// A call of a tool.
pub struct ToolCall<P: Plugin, Args> {
    /// The plugin with the configuration of the call.
    pub plugin: Arc<P>,
    /// Who calls, and how much time is left.
    pub context: Context,
    /// Tenant-level configuration.
    pub tenant_config: Arc<P::TenantConfig>,
    /// The arguments.
    pub args: Args,
}

impl<P: Plugin> Tool<P> {
    /// The tool `name` (`[A-Za-z0-9_.-]{1,128}`), whose `description` tells the model what it does. Arguments that don't fit
    /// the type are refused with a message that the model sees.
    pub fn new<Args, R, F, Fut>(name: impl Into<String>, description: impl Into<String>, run: F) -> Self
    where
        Args: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize,
        F: Fn(ToolCall<P, Args>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let definition = types::Tool {
            name: name.into(),
            description: description.into(),
            input_schema: config::schema::<Args>(),
            annotations: None,
        };
        let run = move |ToolCall { plugin, context, tenant_config, args }: ToolCall<P, Bytes>| {
            let called = config::parse_config::<Args>(&args)
                .map(|args| run(ToolCall { plugin, context, tenant_config, args }))
                .map_err(|fault| {
                    ToolError::refused(TOOL_ARGS_INVALID, format!("The arguments are wrong: {fault}"))
                });
            let run = async move { json::to_bytes(&called?.await?).map_err(ToolError::from) };
            Box::pin(run) as BoxFuture<_>
        };
        Tool { definition, run: Arc::new(run) }
    }

    /// Sets the name for people.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        self.annotate(|annotations| annotations.title = Some(title.into()))
    }

    /// Says whether the tool only reads.
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Self {
        self.annotate(|annotations| annotations.read_only_hint = Some(read_only))
    }

    /// Says whether the tool may delete or overwrite.
    #[must_use]
    pub fn destructive(self, destructive: bool) -> Self {
        self.annotate(|annotations| annotations.destructive_hint = Some(destructive))
    }

    /// Says whether a repeated call with the same arguments changes nothing more.
    #[must_use]
    pub fn idempotent(self, idempotent: bool) -> Self {
        self.annotate(|annotations| annotations.idempotent_hint = Some(idempotent))
    }

    /// Says whether the tool reaches beyond the plugin, for example the web.
    #[must_use]
    pub fn open_world(self, open_world: bool) -> Self {
        self.annotate(|annotations| annotations.open_world_hint = Some(open_world))
    }

    fn annotate(mut self, set: impl FnOnce(&mut ToolAnnotations)) -> Self {
        set(self.definition.annotations.get_or_insert_default());
        self
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub(crate) fn definition(&self) -> &types::Tool {
        &self.definition
    }

    /// Runs the tool. The reply is what the gateway expects: a cancel with the result, or with the refusal.
    pub(crate) async fn run(
        &self,
        call: ToolCall<P, Bytes>,
    ) -> Result<Reply<BeforeToolCallPatch>, PluginError> {
        match (self.run)(call).await {
            Ok(result) => Ok(Cancel::from_result(result, "").into()),
            Err(ToolError(ToolFailure::Refused(cancel))) => Ok(cancel.into()),
            Err(ToolError(ToolFailure::Plugin(error))) => Err(error),
        }
    }
}

/// Why a tool gave no result.
///
/// `?` converts any error into a failure of the plugin: the agent gets no decision. To let the model see what is wrong, use
/// [`ToolError::failed`].
#[derive(Debug)]
pub struct ToolError(ToolFailure);

#[derive(Debug)]
enum ToolFailure {
    Refused(Cancel),
    Plugin(PluginError),
}

impl ToolError {
    /// The tool could not do what the arguments ask for. The agent gets a block with the code `TOOL_FAILED`, and shows
    /// `message` to the model as the tool's error.
    pub fn failed(message: impl Into<String>) -> Self {
        ToolError::refused(TOOL_FAILED, message)
    }

    /// Like [`failed`](Self::failed), with a code of your own, which decides the HTTP status.
    pub fn refused(code: impl Into<String>, message: impl Into<String>) -> Self {
        ToolError(ToolFailure::Refused(Cancel::new(code, message)))
    }
}

impl From<Cancel> for ToolError {
    fn from(cancel: Cancel) -> Self {
        ToolError(ToolFailure::Refused(cancel))
    }
}

impl From<PluginError> for ToolError {
    fn from(error: PluginError) -> Self {
        ToolError(ToolFailure::Plugin(error))
    }
}

impl<E: std::error::Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        PluginError::from(error).into()
    }
}
