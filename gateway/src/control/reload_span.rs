//! The span of one reload, from its trigger until its configuration is active or has been given up.

use tracing::Span;

use crate::{
    control::desired_config::ReloadTrigger,
    core::control_span::{control_span, record_error},
};

/// How a reload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadOutcome {
    /// The configuration is active.
    Active,
    /// It was active or pending before.
    Unchanged,
    /// It is invalid, or its table can't be built.
    Rejected,
    /// The store can't be reached.
    Unavailable,
    /// It was given up: for another one, or because the process ends.
    Abandoned,
}

impl ReloadOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            ReloadOutcome::Active => "active",
            ReloadOutcome::Unchanged => "unchanged",
            ReloadOutcome::Rejected => "rejected",
            ReloadOutcome::Unavailable => "unavailable",
            ReloadOutcome::Abandoned => "abandoned",
        }
    }
}

/// A reload that is dropped before [`ReloadSpan::end`] was abandoned.
pub(super) struct ReloadSpan {
    span: Span,
    outcome: ReloadOutcome,
}

impl ReloadSpan {
    pub(super) fn new(trigger: ReloadTrigger) -> Self {
        let span = control_span!(
            "config reload",
            "hookgate.reload.trigger" = trigger.as_str(),
            "hookgate.outcome" = tracing::field::Empty,
            "hookgate.revision" = tracing::field::Empty,
        );
        ReloadSpan { span, outcome: ReloadOutcome::Abandoned }
    }

    /// The span itself, to do a part of the reload in.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn end(mut self, outcome: ReloadOutcome) {
        self.outcome = outcome;
    }

    /// The configuration is active as this revision.
    pub(super) fn end_active(self, revision: u64) {
        self.span.record("hookgate.revision", revision);
        self.end(ReloadOutcome::Active);
    }
}

impl Drop for ReloadSpan {
    fn drop(&mut self) {
        let outcome = self.outcome.as_str();
        self.span.record("hookgate.outcome", outcome);
        if matches!(self.outcome, ReloadOutcome::Rejected | ReloadOutcome::Unavailable) {
            record_error(&self.span, outcome);
        }
    }
}
