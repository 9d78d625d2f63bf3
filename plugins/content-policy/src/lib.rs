//! Reference plugin: limits, blocks and redacts what goes to a model.
//!
//! It checks the `text` of a request, and if it is set `tools` and `extra`. The conversation in `messages` has the agent's own format
//! and stays unchanged. Characters are Unicode scalar values.
#![warn(missing_docs)]

mod abuse;

use std::num::NonZeroUsize;

use hookgate_redaction::{Detector, Redactor, Text, ToolsAndExtra};
use hookgate_sdk::{
    Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload, Cancel, Context, Host, InitError, Limits,
    NoConfig, Notice, Offer, PayloadField, Plugin, PluginError, Point, Reply, ServeError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

pub use abuse::Abuse;
use abuse::AbuseRule;

/// Code of the block when `tools` or `extra` have what would be redacted.
const NOT_REDACTABLE: &str = "NOT_REDACTABLE";
/// Code of the block when a text is too long.
const INPUT_TOO_LONG: &str = "INPUT_TOO_LONG";

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "content-policy")]
pub struct Config {
    /// Longest text that passes, in characters; absent for no limit.
    pub max_input_chars: Option<NonZeroUsize>,
    /// What happens to a longer text; absent for `block`. Needs `max_input_chars`.
    pub on_too_long: Option<OnTooLong>,
    /// Replace e-mail addresses by `[EMAIL]`.
    #[serde(default)]
    pub redact_emails: bool,
    /// Replace what looks like an API key by `[REDACTED]`.
    #[serde(default)]
    pub redact_api_keys: bool,
    /// Texts to block.
    pub abuse: Option<Abuse>,
    /// What happens to a request whose `tools` or `extra` have what `abuse` blocks or the redaction finds; they aren't changed.
    #[serde(default)]
    pub tools_and_extra: ToolsAndExtra,
}

/// What happens to a text that is too long: `block` or `cut`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTooLong {
    /// The plugin cancels.
    Block,
    /// The characters beyond the limit are removed, after the redaction.
    Cut,
}

/// Blocks texts that are too long or abusive, and cuts and redacts the others.
pub struct ContentPolicy {
    max_chars: Option<NonZeroUsize>,
    cuts: bool,
    redactor: Redactor,
    abuse: Option<AbuseRule>,
    tools_and_extra: ToolsAndExtra,
    limits: Limits,
}

impl ContentPolicy {
    /// The block of a text that is abusive.
    fn block_abuse(
        &self,
        ctx: &Context,
        text: &str,
    ) -> Result<Option<Reply<BeforeLlmRequestPatch>>, PluginError> {
        let Some(abuse) = &self.abuse else { return Ok(None) };
        let Some(setting) = abuse.find(text, ctx.deadline()) else { return Ok(None) };
        let notice = Notice::block(&abuse.code, &abuse.message).details(&json!({ "matched": setting }))?;
        Ok(Some(Reply::cancel(&abuse.code, &abuse.message).notice(notice)))
    }

    /// The block of a request for its `tools` or `extra`.
    fn block_fixed(
        &self,
        ctx: &Context,
        request: &BeforeLlmRequestPayload,
    ) -> Result<Option<Reply<BeforeLlmRequestPatch>>, PluginError> {
        let judge = |text: &Text<'_>| match self.block_abuse(ctx, text.text).transpose() {
            None => self.redactor.fault_in(text).map(|message| {
                let notice = Notice::block(NOT_REDACTABLE, message.as_str());
                Ok(Reply::cancel(NOT_REDACTABLE, message).notice(notice))
            }),
            abuse => abuse,
        };
        self.tools_and_extra.first(request, judge)?.transpose()
    }

    /// The block of a text that is abusive or too long.
    fn block(&self, ctx: &Context, text: &str) -> Result<Option<Reply<BeforeLlmRequestPatch>>, PluginError> {
        if let Some(block) = self.block_abuse(ctx, text)? {
            return Ok(Some(block));
        }
        let Some(limit) = self.max_chars.filter(|_| !self.cuts) else { return Ok(None) };
        let length = text.chars().count();
        if length <= limit.get() {
            return Ok(None);
        }
        let cancel = Cancel::new(INPUT_TOO_LONG, format!("Input exceeds {limit} character limit"));
        let notice = Notice::block(INPUT_TOO_LONG, format!("Input length: {length}, limit: {limit}"));
        let details = json!({ "length": length, "limit": limit });
        Ok(Some(Reply::from(cancel).notice(notice.details(&details)?)))
    }
}

impl Plugin for ContentPolicy {
    const NAME: &'static str = "content-policy";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeLlmRequest.modify().reading_only(&[
            PayloadField::Text,
            PayloadField::Tools,
            PayloadField::Extra,
        ])]
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        if config.on_too_long.is_some() && config.max_input_chars.is_none() {
            return Err(InitError::config("on_too_long", "has no effect without `max_input_chars`: add it"));
        }
        let emails = config.redact_emails.then_some(Detector::Email);
        let api_keys = config.redact_api_keys.then_some(Detector::ApiKey);
        Ok(ContentPolicy {
            max_chars: config.max_input_chars,
            cuts: config.on_too_long == Some(OnTooLong::Cut),
            redactor: emails.into_iter().chain(api_keys).collect(),
            abuse: config.abuse.map(AbuseRule::from_settings).transpose()?,
            tools_and_extra: config.tools_and_extra,
            limits: *host.limits(),
        })
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        _: &NoConfig,
        request: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        let block = match self.block(ctx, &request.text)? {
            Some(block) => Some(block),
            None => self.block_fixed(ctx, &request)?,
        };
        if let Some(block) = block {
            return Ok(block.fit_notices(&self.limits));
        }
        let redacted = self.redactor.redact(&request.text, None);
        let mut reply = Reply::proceed();
        for (detector, code, message) in [
            (Detector::Email, "EMAIL_REDACTED", "Email addresses redacted from input"),
            (Detector::ApiKey, "API_KEY_REDACTED", "Potential API keys redacted from input"),
        ] {
            let count = redacted.count(detector);
            if count > 0 {
                reply = reply.notice(Notice::warn(code, message).details(&json!({ "count": count }))?);
            }
        }
        // After the redaction, so that no half of an address stays.
        let cut = self.max_chars.and_then(|limit| Some((limit, cut(&redacted.text, limit.get())?)));
        if let Some((limit, text)) = cut {
            let length = request.text.chars().count();
            let notice = Notice::warn("INPUT_TRUNCATED", format!("Input truncated to {limit} characters"));
            let details = json!({ "length": length, "limit": limit });
            reply = reply.text(text).notice(notice.details(&details)?);
        } else if redacted.is_changed() {
            reply = reply.text(redacted.text);
        }
        Ok(reply.fit_notices(&self.limits))
    }
}

/// The first `limit` characters; `None` if the text is short enough.
fn cut(text: &str, limit: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(limit)?;
    Some(&text[..end])
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
