//! The data of an explanation: the answer of the admin API, which the command line displays.

use std::{collections::BTreeMap, fmt, time::Duration};

use hookgate_proto::HookName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    config::{Span, UnknownTenant, Until},
    core::{
        call_site::CallSite,
        point::Point,
        step::{Mode, OnError},
    },
    routing::{self, ConditionOutcome},
};

/// The request for an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainQuery {
    pub tenant: String,
    pub site: CallSite,
    /// Values of the call that affect its steps.
    pub call: ExplainCall,
    /// `text` or `content`; never repeated in the answer.
    pub text: Option<String>,
}

impl ExplainQuery {
    /// A call without any values.
    pub fn new(tenant: impl Into<String>, site: impl Into<CallSite>) -> Self {
        ExplainQuery { tenant: tenant.into(), site: site.into(), call: ExplainCall::default(), text: None }
    }
}

/// The values of a call that affect its steps; `None` means that the call doesn't carry it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainCall {
    /// The tool's name.
    pub tool: Option<String>,
    /// The context's `agent_id`.
    pub agent: Option<String>,
    /// The context's `agent_path`.
    #[serde(default)]
    pub agent_path: Option<String>,
    /// The payload's or the context's `model`.
    pub model: Option<String>,
    /// The request's labels and `claim.*`.
    pub labels: BTreeMap<String, String>,
    /// How long the caller waits, in milliseconds, if it says so.
    pub timeout_ms: Option<u64>,
}

impl ExplainCall {
    /// The values that are texts, by their names in a query.
    pub fn texts(&self) -> [(&'static str, &Option<String>); 4] {
        let ExplainCall { tool, agent, agent_path, model, labels: _, timeout_ms: _ } = self;
        [("tool", tool), ("agent", agent), ("agent_path", agent_path), ("model", model)]
    }
}

/// Explains which steps a call runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub tenant: TenantReport,
    /// `None` for a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// `None` for a point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookName>,
    /// The assumed values of the call.
    pub call: ExplainCall,
    /// The gateway's active revision; `None` for a file.
    pub revision: Option<u64>,
    /// Whether all accepted manifests are known. From a file alone it is unknown what plugins offer that aren't built in.
    pub manifests_known: bool,
    /// The plan's digest, with versions as far as known; `None` if the tenant has no plan.
    pub plan_digest: Option<String>,
    /// In the order in which they run.
    pub steps: Vec<StepExplanation>,
    /// Bindings that could apply here but don't.
    pub absent: Vec<AbsentBinding>,
    pub budget: BudgetReport,
    /// Warnings about surprising consequences.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantReport {
    pub id: String,
    /// How the table lists the tenant.
    pub status: TenantLookup,
    /// `tenants.unknown`.
    pub unknown: UnknownTenant,
    /// The error code of its calls at the point; `None` if they are served.
    pub code: Option<String>,
    /// Names a listed tenant with a similar id.
    pub hint: Option<String>,
}

/// How the table lists a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantLookup {
    /// Listed and served.
    Listed,
    /// Not listed, and served with the global bindings.
    Unlisted,
    /// Listed, but switched off.
    Disabled,
    /// Not listed and not served.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepExplanation {
    pub binding: String,
    pub plugin: String,
    /// From the accepted manifest; `None` until there is one.
    pub version: Option<String>,
    pub priority: i64,
    /// What the plugin may do.
    pub mode: Mode,
    pub on_error: OnError,
    /// The step's timeout in milliseconds.
    pub timeout_ms: Millis,
    pub timeout_source: TimeoutSource,
    /// Whom the binding is for.
    pub source: BindingSource,
    /// The binding's selector, whose labels the tenant has; `None` if it has none.
    pub selector: Option<BTreeMap<String, String>>,
    /// The top-level keys of the tenant-level configuration that this tenant overrides.
    pub overrides: Vec<String>,
    /// In evaluation order.
    pub conditions: Vec<ConditionReport>,
    /// The forecast if every plugin continues at once.
    #[serde(flatten)]
    pub comes: StepForecast,
    /// The forecast if every plugin takes all its time and then continues.
    pub worst_case: WorstCase,
    /// Whether the plugin runs the call's tool here, as the last step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_tool: bool,
}

