//! Reference plugin: limits and redacts what goes to a model.
//!
//! It checks the `text` of a request. The conversation in `messages` has the agent's own format and stays
//! unchanged. Characters are Unicode scalar values.
#![warn(missing_docs)]

use std::num::NonZeroUsize;

use hookgate_redaction::Redactor;
use hookgate_sdk::{
    Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload, Cancel, Context, Host, InitError, Limits,
    NoConfig, Notice, Offer, Plugin, Point, Reply, ServeError,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Code of the block when a text is too long.
const INPUT_TOO_LONG: &str = "INPUT_TOO_LONG";

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "content-policy")]
pub struct Config {
    /// Longest text that passes, in characters; absent for no limit.
    pub max_input_chars: Option<NonZeroUsize>,
    /// Replace e-mail addresses by `[EMAIL]`.
    #[serde(default)]
    pub redact_emails: bool,
    /// Replace what looks like an API key by `[REDACTED]`.
    #[serde(default)]
    pub redact_api_keys: bool,
}

/// Blocks texts that are too long, and redacts the others.
pub struct ContentPolicy {
    max_chars: Option<NonZeroUsize>,
    redactor: Redactor,
    limits: Limits,
}

impl Plugin for ContentPolicy {
    const NAME: &'static str = "content-policy";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeLlmRequest.modify()]
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        let redactor = Redactor { emails: config.redact_emails, api_keys: config.redact_api_keys };
        Ok(ContentPolicy { max_chars: config.max_input_chars, redactor, limits: *host.limits() })
    }

    async fn before_llm_request(
        &self,
        _: &Context,
        _: &NoConfig,
        request: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        if let Some(limit) = self.max_chars {
            let length = request.text.chars().count();
            if length > limit.get() {
                let cancel = Cancel::new(INPUT_TOO_LONG, format!("Input exceeds {limit} character limit"));
                let notice = Notice::block(INPUT_TOO_LONG, format!("Input length: {length}, limit: {limit}"));
                return Ok(Reply::from(cancel).notice(notice));
            }
        }
        let redacted = self.redactor.redact(&request.text);
        let mut reply = Reply::proceed();
        if redacted.emails {
            reply = reply.notice(Notice::warn("EMAIL_REDACTED", "Email addresses redacted from input"));
        }
        if redacted.api_keys {
            reply = reply.notice(Notice::warn("API_KEY_REDACTED", "Potential API keys redacted from input"));
        }
        reply = reply.fit_notices(&self.limits);
        Ok(if redacted.changed() { reply.text(redacted.text) } else { reply })
    }
}

/// Runs the plugin at `unix:///path` or `http://host:port` until SIGTERM or ctrl-c.
///
/// # Errors
/// When the address is wrong or taken.
pub async fn serve(address: &str) -> Result<(), ServeError> {
    hookgate_sdk::serve::<ContentPolicy>(address).await
}

#[cfg(test)]
mod tests;
