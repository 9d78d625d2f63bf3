//! The cells of the failure matrix, with the guarantee of docs/protocol.md, section 3, for each. Written
//! independently of the gateway's own table; only the codes of failures come from [`Code::for_step`].

use std::fmt;

use hookgate::core::{
    error::Code,
    point::Point,
    step::{Mode, OnError, Reason, StepOutcome},
};
use tonic::Code as Grpc;

/// A binding's settings. `on_error` has no meaning for observers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    pub(crate) on_error: Option<OnError>,
}

const fn kind(name: &'static str, mode: Mode, on_error: Option<OnError>) -> Kind {
    Kind { name, mode, on_error }
}

/// Every valid one.
pub(crate) const KINDS: [Kind; 5] = [
    kind("enforce-fail", Mode::Enforce, Some(OnError::Fail)),
    kind("enforce-skip", Mode::Enforce, Some(OnError::Skip)),
    kind("advise-fail", Mode::Advise, Some(OnError::Fail)),
    kind("advise-skip", Mode::Advise, Some(OnError::Skip)),
    kind("observe", Mode::Observe, None),
];

/// A way to make a step fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The name of the plugin that fails in this way.
    pub(crate) plugin: &'static str,
    pub(crate) reason: Reason,
    /// The plugin's own status, if it answers with one.
    pub(crate) status: Option<Grpc>,
    /// For the document.
    pub(crate) what: &'static str,
}

const fn failure(plugin: &'static str, reason: Reason, what: &'static str) -> Failure {
    Failure { plugin, reason, status: None, what }
}

const fn answers(plugin: &'static str, status: Grpc, what: &'static str) -> Failure {
    Failure { plugin, reason: Reason::RpcError, status: Some(status), what }
}

/// Contains every reason that a plugin can cause at least once.
pub(crate) const FAILURES: [Failure; 15] = [
    failure("hangs", Reason::Timeout, "does not answer within the step's time-out"),
    failure("hangs-long", Reason::Budget, "does not answer within what the caller's deadline leaves"),
    failure("gone", Reason::Unreachable, "was there and can't be reached any more"),
    failure("tripped", Reason::BreakerOpen, "failed so often that its breaker is open"),
    failure("busy", Reason::BulkheadFull, "has all its places taken and its queue full"),
    failure("silent", Reason::NotReady, "never answered Describe"),
    answers("internal", Grpc::Internal, "answers INTERNAL (any status but the next two)"),
    answers("unavailable", Grpc::Unavailable, "answers UNAVAILABLE"),
    answers("late", Grpc::DeadlineExceeded, "answers DEADLINE_EXCEEDED"),
    failure("undecided", Reason::BadReply, "answers neither continue nor cancel"),
    failure("garbled", Reason::BadReply, "answers what can't be decoded"),
    failure("reader", Reason::ForbiddenPatch, "patches, though it declares access READ"),
    failure("verbose", Reason::TooLarge, "answers more than the reply limit"),
    failure("grower", Reason::TooLarge, "patches the payload over the request limit + 64 KiB"),
    failure("elsewhere", Reason::PointNotOffered, "does not offer the point that its binding names"),
];

/// What can't occur, and why. An empty list of kinds means all of them.
pub(crate) const NEVER: [(Reason, &[&str], &str); 4] = [
    (Reason::UnknownPlugin, &[], "a file whose binding names an unknown plugin is refused at start"),
    (Reason::ConditionError, &[], "match conditions are compiled when the file is read, and refused there"),
    (Reason::Budget, &["observe"], "observers run after the answer, under their own time-out alone"),
    (
        Reason::ForbiddenPatch,
        &["observe"],
        "patches of observers are ignored, so that none is forbidden or leads to too much",
    ),
];

/// What happens at the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Continues { patches: bool },
    Cancels { patches: bool },
    ConditionFalse,
    BudgetShort,
    Fails(Failure),
}

impl Case {
    pub(crate) fn all() -> Vec<Case> {
        let outcomes = [
            Case::Continues { patches: false },
            Case::Continues { patches: true },
            Case::Cancels { patches: false },
            Case::Cancels { patches: true },
            Case::ConditionFalse,
            Case::BudgetShort,
        ];
        outcomes.into_iter().chain(FAILURES.map(Case::Fails)).collect()
    }

    /// Part of a tenant's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Case::ConditionFalse => "condition-false",
            Case::BudgetShort => "budget-short",
            other => other.plugin(),
        }
    }

    /// The plugin for it.
    pub(crate) fn plugin(&self) -> &'static str {
        match self {
            Case::Continues { patches: false } | Case::BudgetShort => "continues",
            Case::Continues { patches: true } | Case::ConditionFalse => "continues-patching",
            Case::Cancels { patches: false } => "cancels",
            Case::Cancels { patches: true } => "cancels-patching",
            Case::Fails(failure) => failure.plugin,
        }
    }

    /// What the plugin did, for the document.
    pub(crate) fn what(&self) -> String {
        match self {
            Case::Continues { patches: false } => "continues".into(),
            Case::Continues { patches: true } => "continues with a patch".into(),
            Case::Cancels { patches: false } => "cancels".into(),
            Case::Cancels { patches: true } => "cancels with a patch".into(),
            Case::ConditionFalse => "is not asked: a match condition is false".into(),
            Case::BudgetShort => "is not asked: too little of the budget is left".into(),
            Case::Fails(failure) => format!("{} (`{}`)", failure.what, failure.reason),
        }
    }

    /// Whether it can occur. A mandatory step is called with whatever time is left.
    pub(crate) fn arises(&self, kind: Kind) -> bool {
        *self != Case::BudgetShort || kind.on_error == Some(OnError::Skip)
    }
}

