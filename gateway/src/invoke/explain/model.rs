//! An explanation as data: what the admin port answers and the command line shows.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    config::{Span, UnknownTenant, Until},
    core::{
        point::Point,
        step::{Mode, OnError},
    },
    routing::{self, ConditionOutcome},
};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainQuery {
    /// Whose call it is.
    pub tenant: String,
    /// Where.
    pub point: Point,
    /// What else decides about its steps.
    pub call: ExplainCall,
    /// `text` or `content`; never said again.
    pub text: Option<String>,
}

impl ExplainQuery {
    /// A call that carries nothing.
    pub fn new(tenant: impl Into<String>, point: Point) -> Self {
        ExplainQuery { tenant: tenant.into(), point, call: ExplainCall::default(), text: None }
    }
}

/// What a call carries that decides about its steps. What is absent it doesn't carry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainCall {
    /// The tool's name.
    pub tool: Option<String>,
    /// The context's `agent_id`.
    pub agent: Option<String>,
    /// The payload's or the context's `model`.
    pub model: Option<String>,
    /// The request's labels and `claim.*`.
    pub labels: BTreeMap<String, String>,
    /// How long the caller waits, in milliseconds; absent: it doesn't say.
    pub timeout_ms: Option<u64>,
}

/// Why a call runs what it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Whose call it is.
    pub tenant: TenantReport,
    /// Where.
    pub point: Point,
    /// What it was said to carry.
    pub call: ExplainCall,
    /// Of what is in force at a gateway; none for a file.
    pub revision: Option<u64>,
    /// Whether manifests are known: a file alone doesn't tell what plugins offer.
    pub manifests_known: bool,
    /// The plan's digest, with versions as far as they are known; none for a tenant without a plan.
    pub plan_digest: Option<String>,
    /// In the order in which they run.
    pub steps: Vec<StepExplanation>,
    /// Bindings that might stand here and don't.
    pub absent: Vec<AbsentBinding>,
    /// The invocation's time.
    pub budget: BudgetReport,
    /// Sentences on what will surprise.
    pub warnings: Vec<String>,
}

/// The tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantReport {
    /// Its id.
    pub id: String,
    /// What the table says of it.
    pub status: TenantLookup,
    /// `tenants.unknown`.
    pub unknown: UnknownTenant,
    /// The error that its calls are answered with; none where it is served.
    pub code: Option<String>,
    /// Names a listed tenant whose id is nearly the same.
    pub hint: Option<String>,
}

/// What the table says of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantLookup {
    /// Listed and served.
    Listed,
    /// Not listed and served with the bindings for all.
    Unlisted,
    /// Listed and switched off.
    Disabled,
    /// Neither listed nor served.
    Refused,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepExplanation {
    /// The binding's name.
    pub binding: String,
    /// The plugin's.
    pub plugin: String,
    /// The accepted manifest's; none before there is one.
    pub version: Option<String>,
    /// Its place.
    pub priority: i64,
    /// What the plugin may do.
    pub mode: Mode,
    /// What a failure does.
    pub on_error: OnError,
    /// The step's time-out, in milliseconds.
    pub timeout_ms: Millis,
    /// Who says so.
    pub timeout_source: TimeoutSource,
    /// For whom the binding stands.
    pub source: BindingSource,
    /// The labels that the tenant has in common with the binding's selector: all of it; none without one.
    pub selector: Option<BTreeMap<String, String>>,
    /// Names of the top-level keys of the plugin's tenant-level configuration that are this tenant's.
    pub overrides: Vec<String>,
    /// In the order in which they are looked at.
    pub conditions: Vec<ConditionReport>,
    /// What it comes to where every plugin continues at once.
    #[serde(flatten)]
    pub comes: StepForecast,
    /// What it comes to where every plugin takes all the time it gets, and continues then.
    pub worst_case: WorstCase,
}

/// Whose time-out a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutSource {
    /// The binding's `timeout`.
    Binding,
    /// The plugin's `limits.timeout`, or its default.
    Plugin,
}

/// For whom a binding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingSource {
    /// For all tenants, or those of its selector.
    Global,
    /// For this one.
    Tenant,
}

/// A condition, and what it comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionReport {
    /// `tools`, `agents`, `models`, `text`, or `labels.` and the key.
    pub field: String,
    /// As written; for `text` with `contains` or `regex` before them.
    pub patterns: Vec<String>,
    /// What the call carries; none for nothing, and for `text`, whose value is never said again.
    pub value: Option<String>,
    /// Whether it holds.
    pub result: ConditionOutcome,
}

