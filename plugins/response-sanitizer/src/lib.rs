//! Reference plugin: redacts and truncates answers to users.
//!
//! It removes e-mail addresses and API keys from `content` and `reasoning`, and then truncates `content`.
//! In this order, truncation can't leave half an address behind. Characters are Unicode scalar values.
//!
//! If the gateway rejected a reply for its size, the redaction would be lost. So redaction never makes a
//! text longer, and notices and the truncation mark are left out if they don't fit.
#![warn(missing_docs)]

use std::num::NonZeroUsize;

use hookgate_redaction::{Detector, Redaction, Redactor};
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
    max_payload: Option<u64>,
}

impl ResponseSanitizer {
    /// Whether a truncated content may become longer because of the mark.
    fn has_room(&self, response: &BeforeResponsePayload) -> bool {
        self.max_payload.is_none_or(|max| (response.encoded_len() + MAX_MARK_BYTES) as u64 <= max)
    }
}

impl Plugin for ResponseSanitizer {
    const NAME: &'static str = "response-sanitizer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        // It reads all fields, because the size of the whole payload says whether a mark fits.
        vec![Point::BeforeResponse.modify()]
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        let emails = config.redact_emails.then_some(Detector::Email);
        let api_keys = config.redact_api_keys.then_some(Detector::ApiKey);
        Ok(ResponseSanitizer {
            redactor: emails.into_iter().chain(api_keys).collect(),
            max_length: config.max_response_length,
            limits: *host.limits(),
            max_payload: host.max_payload_bytes(),
        })
    }

    async fn before_response(
        &self,
        _: &Context,
        _: &NoConfig,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        let content = self.redactor.redact(&response.content, None);
        let reasoning = response.reasoning.as_deref().map(|text| self.redactor.redact(text, None));
        let any = |detector| {
            content.count(detector) > 0 || reasoning.as_ref().is_some_and(|text| text.count(detector) > 0)
        };
        let mut reply = Reply::proceed();
        if any(Detector::Email) {
            reply = reply.notice(Notice::warn("EMAIL_REDACTED", "Email addresses redacted from response"));
        }
        if any(Detector::ApiKey) {
            reply =
                reply.notice(Notice::warn("API_KEY_REDACTED", "Potential API keys redacted from response"));
        }
        if let Some(reasoning) = reasoning.filter(Redaction::is_changed) {
            reply = reply.reasoning(reasoning.text);
        }
        let cut = self.max_length.and_then(|limit| Some((limit, truncated(&content.text, limit.get())?)));
        if let Some((limit, text)) = cut {
            let mark = if self.has_room(&response) { TRUNCATION_MARK } else { "" };
            let message = format!("Response truncated to {limit} characters");
            reply =
                reply.content(format!("{text}{mark}")).notice(Notice::warn("RESPONSE_TRUNCATED", message));
        } else if content.is_changed() {
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
