//! The steps of a chain as an answer shows them. Decides how much an error reveals of them; knows nothing of
//! transports.

use bytes::Bytes;
use hookgate_proto::gateway::v1 as wire;

use crate::{
    config::Detail,
    core::{
        error::{Error, FailedStep},
        step::{Reason, StepOutcome},
    },
    invoke::StepReport,
};

/// The step that caused `error`, and the steps of its chain. `None` if no step did, or with `answer.detail:
/// minimal`.
pub(super) fn behind<'a>(
    error: &'a Error,
    steps: &[StepReport],
    detail: Detail,
) -> Option<(&'a FailedStep, Vec<wire::Step>)> {
    let failed = error.step.as_deref().filter(|_| detail == Detail::Full)?;
    Some((failed, steps.iter().map(step_message).collect()))
}

pub(super) fn step_message(step: &StepReport) -> wire::Step {
    wire::Step {
        plugin: step.plugin.to_string(),
        binding: step.binding.to_string(),
        outcome: outcome_message(step.outcome).into(),
        reason: step.reason.map_or(wire::StepReason::Unspecified, reason_message).into(),
        duration_us: u64::try_from(step.duration.as_micros()).unwrap_or(u64::MAX),
        changes: Bytes::new(),
        code: step.would_block.clone(),
    }
}

const fn outcome_message(outcome: StepOutcome) -> wire::StepOutcome {
    match outcome {
        StepOutcome::Continued => wire::StepOutcome::Continued,
        StepOutcome::Modified => wire::StepOutcome::Modified,
        StepOutcome::Cancelled => wire::StepOutcome::Cancelled,
        StepOutcome::WouldBlock => wire::StepOutcome::WouldBlock,
        StepOutcome::Failed => wire::StepOutcome::Failed,
        StepOutcome::FailedOpen => wire::StepOutcome::FailedOpen,
        StepOutcome::SkippedCondition => wire::StepOutcome::SkippedCondition,
        StepOutcome::SkippedBudget => wire::StepOutcome::SkippedBudget,
        StepOutcome::Observed => wire::StepOutcome::Observed,
        StepOutcome::CancelledByCaller => wire::StepOutcome::CancelledByCaller,
        StepOutcome::Answered => wire::StepOutcome::Answered,
        StepOutcome::Contributed => wire::StepOutcome::Contributed,
    }
}

const fn reason_message(reason: Reason) -> wire::StepReason {
    match reason {
        Reason::Timeout => wire::StepReason::Timeout,
        Reason::Budget => wire::StepReason::Budget,
        Reason::Unreachable => wire::StepReason::Unreachable,
        Reason::BreakerOpen => wire::StepReason::BreakerOpen,
        Reason::BulkheadFull => wire::StepReason::BulkheadFull,
        Reason::NotReady => wire::StepReason::NotReady,
        Reason::RpcError => wire::StepReason::RpcError,
        Reason::BadReply => wire::StepReason::BadReply,
        Reason::ForbiddenPatch => wire::StepReason::ForbiddenPatch,
        Reason::TooLarge => wire::StepReason::TooLarge,
        Reason::PointNotOffered => wire::StepReason::PointNotOffered,
        Reason::UnknownPlugin => wire::StepReason::UnknownPlugin,
        Reason::ConditionError => wire::StepReason::ConditionError,
    }
}
