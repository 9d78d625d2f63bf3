//! The vocabulary of one step of a chain: what its binding asks for, and how it can end (docs/protocol.md,
//! section 3). These are closed sets; only [`crate::invoke`] decides what follows from them.

use serde::{Deserialize, Serialize};

/// What a binding lets its plugin do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Patches are applied, a cancel stops the chain.
    Enforce,
    /// Patches are applied, a cancel is counted and ignored.
    Advise,
    /// The plugin sees the call after the answer; nothing it says is applied.
    Observe,
}

impl Mode {
    /// The name used in configuration, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Advise => "advise",
            Mode::Observe => "observe",
        }
    }
}

/// What a failed step does to its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The chain stops without a decision.
    Fail,
    /// The step is skipped, the payload stays as it was before it.
    Skip,
}

macro_rules! closed_names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The name used in answers, metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

closed_names! {
    /// How a step ended.
    StepOutcome {
        /// The plugin let the payload pass as it was.
        Continued => "continued",
        /// The plugin changed the payload.
        Modified => "modified",
        /// The plugin cancelled and the chain ended.
        Cancelled => "cancelled",
        /// The plugin cancelled, its binding only advises or observes.
        WouldBlock => "would_block",
        /// The plugin failed and the chain ended.
        Failed => "failed",
        /// The plugin failed and was skipped.
        FailedOpen => "failed_open",
        /// A match condition was known to be false.
        SkippedCondition => "skipped_condition",
        /// Too little of the budget was left for a step that may be skipped.
        SkippedBudget => "skipped_budget",
        /// The plugin sees the call after the answer.
        Observed => "observed",
        /// The caller went away during the step.
        CancelledByCaller => "cancelled_by_caller",
        /// The plugin gave the tool's result and the chain ended.
        Answered => "answered",
        /// The plugin contributed at a hook.
        Contributed => "contributed",
    }
}

closed_names! {
    /// Why a step failed.
    Reason {
        /// The step's own time-out ran out.
        Timeout => "timeout",
        /// What was left of the invocation's budget ran out.
        Budget => "budget",
        /// No connection in time.
        Unreachable => "unreachable",
        /// The circuit breaker is open.
        BreakerOpen => "breaker_open",
        /// Too many calls in flight and waiting.
        BulkheadFull => "bulkhead_full",
        /// The handshake is not finished.
        NotReady => "not_ready",
        /// The plugin answered with an error status.
        RpcError => "rpc_error",
        /// The reply breaks the contract.
        BadReply => "bad_reply",
        /// The reply patches what it may not.
        ForbiddenPatch => "forbidden_patch",
        /// The reply, or the payload it leads to, is too large.
        TooLarge => "too_large",
        /// The binding names a point or a hook that the plugin does not offer.
        PointNotOffered => "point_not_offered",
        /// No such plugin.
        UnknownPlugin => "unknown_plugin",
        /// A match condition could not be evaluated.
        ConditionError => "condition_error",
    }
}
