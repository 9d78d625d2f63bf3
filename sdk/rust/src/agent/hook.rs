//! Lifecycle hooks on the agent's side: the call, and what the plugins contributed.

use bytes::Bytes;
use hookgate_proto::gateway::v1::{
    self as wire, PluginNotice, RunHookRequest, RunHookResponse, hook_service_client::HookServiceClient,
};
use serde::{Serialize, de::DeserializeOwned};
use tonic::{Request, Response, Status, transport::Channel};

use super::{Agent, AnswerFacts, CallError, wire::AgentCall};
use crate::MAX_CALL_BYTES;

/// What the plugins contributed at a hook. The default is what an agent goes on with after an error: nothing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HookAnswer {
    /// In the order of the chain; those of one plugin in its own order.
    pub contributions: Vec<PluginContribution>,
    /// The plugins' notices, in the order of the chain.
    pub notices: Vec<PluginNotice>,
    /// Facts about the answer.
    pub answered: AnswerFacts,
}

impl HookAnswer {
    /// The contributions of one kind, in order.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &PluginContribution> {
        self.contributions.iter().filter(move |contribution| contribution.kind == kind)
    }

    /// The first contribution of one kind, for a kind of which the agent uses only one.
    pub fn first(&self, kind: &str) -> Option<&PluginContribution> {
        self.of_kind(kind).next()
    }
}

/// What one plugin contributed at a hook.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PluginContribution {
    /// The plugin, if the gateway reveals it.
    pub plugin: Option<String>,
    /// What it is, such as `memory`.
    pub kind: String,
    /// A JSON value.
    pub value: Bytes,
}

impl PluginContribution {
    /// Parses the value as your type, or as a [`serde_json::Value`].
    ///
    /// # Errors
    /// If the value doesn't fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.value)
    }
}

impl From<wire::PluginContribution> for PluginContribution {
    fn from(contribution: wire::PluginContribution) -> Self {
        let wire::PluginContribution { plugin, kind, value } = contribution;
        PluginContribution { plugin, kind, value }
    }
}

impl From<RunHookResponse> for HookAnswer {
    fn from(response: RunHookResponse) -> Self {
        HookAnswer {
            contributions: response.contributions.into_iter().map(PluginContribution::from).collect(),
            notices: response.notices,
            answered: AnswerFacts {
                request_id: response.request_id,
                plan_digest: response.plan_digest,
                revision: response.revision,
                steps: response.steps,
            },
        }
    }
}

/// The gateway didn't say what the plugins contributed. If the error names a plugin, an operator requires it at the hook
/// (`on_error: fail`): decide whether the agent may go on without.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no answer at the hook {hook}: {error}")]
#[non_exhaustive]
pub struct HookError {
    /// The hook of the call.
    pub hook: String,
    /// Why.
    pub error: Box<CallError>,
}

impl HookError {
    fn from_status(hook: &str, status: &Status) -> Self {
        HookError { hook: hook.to_owned(), error: Box::new(CallError::from_status(status)) }
    }
}

/// The method for every hook.
struct RunHook;

impl AgentCall for RunHook {
    type Request = RunHookRequest;
    type Response = RunHookResponse;

    async fn send(
        channel: Channel,
        request: Request<RunHookRequest>,
    ) -> Result<Response<RunHookResponse>, Status> {
        let mut client = HookServiceClient::new(channel).max_decoding_message_size(MAX_CALL_BYTES);
        client.run_hook(request).await
    }
}

impl Agent {
    /// Tells the tenant's plugins that something happened in the agent's life, such as `session_start`, and gathers what
    /// they contribute. `body` is a JSON object; docs/protocol.md has that of each known hook.
    ///
    /// A hook decides nothing. An agent that may go on without contributions goes on after an error as if nobody had
    /// contributed. If the error names a plugin, an operator requires that plugin (`on_error: fail`).
    ///
    /// ```no_run
    /// # use hookgate_sdk::agent::Agent;
    /// # async fn recall(agent: &Agent, message: &str) {
    /// let body = serde_json::json!({ "message": message });
    /// let answer = agent.run_hook("recall", &body).await.unwrap_or_default();
    /// # }
    /// ```
    ///
    /// # Errors
    /// The body can't be written as JSON, or the gateway doesn't answer or answers with an error.
    pub async fn run_hook<T: Serialize + ?Sized>(
        &self,
        hook: &str,
        body: &T,
    ) -> Result<HookAnswer, HookError> {
        let failed = |status: Status| HookError::from_status(hook, &status);
        let body = serde_json::to_vec(body)
            .map_err(|error| failed(Status::invalid_argument(format!("the body: {error}"))))?;
        let request = RunHookRequest {
            context: Some(self.context.clone()),
            hook: hook.to_owned(),
            body: body.into(),
            expect_plan_digest: self.plan.clone(),
        };
        self.send::<RunHook>(request).await.map(HookAnswer::from).map_err(failed)
    }
}

#[cfg(test)]
#[path = "hook_tests.rs"]
mod tests;
