//! A tenant's limits.

use std::{collections::BTreeSet, num::NonZeroU32, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

/// Tenant-level configuration, as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "rate-limit")]
struct LimitList {
    /// Limits, all of which must have room for a call. Each combination of `per` and `by` at most once.
    #[serde(default)]
    limits: Vec<Limit>,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Calls that may be made in one window, at least 1.
    pub requests: NonZeroU32,
    /// Length of the window: `second`, `minute`, `hour` or `day`. Windows begin with each full second, minute or hour, and
    /// with each UTC day.
    pub per: LimitWindow,
    /// Which calls share a counter: those of the `tenant`, or of an `operator`, a `user` or a `tool` of the tenant. Calls
    /// without a user or a tool share the counter of the empty name. Absent: `tenant`.
    #[serde(default)]
    pub by: LimitKey,
}

/// The length of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitWindow {
    /// A full second.
    Second,
    /// A full minute.
    Minute,
    /// A full hour.
    Hour,
    /// A UTC day.
    Day,
}

impl LimitWindow {
    /// Its name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitWindow::Second => "second",
            LimitWindow::Minute => "minute",
            LimitWindow::Hour => "hour",
            LimitWindow::Day => "day",
        }
    }

    /// Its length.
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            LimitWindow::Second => 1,
            LimitWindow::Minute => 60,
            LimitWindow::Hour => 60 * 60,
            LimitWindow::Day => 24 * 60 * 60,
        })
    }
}

/// Which calls of a tenant share a counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitKey {
    /// All.
    #[default]
    Tenant,
    /// Those of an operator.
    Operator,
    /// Those of an end user, `user_id` of the context.
    User,
    /// Those of a tool.
    Tool,
}

impl LimitKey {
    /// Its name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitKey::Tenant => "tenant",
            LimitKey::Operator => "operator",
            LimitKey::User => "user",
            LimitKey::Tool => "tool",
        }
    }
}

/// A tenant's limits, each with another counter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "LimitList")]
#[schemars(into = "LimitList")] // both ways, the schema is that of the list
pub struct RateLimits(Vec<Limit>);

impl RateLimits {
    /// The limits, in order.
    pub fn as_slice(&self) -> &[Limit] {
        &self.0
    }
}

impl TryFrom<LimitList> for RateLimits {
    type Error = String;

    fn try_from(list: LimitList) -> Result<Self, String> {
        let mut counters = BTreeSet::new();
        for (index, limit) in list.limits.iter().enumerate() {
            if !counters.insert((limit.per, limit.by)) {
                return Err(format!("`limits[{index}]`: another limit has the same `per` and `by`"));
            }
        }
        Ok(RateLimits(list.limits))
    }
}
