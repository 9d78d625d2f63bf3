//! What plugins are told about an agent that knows nothing of Hookgate: its conversation, its name, its user. All of it is the
//! agent's word, so no rule may rest on it alone.

use hookgate_proto::gateway::v1::RequestContext;
use http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::{core::context::Identity, llm::format::FormatRequest};

/// Headers that name a conversation, the first one counts: the gateway's own, Claude Code's, and three of Codex.
const SESSION_HEADERS: [&str; 5] =
    ["hookgate-session-id", "x-claude-code-session-id", "session_id", "session-id", "thread-id"];
const AGENT_HEADERS: [&str; 2] = ["hookgate-agent-id", "x-claude-code-agent-id"];
/// Longest value, in bytes (docs/protocol.md, section 1).
const MAX_VALUE_BYTES: usize = 256;

/// The context of the calls of one exchange. Values that plugins can't be told, because they are too long or hold control
/// characters, are left out.
pub(super) fn context(
    headers: &HeaderMap,
    request: &impl FormatRequest,
    identity: &Identity,
    provider: &str,
) -> RequestContext {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let named = SESSION_HEADERS.iter().find_map(|name| header(name)).and_then(fitting);
    let conversation = request.conversation();
    let named = named.or_else(|| conversation.session.and_then(fitting));
    let product = || header("user-agent").and_then(|agent| agent.split(['/', ' ']).next());
    let user_id = match &identity.user_id {
        // Empty: the issuer maps a claim to it, but this token has none.
        Some(of_token) => Some(of_token.clone()).filter(|id| !id.is_empty()),
        None => conversation.user.and_then(fitting),
    };
    RequestContext {
        session_id: Some(named.unwrap_or_else(|| derived(request, identity))),
        agent_id: AGENT_HEADERS.iter().find_map(|name| header(name)).or_else(product).and_then(fitting),
        user_id,
        provider: fitting(provider),
        model: fitting(request.model()),
        labels: identity.claims.clone(),
        ..RequestContext::default()
    }
}

fn fitting(value: &str) -> Option<String> {
    let fits = !value.is_empty() && value.len() <= MAX_VALUE_BYTES && !value.chars().any(char::is_control);
    fits.then(|| value.to_owned())
}

/// The same for all turns of a conversation, on every replica: from its first user message.
fn derived(request: &impl FormatRequest, identity: &Identity) -> String {
    let first = request.first_user_message();
    let mut hash = Sha256::new();
    for part in [identity.tenant.as_bytes(), identity.operator.as_bytes(), first.as_bytes()] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("d-{hex}")
}
