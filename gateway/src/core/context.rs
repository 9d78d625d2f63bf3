//! Who calls and for how long. Built once per call at the edge, immutable, passed first and named `ctx`.

use std::{collections::BTreeMap, sync::Arc};

use hookgate_proto::{gateway::v1::RequestContext, plugin::v1 as wire};
use tokio::time::Instant;
use uuid::Uuid;

/// Who a verified token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Tenant id: opaque, 1 to 256 bytes.
    pub tenant: Arc<str>,
    /// Who acts for the tenant.
    pub operator: Arc<str>,
    /// The end user, where the issuer maps it from a claim (empty if the token lacks that); the request may then
    /// not set it.
    pub user_id: Option<String>,
    /// Configured claims, keyed `claim.NAME`.
    pub claims: BTreeMap<String, String>,
}

/// Who calls, with what the agent says about its call, and until when.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// From the token.
    pub identity: Arc<Identity>,
    /// Our own id of this invocation (UUIDv7).
    pub request_id: Uuid,
    /// The caller's own `x-request-id`.
    pub correlation_id: Option<String>,
    /// The agent's word: opaque, checked for length and control characters. `labels` holds the claims too.
    pub request: RequestContext,
    /// When the call was received.
    pub received: Instant,
    /// Until when the caller waits (`grpc-timeout`, `Hookgate-Timeout-Ms`), where it said so.
    pub deadline: Option<Instant>,
    /// Calls through gateways so far, this one not counted (`hookgate-depth`); 0 to 3.
    pub depth: u32,
    /// Whether the answer says what each step changed.
    pub trace: bool,
}

impl CallContext {
    /// What plugins are told of it. The token is not among it.
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
        }
    }
}
