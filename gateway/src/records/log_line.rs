//! The log line of an invocation that did anything but continue (docs/protocol.md, section 8,
//! `decision.*`): who, where, what happened, and in which steps. It contains no payload and no token, and
//! plugins' texts are truncated.

use hookgate_proto::{HookName, types::v1::NoticeKind};
use serde::Serialize;
use tracing::Level;
use uuid::Uuid;

use crate::{
    core::{call_site::CallSite, point::Point, step::StepOutcome},
    invoke::{Remark, StepReport},
    records::invocation::{CallFacts, Decision, InvocationEnd},
    telemetry::value::cut,
};

/// The maximum length of a block's, an error's or an observer's sentence, in bytes.
pub(crate) const MAX_SENTENCE_BYTES: usize = 1024;
/// The maximum length of a notice's message, in bytes. Each plugin may send several.
const MAX_NOTICE_BYTES: usize = 256;
/// The maximum length of an agent's id, in bytes. Other ids are checked on arrival.
const MAX_ID_BYTES: usize = 256;

/// The maximum length of the steps or of the notices, in bytes of JSON. It keeps the whole line within its
/// limit.
const MAX_LIST_BYTES: usize = 16 << 10;

/// A call that ended, with everything that its line may contain.
pub(crate) struct CallRecord<'a> {
    /// `None` for a hook whose name was not read.
    pub(crate) site: Option<&'a CallSite>,
    pub(crate) request_id: Uuid,
    pub(crate) trace_id: Option<String>,
    pub(crate) facts: &'a CallFacts,
    pub(crate) end: &'a InvocationEnd<'a>,
    pub(crate) is_slow: bool,
}

#[derive(Serialize)]
struct StepLine<'a> {
    plugin: &'a str,
    binding: &'a str,
    mode: &'static str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    duration_us: u128,
    queue_us: u128,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changed: &'a [&'static str],
    #[serde(skip_serializing_if = "is_zero")]
    sanitised: u32,
}

#[derive(Serialize)]
struct NoticeEntry<'a> {
    plugin: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    message: &'a str,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn step(step: &StepReport) -> StepLine<'_> {
    StepLine {
        plugin: &step.plugin,
        binding: &step.binding,
        mode: step.mode.as_str(),
        outcome: step.outcome.as_str(),
        reason: step.reason.map(crate::core::step::Reason::as_str),
        code: step.would_block.as_deref(),
        duration_us: step.duration.as_micros(),
        queue_us: step.queue.as_micros(),
        changed: &step.changed,
        sanitised: step.sanitised,
    }
}

fn notice(remark: &Remark) -> NoticeEntry<'_> {
    let kind = match remark.notice.kind() {
        NoticeKind::Allow => "allow",
        NoticeKind::Block => "block",
        NoticeKind::Warn => "warn",
        NoticeKind::Info | NoticeKind::Unspecified => "info",
    };
    let code = remark.notice.code.as_deref().map(|code| cut(code, MAX_NOTICE_BYTES));
    NoticeEntry { plugin: &remark.plugin, kind, code, message: cut(&remark.notice.message, MAX_NOTICE_BYTES) }
}

/// A list as JSON. If it is too long, its last entry says how many were left out.
fn json(values: impl Iterator<Item = impl Serialize>) -> Option<String> {
    let mut list = String::new();
    let mut left_out = 0;
    for value in values {
        let entry = serde_json::to_string(&value).expect("names and numbers are JSON");
        if left_out > 0 || list.len() + entry.len() > MAX_LIST_BYTES {
            left_out += 1;
        } else {
            let comma = if list.is_empty() { "" } else { "," };
            list = list + comma + &entry;
        }
    }
    let more = if left_out > 0 { format!(",{{\"left_out\":{left_out}}}") } else { String::new() };
    (!list.is_empty()).then(|| format!("[{list}{more}]"))
}

