//! Reference plugin: redacts and truncates answers to users.
//!
//! It removes e-mail addresses and API keys from `content` and `reasoning`, and then truncates `content`.
//! In this order, truncation can't leave half an address behind. Characters are Unicode scalar values.
//!
//! If the gateway rejected a reply for its size, the redaction would be lost. So redaction never makes a
//! text longer, and notices and the truncation mark are left out if they don't fit.
#![warn(missing_docs)]

use std::num::NonZeroUsize;

use hookgate_redaction::{RedactedText, Redactor};
use hookgate_sdk::{
    Answer, BeforeResponsePatch, BeforeResponsePayload, Context, Host, InitError, Limits, NoConfig, Notice,
    Offer, Plugin, Point, Reply, ServeError,
};
use prost::Message as _;
use schemars::JsonSchema;
use serde::Deserialize;

/// Appended to a truncated content.
const TRUNCATION_MARK: &str = "\n[Response truncated]";
/// By how many bytes the mark can lengthen a payload. The content's length prefix may grow by 1 byte too.
const MAX_MARK_BYTES: usize = TRUNCATION_MARK.len() + 1;

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
    limits: Limits,
}

impl ResponseSanitizer {
    /// Whether a truncated content may become longer because of the mark.
    fn has_room(&self, response: &BeforeResponsePayload) -> bool {
        let max_payload = self.limits.max_reply_bytes.saturating_sub(self.limits.max_notice_bytes);
        // 0 means that the gateway did not say.
        max_payload == 0 || (response.encoded_len() + MAX_MARK_BYTES) as u64 <= max_payload
    }
}

impl Plugin for ResponseSanitizer {
    const NAME: &'static str = "response-sanitizer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeResponse.modify()]
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        let redactor = Redactor { emails: config.redact_emails, api_keys: config.redact_api_keys };
        Ok(ResponseSanitizer { redactor, max_length: config.max_response_length, limits: *host.limits() })
    }

    async fn before_response(
        &self,
        _: &Context,
        _: &NoConfig,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        let content = self.redactor.redact(&response.content);
        let reasoning = response.reasoning.as_deref().map(|text| self.redactor.redact(text));
        let any =
            |found: fn(&RedactedText<'_>) -> bool| found(&content) || reasoning.as_ref().is_some_and(found);
        let mut reply = Reply::proceed();
        if any(|redacted| redacted.emails) {
            reply = reply.notice(Notice::warn("EMAIL_REDACTED", "Email addresses redacted from response"));
        }
        if any(|redacted| redacted.api_keys) {
            reply =
                reply.notice(Notice::warn("API_KEY_REDACTED", "Potential API keys redacted from response"));
        }
        if let Some(reasoning) = reasoning.filter(RedactedText::changed) {
            reply = reply.reasoning(reasoning.text);
        }
        let cut = self.max_length.and_then(|limit| Some((limit, truncated(&content.text, limit.get())?)));
        if let Some((limit, text)) = cut {
            let mark = if self.has_room(&response) { TRUNCATION_MARK } else { "" };
            let message = format!("Response truncated to {limit} characters");
            reply =
                reply.content(format!("{text}{mark}")).notice(Notice::warn("RESPONSE_TRUNCATED", message));
        } else if content.changed() {
            reply = reply.content(content.text);
        }
        Ok(reply.fit_notices(&self.limits))
    }
}

/// The first `limit` characters; `None` if the text is short enough.
fn truncated(text: &str, limit: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(limit)?;
    Some(&text[..end])
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
