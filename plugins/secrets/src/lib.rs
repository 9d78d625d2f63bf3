//! Reference plugin: finds secrets at all four points, and blocks or redacts them.
//!
//! It looks at the texts that [`TextPayload`] names: strings, also within JSON values, the names of members, and
//! numbers. A notice says which detector found something and where, never what.
#![warn(missing_docs)]

mod findings;

use hookgate_redaction::{Detector, Redactor, Text, TextKind, TextPayload, ToolsAndExtra};
use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host,
    InitError, Limits, NoConfig, Notice, Offer, PayloadField, Plugin, Point, Reply,
};
use schemars::JsonSchema;
use serde::Deserialize;

use findings::Findings;

/// The code of the block.
const SECRET_FOUND: &str = "SECRET_FOUND";
/// The code of the notice of a redaction.
const SECRET_REDACTED: &str = "SECRET_REDACTED";

/// Detectors that the default leaves out: an address is no secret, and `api_key` also finds UUIDs and hashes.
const LEFT_OUT: [Detector; 2] = [Detector::Email, Detector::ApiKey];

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "secrets")]
pub struct Config {
    /// What happens to a payload with a secret.
    #[serde(default)]
    pub action: Action,
    /// What to look for; absent for all detectors but `email` and `api_key`.
    pub detectors: Option<Vec<Detector>>,
    /// Detectors of these to leave out.
    #[serde(default)]
    pub except: Vec<Detector>,
    /// What happens to a request with a secret in `tools` or `extra`, which can't be replaced there; absent for `block`.
    pub tools_and_extra: Option<ToolsAndExtra>,
}

/// What happens to a payload with a secret: `block` or `redact`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The plugin cancels.
    #[default]
    Block,
    /// Masks replace the secrets. If one can't be replaced, the plugin cancels.
    Redact,
}

/// Blocks or redacts secrets.
pub struct Secrets {
    action: Action,
    redactor: Redactor,
    tools_and_extra: ToolsAndExtra,
    limits: Limits,
}

impl Secrets {
    fn answer<P: TextPayload>(&self, ctx: &Context, point: Point, payload: &P) -> Answer<P::Patch> {
        let redactor = self.redactor.clone().until(ctx.deadline());
        let mut findings = Findings::default();
        let mut search = |text: &Text<'_>| {
            let found = redactor.find_in(text);
            found.iter().for_each(|found| findings.add(found.name(), text, &redactor));
            found
        };
        let replaced = payload.replace_texts(&mut |text| {
            let found = search(text);
            let is_masked = self.action == Action::Redact && text.kind != TextKind::Name && !found.is_empty();
            is_masked.then(|| redactor.mask(text.text, &found))
        })?;
        if self.tools_and_extra == ToolsAndExtra::Block {
            payload.look_at_fixed(&mut |text| drop(search(text)))?;
        }
        if findings.is_empty() {
            return Ok(Reply::proceed());
        }
        let max_details = match self.limits.max_details_bytes {
            0 => usize::MAX, // the gateway did not say
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let details = findings.details(max_details)?;
        let summary = findings.summary();
        let reply = match replaced.patch {
            Some(patch) if !findings.any_unmaskable => {
                let notice = Notice::warn(SECRET_REDACTED, format!("Redacted: {summary}"));
                Reply::proceed().patch(patch).notice(notice.details(&details)?)
            }
            _ => {
                let message = format!("{} a secret: {summary}", contains(point));
                Reply::cancel(SECRET_FOUND, message.as_str())
                    .notice(Notice::block(SECRET_FOUND, message).details(&details)?)
            }
        };
        Ok(reply.fit_notices(&self.limits))
    }
}

/// The beginning of a message about a payload.
fn contains(point: Point) -> &'static str {
    match point {
        Point::BeforeLlmRequest => "The request contains",
        Point::BeforeToolCall => "The tool's arguments contain",
        Point::AfterToolResult => "The tool's result contains",
        Point::BeforeResponse => "The answer contains",
    }
}

impl Plugin for Secrets {
    const NAME: &'static str = "secrets";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        // The fields in which it looks for texts: `TextPayload` of each payload.
        let texts = [
            PayloadField::Text,
            PayloadField::SystemPrompt,
            PayloadField::Messages,
            PayloadField::Images,
            PayloadField::Files,
            PayloadField::Tools,
            PayloadField::Extra,
        ];
        vec![
            Point::BeforeLlmRequest.modify().reading_only(&texts),
            Point::BeforeToolCall.modify().reading_only(&[PayloadField::Args]),
            Point::AfterToolResult.modify().reading_only(&[PayloadField::Result]),
            Point::BeforeResponse.modify().reading_only(&[PayloadField::Content, PayloadField::Reasoning]),
        ]
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        let detectors = Detector::select(config.detectors.as_deref(), &config.except, &LEFT_OUT)?;
        if detectors.is_empty() {
            return Err(Detector::none_selected(&config.except, None));
        }
        let redactor = detectors.into_iter().collect();
        let tools_and_extra = config.tools_and_extra.unwrap_or(ToolsAndExtra::Block);
        Ok(Secrets { action: config.action, redactor, tools_and_extra, limits: *host.limits() })
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        _: &NoConfig,
        request: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        self.answer(ctx, Point::BeforeLlmRequest, &request)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        self.answer(ctx, Point::BeforeToolCall, &call)
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        _: &NoConfig,
        result: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        self.answer(ctx, Point::AfterToolResult, &result)
    }

    async fn before_response(
        &self,
        ctx: &Context,
        _: &NoConfig,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        self.answer(ctx, Point::BeforeResponse, &response)
    }
}

#[cfg(test)]
mod tests;
