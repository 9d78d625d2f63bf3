//! Reference plugin: redacts and truncates what a user is shown.
//!
//! E-mail addresses and API keys disappear from `content` and `reasoning`; only then is `content` truncated, so
//! that no cut leaves half an address behind. Characters are Unicode scalar values.
#![warn(missing_docs)]

use std::num::NonZeroUsize;

use hookgate_redaction::{Redacted, Redactor};
use hookgate_sdk::{
    Answer, BeforeResponsePatch, BeforeResponsePayload, Context, Host, InitError, NoConfig, Notice, Offer,
    Plugin, Point, Reply, ServeError,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Stands behind a content that was cut.
const TRUNCATED: &str = "\n[Response truncated]";

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "response-sanitizer")]
pub struct Config {
    /// Replace e-mail addresses by `[EMAIL]`.
    #[serde(default)]
    pub redact_emails: bool,
    /// Replace what looks like an API key by `[REDACTED]`.
    #[serde(default)]
    pub redact_api_keys: bool,
    /// Longest content that passes uncut, in characters; absent for no limit.
    pub max_response_length: Option<NonZeroUsize>,
}

/// Redacts and truncates answers.
pub struct ResponseSanitizer {
    redactor: Redactor,
    max_length: Option<NonZeroUsize>,
}

impl Plugin for ResponseSanitizer {
    const NAME: &'static str = "response-sanitizer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeResponse.modify()]
    }

    async fn initialize(config: Config, _: Host) -> Result<Self, InitError> {
        let redactor = Redactor { emails: config.redact_emails, api_keys: config.redact_api_keys };
        Ok(ResponseSanitizer { redactor, max_length: config.max_response_length })
    }

    async fn before_response(
        &self,
        _: &Context,
        _: &NoConfig,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        let content = self.redactor.redact(&response.content);
        let reasoning = response.reasoning.as_deref().map(|text| self.redactor.redact(text));
        let any = |found: fn(&Redacted<'_>) -> bool| found(&content) || reasoning.as_ref().is_some_and(found);
        let mut reply = Reply::proceed();
        if any(|redacted| redacted.emails) {
            reply = reply.notice(Notice::warn("EMAIL_REDACTED", "Email addresses redacted from response"));
        }
        if any(|redacted| redacted.api_keys) {
            reply =
                reply.notice(Notice::warn("API_KEY_REDACTED", "Potential API keys redacted from response"));
        }
        if let Some(reasoning) = reasoning.filter(Redacted::changed) {
            reply = reply.reasoning(reasoning.text);
        }
        if let Some(limit) = self.max_length
            && let Some(cut) = truncate(&content.text, limit.get())
        {
            let message = format!("Response truncated to {limit} characters");
            return Ok(reply.content(cut).notice(Notice::warn("RESPONSE_TRUNCATED", message)));
        }
        Ok(if content.changed() { reply.content(content.text) } else { reply })
    }
}

/// The first `limit` characters with the remark behind them; `None` for a text that is short enough.
fn truncate(text: &str, limit: usize) -> Option<String> {
    let (end, _) = text.char_indices().nth(limit)?;
    Some(format!("{}{TRUNCATED}", &text[..end]))
}

/// Runs the plugin at `unix:///path` or `http://host:port` until SIGTERM or ctrl-c.
///
/// # Errors
/// When the address is wrong or taken.
pub async fn serve(address: &str) -> Result<(), ServeError> {
    hookgate_sdk::serve::<ResponseSanitizer>(address).await
}

#[cfg(test)]
mod tests;