impl CallRecord<'_> {
    /// Whether nothing happened that a person may want to know.
    fn is_plain(&self) -> bool {
        let is_plain = |step: &StepReport| match step.outcome {
            StepOutcome::Continued
            | StepOutcome::Modified
            | StepOutcome::Contributed
            | StepOutcome::SkippedCondition
            | StepOutcome::Observed => step.sanitised == 0,
            StepOutcome::Cancelled
            | StepOutcome::Answered
            | StepOutcome::WouldBlock
            | StepOutcome::Failed
            | StepOutcome::FailedOpen
            | StepOutcome::SkippedBudget
            | StepOutcome::CancelledByCaller => false,
        };
        self.end.decision == Decision::Continue
            && !self.is_slow
            && self.end.notices.is_empty()
            && self.end.steps.iter().all(is_plain)
    }

    /// The level: errors are the gateway's to repair, warnings are failures of plugins. A notice is a plugin's ordinary work, whatever
    /// its kind: `redact` sends one for each text that it changes.
    fn level(&self) -> Level {
        let end = self.end;
        let status = end.error.map_or(0, |error| error.code.http());
        let failed = |step: &StepReport| {
            let is_failure = matches!(
                step.outcome,
                StepOutcome::Failed | StepOutcome::FailedOpen | StepOutcome::SkippedBudget
            );
            is_failure || step.failed_open
        };
        if status == 500 && self.facts.refused.is_none() {
            Level::ERROR
        } else if status >= 500 || self.is_slow || end.steps.iter().any(failed) {
            Level::WARN
        } else {
            Level::INFO
        }
    }

    /// The point's name.
    fn point(&self) -> Option<&'static str> {
        self.site.and_then(CallSite::point).map(Point::as_str)
    }

    /// The hook's name.
    fn hook(&self) -> Option<&str> {
        self.site.and_then(CallSite::hook).map(HookName::as_str)
    }

    fn event(&self) -> &'static str {
        match (self.facts.refused, self.end.decision, self.point()) {
            (Some(_), _, _) => "auth.refused",
            (None, Decision::Continue, Some(_)) => "decision.continue",
            (None, Decision::Block, _) => "decision.block",
            (None, Decision::Answer, _) => "decision.answer",
            (None, Decision::Error, Some(_)) => "decision.error",
            (None, Decision::Cancelled, Some(_)) => "decision.cancelled",
            (None, Decision::Continue, None) => "hook.answer",
            (None, Decision::Error, None) => "hook.error",
            (None, Decision::Cancelled, None) => "hook.cancelled",
        }
    }

    fn message(&self) -> &'static str {
        match (self.facts.refused, self.end.decision, self.point()) {
            (Some(_), _, _) => "a caller was refused",
            (None, Decision::Continue, Some(_)) if self.is_slow => "a call continued, slowly",
            (None, Decision::Continue, Some(_)) => "a call continued, with remarks",
            (None, Decision::Block, _) => "a call was blocked",
            (None, Decision::Answer, _) => "a plugin gave a tool's result",
            (None, Decision::Error, Some(_)) => "no decision could be made",
            (None, Decision::Cancelled, _) => "a caller disconnected",
            (None, Decision::Continue, None) if self.is_slow => "a hook was answered, slowly",
            (None, Decision::Continue, None) => "a hook was answered, with remarks",
            (None, Decision::Error, None) => "a hook could not be answered",
        }
    }
}

/// Emits a line at a level that is known only at run time.
macro_rules! line {
    ($level:expr, $($field:tt)*) => {
        match $level {
            Level::ERROR => tracing::error!($($field)*),
            Level::WARN => tracing::warn!($($field)*),
            _ => tracing::info!($($field)*),
        }
    };
}

/// Writes a line for each cancel that was not enforced. Observers have the same event, so that one event is
/// enough to watch while trying out a rule.
fn would_block(call: &CallRecord<'_>) {
    let tenant = call.facts.identity.as_ref().map(|identity| &*identity.tenant);
    for step in call.end.steps {
        let Some(code) = &step.would_block else { continue };
        tracing::info!(
            event = "decision.would_block",
            request_id = %call.request_id,
            tenant,
            point = call.point(),
            plugin = &*step.plugin,
            binding = &*step.binding,
            mode = step.mode.as_str(),
            code,
            "a plugin in mode advise would block"
        );
    }
}

/// Writes the line of `call`, unless the call simply continued.
pub(crate) fn write(call: &CallRecord<'_>) {
    would_block(call);
    if call.is_plain() {
        return;
    }
    let (facts, end) = (call.facts, call.end);
    let said = facts.ctx.as_ref().map(|ctx| &ctx.request);
    let sentence = end.block.map(|block| block.message.as_str());
    let sentence = sentence.or(end.error.map(|error| error.detail.as_str()));
    let failed = end.error.and_then(|error| error.step.as_deref());
    line!(
        call.level(),
        event = call.event(),
        request_id = %call.request_id,
        correlation_id = facts.correlation_id,
        exchange_id = facts.ctx.as_ref().and_then(|ctx| ctx.exchange).map(|exchange| exchange.id.to_string()),
        trace_id = call.trace_id,
        tenant = facts.identity.as_ref().map(|identity| &*identity.tenant),
        operator = facts.identity.as_ref().map(|identity| &*identity.operator),
        session = said.and_then(|said| said.session_id.as_deref()),
        run = said.and_then(|said| said.run_id.as_deref()),
        agent = said.and_then(|said| said.agent_id.as_deref()),
        user = said.and_then(|said| said.user_id.as_deref()),
        point = call.point(),
        hook = call.hook(),
        tool = facts.tool.as_deref(),
        call_id = facts.call_id.as_deref().map(|id| cut(id, MAX_ID_BYTES)),
        decision = end.decision.as_str(),
        status = end.status,
        code = end.code(),
        reason = facts.refused.map(crate::auth::RefusalReason::as_str),
        plugin = end.block.map(|block| &*block.plugin).or(end.answer.map(|answer| &*answer.plugin)).or(failed.map(|step| &*step.plugin)),
        detail = sentence.map(|sentence| cut(sentence, MAX_SENTENCE_BYTES)),
        revision = facts.plan.as_ref().map(|(_, revision)| *revision),
        plan_digest = facts.plan.as_ref().map(|(digest, _)| &**digest),
        duration_ms = (end.took.as_secs_f64() * 1e6).round() / 1e3,
        slow = call.is_slow,
        steps = json(end.steps.iter().map(step)),
        notices = json(end.notices.iter().map(notice)),
        "{}",
        call.message()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("Zoë", 3), "Zo");
        assert_eq!(cut("Zoë", 4), "Zoë");
        assert_eq!(cut("Zoë", 9), "Zoë");
    }
}
