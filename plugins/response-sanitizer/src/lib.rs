//! Reference plugin: redacts and truncates answers to users.
//!
//! It removes e-mail addresses and API keys from `content` and `reasoning`, and then truncates `content`.
//! In this order, truncation can't leave half an address behind. Characters are Unicode scalar values.
//!
//! If the gateway rejected a reply for its size, the redaction would be lost. So redaction never makes a
//! text longer, and notices and the truncation mark are left out if they don't fit.
//!
//! An answer in windows becomes what the whole one becomes. Without a limit of its length, no more is kept back than may be a part of
//! an address or a key. With a limit, everything is kept back from the first match on, so that the number of characters that went out
//! is the window's offset, and an offset over the limit says that the answer was truncated.
#![warn(missing_docs)]

use std::num::NonZeroUsize;

use hookgate_redaction::{Detector, FoundInWindow, Match, Redaction, Redactor};
use hookgate_sdk::{
    Answer, BeforeResponsePatch, BeforeResponsePayload, Context, Host, InitError, Limits, NoConfig, Notice,
    Offer, Plugin, Point, Reply, ResponseWindow, ServeError, window::AnswerText,
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

    /// What becomes of a whole answer.
    fn sanitize(&self, response: &BeforeResponsePayload) -> Reply<BeforeResponsePatch> {
        let content = self.redactor.redact(&response.content, None);
        let reply = self.sanitize_reasoning(response, &content.found);
        let cut = self.max_length.and_then(|limit| Some((limit, truncated(&content.text, limit.get())?)));
        if let Some((limit, text)) = cut {
            let mark = if self.has_room(response) { TRUNCATION_MARK } else { "" };
            reply.content(format!("{text}{mark}")).notice(truncation(limit))
        } else if content.is_changed() {
            reply.content(content.text)
        } else {
            reply
        }
    }

    /// What becomes of a window.
    fn sanitize_window(
        &self,
        window: &ResponseWindow,
        response: &BeforeResponsePayload,
    ) -> Reply<BeforeResponsePatch> {
        let text = AnswerText::windowed(window, &response.content);
        let left = self.max_length.map(|limit| (limit, (limit.get() as u64).checked_sub(text.offset())));
        if let Some((_, None)) = left {
            return self.sanitize_reasoning(response, &[]).content(""); // it was truncated
        }
        let mut found = self.redactor.find_in_window(&text);
        let mut shown = self.shown(&text, &found);
        let mut truncated_to = None;
        if let Some((limit, Some(left))) = left {
            if let Some(short) = truncated(&shown, usize::try_from(left).unwrap_or(usize::MAX)) {
                (shown, truncated_to) = (format!("{short}{TRUNCATION_MARK}"), Some(limit));
            } else if !text.is_last() {
                found = found.before_matches();
                shown = self.shown(&text, &found);
            }
        }
        let reply = self.sanitize_reasoning(response, &found.found);
        let reply = reply.consumed(text.characters_before(found.cut));
        let reply = if shown == text.text()[text.start()..found.cut] { reply } else { reply.content(shown) };
        truncated_to.into_iter().fold(reply, |reply, limit| reply.notice(truncation(limit)))
    }

    /// The window up to the cut, redacted.
    fn shown(&self, text: &AnswerText<'_>, found: &FoundInWindow<'_>) -> String {
        self.redactor.mask(&text.text()[..found.cut], &found.found).split_off(text.start())
    }

    /// A reply with the redacted reasoning, and a remark for each kind of what was found there and in the `content`.
    fn sanitize_reasoning(
        &self,
        response: &BeforeResponsePayload,
        content: &[Match<'_>],
    ) -> Reply<BeforeResponsePatch> {
        let reasoning = response.reasoning.as_deref().map(|text| self.redactor.redact(text, None));
        let found = || content.iter().chain(reasoning.iter().flat_map(|reasoning| &reasoning.found));
        let any = |detector: Detector| found().any(|found| found.name() == detector.name());
        let mut reply = Reply::proceed();
        if any(Detector::Email) {
            reply = reply.notice(Notice::warn("EMAIL_REDACTED", "Email addresses redacted from response"));
        }
        if any(Detector::ApiKey) {
            reply =
                reply.notice(Notice::warn("API_KEY_REDACTED", "Potential API keys redacted from response"));
        }
        match reasoning.filter(Redaction::is_changed) {
            Some(reasoning) => reply.reasoning(reasoning.text),
            None => reply,
        }
    }
}

fn truncation(limit: NonZeroUsize) -> Notice {
    Notice::warn("RESPONSE_TRUNCATED", format!("Response truncated to {limit} characters"))
}

impl Plugin for ResponseSanitizer {
    const NAME: &'static str = "response-sanitizer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        // It reads all fields, because the size of the whole payload says whether a mark fits.
        vec![Point::BeforeResponse.modify().in_windows()]
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
        ctx: &Context,
        _: &NoConfig,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        let reply = match ctx.window() {
            Some(window) => self.sanitize_window(window, &response),
            None => self.sanitize(&response),
        };
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