/// What becomes of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepForecast {
    /// In a word.
    pub outcome: ExpectedOutcome,
    /// The reason of a failure, as in answers.
    pub reason: Option<String>,
    /// A sentence on it.
    pub detail: Option<String>,
}

/// A step's outcome as far as it is known before any plugin is called; the names are those of answers, but for `called` and
/// `not_reached`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedOutcome {
    /// Its plugin is called.
    Called,
    /// Its plugin sees the call after the answer.
    Observed,
    /// A condition is known to be false.
    SkippedCondition,
    /// Too little time for a step that may be skipped.
    SkippedBudget,
    /// It fails without being called, and the chain ends.
    Failed,
    /// It fails without being called, and the chain goes on.
    FailedOpen,
    /// The chain has ended before it.
    NotReached,
}

impl ExpectedOutcome {
    /// The name in answers and explanations.
    pub const fn as_str(self) -> &'static str {
        match self {
            ExpectedOutcome::Called => "called",
            ExpectedOutcome::Observed => "observed",
            ExpectedOutcome::SkippedCondition => "skipped_condition",
            ExpectedOutcome::SkippedBudget => "skipped_budget",
            ExpectedOutcome::Failed => "failed",
            ExpectedOutcome::FailedOpen => "failed_open",
            ExpectedOutcome::NotReached => "not_reached",
        }
    }
}

/// A step where every plugin takes all the time it gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstCase {
    /// What becomes of it.
    #[serde(flatten)]
    pub comes: StepForecast,
    /// The most it can get, in milliseconds; none where it isn't called.
    pub allowance_ms: Option<Millis>,
    /// What it leaves for later steps that must not fail, in milliseconds; none where the time isn't looked at.
    pub reserved_ms: Option<Millis>,
    /// Whether it gets less than its own time-out.
    pub budget_limited: bool,
}

/// A binding that might stand here and doesn't.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentBinding {
    /// Its name.
    pub binding: String,
    /// Its plugin's.
    pub plugin: String,
    /// Why.
    pub cause: AbsenceCause,
    /// The selector that the tenant doesn't fit.
    pub selector: Option<BTreeMap<String, String>>,
    /// The points that leave this one out.
    pub points: Option<Vec<Point>>,
    /// When a bypass ends.
    pub until: Option<Until>,
    /// Why it was bypassed; none where that is not for the reader.
    pub reason: Option<String>,
}

/// Why a binding isn't in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceCause {
    /// The binding has `enabled: false`.
    BindingDisabled,
    /// Its plugin has.
    PluginDisabled,
    /// The tenant lacks a label of its selector.
    Selector,
    /// The tenant's `disable` names it.
    Disabled,
    /// Its `points` leave this one out.
    Points,
    /// It has no `points`, and its plugin doesn't offer this one.
    NotOffered,
    /// An operator has taken it out of the tenant's chains for a while.
    Bypassed,
}

impl From<routing::AbsenceReason> for AbsenceCause {
    fn from(absent: routing::AbsenceReason) -> Self {
        match absent {
            routing::AbsenceReason::BindingDisabled => AbsenceCause::BindingDisabled,
            routing::AbsenceReason::PluginDisabled => AbsenceCause::PluginDisabled,
            routing::AbsenceReason::NotSelected => AbsenceCause::Selector,
            routing::AbsenceReason::Disabled => AbsenceCause::Disabled,
            routing::AbsenceReason::PointNotListed => AbsenceCause::Points,
            routing::AbsenceReason::PointNotOffered => AbsenceCause::NotOffered,
            routing::AbsenceReason::Bypassed => AbsenceCause::Bypassed,
        }
    }
}

/// The invocation's time, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetReport {
    /// `limits.budget`.
    pub limit_ms: Millis,
    /// What the caller says.
    pub caller_timeout_ms: Option<Millis>,
    /// What is kept back of that, so that the answer reaches it.
    pub margin_ms: Option<Millis>,
    /// The smaller of the limit, and the caller's time less the margin.
    pub total_ms: Millis,
    /// The most that a step which may be skipped leaves for later ones: half of it.
    pub max_reserved_ms: Millis,
}

/// A time in milliseconds, to the microsecond; whole ones are integers in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.subsec_micros() % 1_000;
        if micros == 0 { Span(self.0).fmt(f) } else { write!(f, "{}.{micros:03}ms", self.0.as_millis()) }
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.subsec_micros().is_multiple_of(1_000) {
            serializer.serialize_u64(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX))
        } else {
            serializer.serialize_f64(self.0.as_secs_f64() * 1e3)
        }
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)? / 1e3;
        Duration::try_from_secs_f64(seconds).map(Millis).map_err(serde::de::Error::custom)
    }
}