/// The origin of a step's timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutSource {
    /// The binding's `timeout`.
    Binding,
    /// The plugin's `limits.timeout`, or its default.
    Plugin,
}

/// Whom a binding is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingSource {
    /// All tenants, or those of its selector.
    Global,
    /// This tenant.
    Tenant,
}

/// A condition and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionReport {
    /// `tools`, `agents`, `models`, `text`, or `labels.` and the key.
    pub field: String,
    /// As written; for `text` with `contains` or `regex` before each pattern.
    pub patterns: Vec<String>,
    /// The call's value. `None` if there is none, and always for `text`, whose value is never repeated.
    pub value: Option<String>,
    pub result: ConditionOutcome,
}

/// The expected outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepForecast {
    pub outcome: ExpectedOutcome,
    /// The reason of a failure, as in answers.
    pub reason: Option<String>,
    /// One sentence.
    pub detail: Option<String>,
}

/// A step's outcome, as far as it is known before any plugin is called. The names are those of answers,
/// except `called` and `not_reached`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedOutcome {
    /// Its plugin is called.
    Called,
    /// Its plugin gets the call after the answer.
    Observed,
    /// A condition is known to be false.
    SkippedCondition,
    /// Too little time is left for a step that may be skipped.
    SkippedBudget,
    /// It fails without being called, and the chain ends.
    Failed,
    /// It fails without being called, and the chain goes on.
    FailedOpen,
    /// The chain ends before it.
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

/// The forecast of a step if every plugin takes all its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstCase {
    #[serde(flatten)]
    pub comes: StepForecast,
    /// The time that it gets at most, in milliseconds; `None` if it isn't called.
    pub allowance_ms: Option<Millis>,
    /// The time that it must leave for later mandatory steps, in milliseconds; `None` if time doesn't
    /// matter for it.
    pub reserved_ms: Option<Millis>,
    /// Whether it gets less than its own timeout.
    pub budget_limited: bool,
}

/// A binding that could apply here but doesn't.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentBinding {
    pub binding: String,
    pub plugin: String,
    pub cause: AbsenceCause,
    /// The selector that the tenant doesn't match.
    pub selector: Option<BTreeMap<String, String>>,
    /// The binding's points, which don't include this one.
    pub points: Option<Vec<Point>>,
    /// The binding's hooks, which don't include this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<HookName>>,
    /// When a bypass ends.
    pub until: Option<Until>,
    /// Why it was bypassed; `None` if the reader may not know.
    pub reason: Option<String>,
}

/// Why a binding isn't in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceCause {
    /// The binding has `enabled: false`.
    BindingDisabled,
    /// Its plugin has `enabled: false`.
    PluginDisabled,
    /// The tenant lacks a label of its selector.
    Selector,
    /// The tenant's `disable` names it.
    Disabled,
    /// Its `points` or `hooks` don't include this one.
    Points,
    /// It has no `points`, and its plugin doesn't offer this one.
    NotOffered,
    /// An operator bypasses it for the tenant.
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

/// The invocation's budget, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetReport {
    /// `limits.budget`.
    pub limit_ms: Millis,
    /// The caller's timeout.
    pub caller_timeout_ms: Option<Millis>,
    /// The part of it that is reserved for sending the answer.
    pub margin_ms: Option<Millis>,
    /// The smaller of the limit and the caller's timeout less the margin.
    pub total_ms: Millis,
    /// The maximum that steps which may be skipped leave for later ones: half of the total.
    pub max_reserved_ms: Millis,
}

/// A time in milliseconds, to the microsecond. Whole numbers are integers in JSON.
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
