//! Reference plugin: replaces personal data, keys and what the settings describe, at all four points.
//!
//! It works on the texts that [`TextPayload`] names: strings, also within JSON values, and numbers in which a detector finds something,
//! such as a card. It never changes the names of members.
//!
//! If the gateway rejected a reply for its size, the redaction would be lost. The masks of the detectors are never
//! longer than what they replace. Own replacements that don't fit into the payload become asterisks, and notices
//! that don't fit are left out.
//!
//! An answer in windows is redacted like the whole one: what more text may turn into a match is kept back, and so is everything as
//! long as the answer may be JSON. In a window, replacements never become asterisks, because that would depend on the cut; those that
//! don't fit fail the call.
#![warn(missing_docs)]

mod settings;

use std::collections::BTreeMap;

use hookgate_redaction::{
    FoundInWindow, Redactor, Replaced, TextKind, TextPayload, ToolsAndExtra, may_become_json,
};
use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host,
    InitError, Limits, Notice, Offer, Plugin, PluginError, Point, Reply, ResponseWindow, window::AnswerText,
};
use prost::Message;
use serde::Serialize;

pub use settings::{Config, Pattern, TenantRules};

/// The code of the notice.
const REDACTED: &str = "REDACTED";
/// The code of the block.
const NOT_REDACTABLE: &str = "NOT_REDACTABLE";
/// By how many bytes the lengths of a payload's fields can grow, besides the fields.
const MAX_LENGTH_GROWTH: u64 = 16;

/// Replaces what its rules find.
pub struct Redact {
    redactor: Redactor,
    tools_and_extra: ToolsAndExtra,
    limits: Limits,
    max_payload: Option<u64>,
}

/// How many values each rule found.
#[derive(Serialize)]
struct Details<'r> {
    counts: BTreeMap<&'r str, usize>,
}

impl Redact {
    fn answer<P>(&self, ctx: &Context, tenant: &TenantRules, payload: &P) -> Answer<P::Patch>
    where
        P: TextPayload + Message,
    {
        let redactor = self.redactor.with(&tenant.redactor).until(ctx.deadline());
        if let Some(message) = self.tools_and_extra.first(payload, |text| redactor.fault_in(text))? {
            let notice = Notice::block(NOT_REDACTABLE, message.as_str());
            return Ok(Reply::cancel(NOT_REDACTABLE, message).notice(notice).fit_notices(&self.limits));
        }
        let mut counts = BTreeMap::new();
        let Some(patch) = self.patch(&redactor, payload, &mut counts)? else { return Ok(Reply::proceed()) };
        let notice = self.notice(counts)?;
        Ok(Reply::proceed().patch(patch).notice(notice).fit_notices(&self.limits))
    }

    /// Redacts a window of an answer. Its reasoning, which is never cut, is redacted whole.
    fn answer_window(
        &self,
        ctx: &Context,
        tenant: &TenantRules,
        window: &ResponseWindow,
        mut response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        if window.offset == 0 && window.last {
            return self.answer(ctx, tenant, &response);
        }
        let redactor = self.redactor.with(&tenant.redactor).until(ctx.deadline());
        let (size, content) = (response.encoded_len(), std::mem::take(&mut response.content));
        let text = AnswerText::windowed(window, &content).until(ctx.deadline());
        let FoundInWindow { found, cut, .. } = match window.offset == 0 && may_become_json(&content) {
            true => FoundInWindow::hold(&text),
            false => redactor.find_in_window(&text),
        };
        let mut counts = BTreeMap::new();
        for found in &found {
            *counts.entry(found.name()).or_default() += 1;
        }
        let masks = found.iter().map(|found| (found.range(), redactor.mask_of(text.text(), found)));
        let mut reply = text.reply(cut, masks);
        if let Some(patch) = self.patch(&redactor, &response, &mut counts)?.and_then(|patch| patch.reasoning)
        {
            reply = reply.reasoning(patch);
        }
        let redacted = reply.changes().and_then(|patch| patch.content.as_ref()).map_or(0, String::len);
        if !self.has_room(size, redacted.saturating_sub(cut - text.start()).try_into()?) {
            return Err(PluginError::internal("the replacements don't fit into the window"));
        }
        Ok(match counts.is_empty() {
            true => reply,
            false => reply.notice(self.notice(counts)?).fit_notices(&self.limits),
        })
    }

    /// The payload's redacted texts, if any, in a patch that fits.
    fn patch<'r, P>(
        &self,
        redactor: &'r Redactor,
        payload: &P,
        counts: &mut BTreeMap<&'r str, usize>,
    ) -> Result<Option<P::Patch>, PluginError>
    where
        P: TextPayload + Message,
    {
        let mut replaced = redact(redactor, payload, counts)?;
        if !self.has_room(payload.encoded_len(), replaced.growth) {
            replaced = redact(&redactor.clone().that_fits(), payload, &mut BTreeMap::new())?;
        }
        Ok(replaced.patch)
    }

    /// Whether the gateway takes the payload after it has grown.
    fn has_room(&self, payload: usize, growth: isize) -> bool {
        let Some(max_payload) = self.max_payload else { return true };
        growth <= 0
            || (payload as u64).saturating_add_signed(growth as i64) + MAX_LENGTH_GROWTH <= max_payload
    }

    fn notice(&self, counts: BTreeMap<&str, usize>) -> Result<Notice, PluginError> {
        let message = match counts.values().sum() {
            1 => "1 value redacted".to_owned(),
            count => format!("{count} values redacted"),
        };
        let max_bytes = match self.limits.max_details_bytes {
            0 => usize::MAX, // the gateway did not say
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let mut details = Details { counts };
        while serde_json::to_vec(&details)?.len() > max_bytes && details.counts.pop_last().is_some() {}
        Notice::warn(REDACTED, message).details(&details)
    }
}

/// Replaces what is found, and counts it by rule.
fn redact<'r, P: TextPayload>(
    redactor: &'r Redactor,
    payload: &P,
    counts: &mut BTreeMap<&'r str, usize>,
) -> Result<Replaced<P::Patch>, PluginError> {
    payload.replace_texts(&mut |text| {
        if text.kind == TextKind::Name {
            return None;
        }
        let found = redactor.find_in(text);
        for found in &found {
            *counts.entry(found.name()).or_default() += 1;
        }
        (!found.is_empty()).then(|| redactor.mask(text.text, &found))
    })
}

impl Plugin for Redact {
    const NAME: &'static str = "redact";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = TenantRules;

    fn points() -> Vec<Offer> {
        // It reads all fields, because the size of the whole payload says what a mask may add.
        let offer = |point: Point| match point {
            Point::BeforeResponse => point.modify().in_windows(),
            point => point.modify(),
        };
        Point::ALL.into_iter().map(offer).collect()
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        let redactor = config.redactor()?;
        Ok(Redact {
            redactor,
            tools_and_extra: config.tools_and_extra,
            limits: *host.limits(),
            max_payload: host.max_payload_bytes(),
        })
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        tenant: &TenantRules,
        request: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        self.answer(ctx, tenant, &request)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        tenant: &TenantRules,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        self.answer(ctx, tenant, &call)
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        tenant: &TenantRules,
        result: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        self.answer(ctx, tenant, &result)
    }

    async fn before_response(
        &self,
        ctx: &Context,
        tenant: &TenantRules,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        match ctx.window() {
            Some(window) => self.answer_window(ctx, tenant, window, response),
            None => self.answer(ctx, tenant, &response),
        }
    }
}

#[cfg(test)]
mod tests;
