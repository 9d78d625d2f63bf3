//! The context of a call: who calls, where plugins are called, and for how long. Built once per call at the edge, immutable, passed
//! first and named `ctx`.

use std::{collections::BTreeMap, sync::Arc};

use hookgate_proto::{gateway::v1::RequestContext, plugin::v1 as wire};
use tokio::time::Instant;
use uuid::Uuid;

use super::{call_site::CallSite, point::Point};

/// The identity that a verified token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Tenant id: opaque, 1 to 256 bytes.
    pub tenant: Arc<str>,
    /// The operator who acts for the tenant.
    pub operator: Arc<str>,
    /// The end user, if the issuer maps a claim to it; empty if the token lacks the claim. If set, the
    /// request can't override it.
    pub user_id: Option<String>,
    /// Configured claims, keyed `claim.NAME`.
    pub claims: BTreeMap<String, String>,
}

/// Who calls, where plugins are called, what the agent reports about its call, and the deadline.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The point or the hook.
    pub site: CallSite,
    /// From the token.
    pub identity: Arc<Identity>,
    /// The gateway's id of this invocation (UUIDv7).
    pub request_id: Uuid,
    /// The caller's own `x-request-id`.
    pub correlation_id: Option<String>,
    /// As reported by the agent: opaque, checked for length and control characters. `labels` includes the
    /// claims.
    pub request: RequestContext,
    /// When the call was received.
    pub received: Instant,
    /// The caller's deadline (`grpc-timeout`, `Hookgate-Timeout-Ms`), if it set one.
    pub deadline: Option<Instant>,
    /// How many gateways the call has passed before this one (`hookgate-depth`); 0 to 3.
    pub depth: u32,
    /// Whether the answer includes the changes of each step.
    pub trace: bool,
    /// Whether the agent takes a tool's result from a plugin.
    pub takes_results: bool,
    /// The request to a model that the call is a part of.
    pub exchange: Option<ExchangePart>,
}

/// A call's place in a request to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangePart {
    /// The request's id (UUIDv7).
    pub id: Uuid,
    /// What plugins are asked about.
    pub kind: QuestionKind,
}

/// What plugins are asked about in one call of a request to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKind {
    /// The request or the answer as a whole, or a tool call.
    Main,
    /// A message or a tool result of the current turn, or a further text of the answer.
    Unit,
    /// A message or a tool result of an earlier turn, about which plugins were asked before.
    Replay,
}

impl CallContext {
    /// Whether plugins are asked again about a part of a conversation.
    pub fn is_replay(&self) -> bool {
        self.exchange.is_some_and(|exchange| exchange.kind == QuestionKind::Replay)
    }

    /// Whether plugins are asked about one message, new or earlier, or one text of the answer, and another call stands for the request
    /// or the answer as a whole.
    fn is_part(&self) -> bool {
        let is_unit = self.exchange.is_some_and(|exchange| exchange.kind != QuestionKind::Main);
        is_unit && matches!(self.site.point(), Some(Point::BeforeLlmRequest | Point::BeforeResponse))
    }

    /// The part of the context that plugins get. Doesn't include the token.
    pub fn for_plugins(&self) -> wire::CallContext {
        let said = &self.request;
        wire::CallContext {
            tenant: self.identity.tenant.to_string(),
            operator: self.identity.operator.to_string(),
            request_id: self.request_id.to_string(),
            correlation_id: self.correlation_id.clone(),
            labels: said.labels.clone(),
            session_id: said.session_id.clone(),
            run_id: said.run_id.clone(),
            parent_run_id: said.parent_run_id.clone(),
            depth: said.depth,
            agent_id: said.agent_id.clone(),
            agent_path: said.agent_path.clone(),
            project_id: said.project_id.clone(),
            user_id: said.user_id.clone(),
            provider: said.provider.clone(),
            model: said.model.clone(),
            exchange_id: self.exchange.map(|exchange| exchange.id.to_string()),
            replay: self.is_replay(),
            part: self.is_part(),
        }
    }
}