/// One cell, over one transport.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) point: Point,
    pub(crate) kind: Kind,
    pub(crate) case: Case,
}

impl Cell {
    /// All cells that can occur.
    pub(crate) fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for point in Point::ALL {
            for kind in KINDS {
                let cases = Case::all().into_iter().filter(|case| case.arises(kind));
                cells.extend(cases.map(|case| Cell { point, kind, case }));
            }
        }
        cells
    }

    /// The tenant whose chain contains the step: one for each kind and case.
    pub(crate) fn tenant(&self) -> String {
        tenant(self.kind, self.case)
    }

    /// The expected answer.
    pub(crate) fn expected(&self) -> Seen {
        let Kind { mode, on_error, .. } = self.kind;
        let applied = |patches| if patches { Payload::Patched } else { Payload::AsBefore };
        match (self.case, mode, on_error) {
            (Case::ConditionFalse, _, _) => Seen::going_on(StepOutcome::SkippedCondition),
            (_, Mode::Observe, _) => Seen::going_on(StepOutcome::Observed),
            (Case::Continues { patches: false }, _, _) => Seen::going_on(StepOutcome::Continued),
            (Case::Continues { patches: true }, _, _) => {
                Seen { payload: Some(Payload::Patched), ..Seen::going_on(StepOutcome::Modified) }
            }
            (Case::Cancels { patches }, Mode::Enforce, _) => Seen {
                status: 403,
                decision: Some("block".into()),
                code: Some("TOOL_NOT_ALLOWED".into()),
                notice: Some("block REMARK".into()),
                payload: Some(applied(patches)),
                later: false,
                ..Seen::going_on(StepOutcome::Cancelled)
            },
            (Case::Cancels { patches }, Mode::Advise, _) => Seen {
                notice: Some("block REMARK".into()),
                payload: Some(applied(patches)),
                would_block: Some("TOOL_NOT_ALLOWED".into()),
                ..Seen::going_on(StepOutcome::WouldBlock)
            },
            (Case::BudgetShort, _, _) => {
                Seen::going_on(StepOutcome::SkippedBudget).because(Reason::Budget, Code::BudgetExhausted)
            }
            (Case::Fails(failure), _, on_error) => {
                let code = Code::for_step(failure.reason, failure.status);
                match on_error {
                    Some(OnError::Fail) => Seen::undecided(code, failure.reason),
                    Some(OnError::Skip) | None => {
                        Seen::going_on(StepOutcome::FailedOpen).because(failure.reason, code)
                    }
                }
            }
        }
    }
}

pub(crate) fn tenant(kind: Kind, case: Case) -> String {
    format!("{}.{}", kind.name, case.name())
}

/// The payload in an answer, compared byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// As it was before the step, including earlier patches.
    AsBefore,
    /// The same with the step's patch.
    Patched,
}

/// Everything in the answer that the step affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    /// `Hookgate-Decision`.
    pub(crate) decision: Option<String>,
    /// The code of the block or the error.
    pub(crate) code: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) reason: Option<String>,
    /// The code with which the step would have blocked.
    pub(crate) would_block: Option<String>,
    /// The only notice about the plugin, as `KIND CODE`.
    pub(crate) notice: Option<String>,
    pub(crate) payload: Option<Payload>,
    /// Whether the next plugin was called, with the payload of the answer.
    pub(crate) later: bool,
}

impl Seen {
    fn going_on(outcome: StepOutcome) -> Self {
        Seen {
            status: 200,
            decision: Some("continue".into()),
            code: None,
            outcome: Some(outcome.to_string()),
            reason: None,
            would_block: None,
            notice: None,
            payload: Some(Payload::AsBefore),
            later: true,
        }
    }

    fn because(self, reason: Reason, code: Code) -> Self {
        Seen { reason: Some(reason.to_string()), notice: Some(format!("warn {code}")), ..self }
    }

    fn undecided(code: Code, reason: Reason) -> Self {
        Seen {
            status: code.http(),
            decision: None,
            code: Some(code.to_string()),
            outcome: Some(StepOutcome::Failed.to_string()),
            reason: Some(reason.to_string()),
            would_block: None,
            notice: None,
            payload: None,
            later: false,
        }
    }
}

/// A row of the document, after the column that says what the plugin did.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.as_ref().map(|code| format!(" `{code}`")).unwrap_or_default();
        let decision = self.decision.as_deref().unwrap_or("no decision");
        write!(f, "{} {decision}{code} | ", self.status)?;
        match (&self.outcome, self.reason.as_ref().or(self.would_block.as_ref())) {
            (Some(outcome), Some(why)) => write!(f, "`{outcome}` `{why}` | ")?,
            (Some(outcome), None) => write!(f, "`{outcome}` | ")?,
            (None, _) => write!(f, "| ")?,
        }
        match &self.notice {
            Some(notice) => write!(f, "`{notice}` | ")?,
            None => write!(f, "| ")?,
        }
        f.write_str(match self.payload {
            Some(Payload::AsBefore) => "as before the step | ",
            Some(Payload::Patched) => "with its patch | ",
            None => "| ",
        })?;
        f.write_str(if self.later { "called" } else { "not called" })
    }
}
