//! Reference plugin: pauses a tool that keeps failing. After a number of failures in a row, calls of the tool are
//! blocked for a while. Then they pass again: a success closes the matter, and the next failure pauses the tool again.
//!
//! It keeps two entries for a tool in the tenant's data, so all replicas share them: `failures/TOOL`, a counter, and
//! `open/TOOL`, which expires with the pause.
#![warn(missing_docs)]

use std::{num::NonZeroU32, time::Duration};

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeToolCallPatch, BeforeToolCallPayload, Cancel,
    Capability, Context, Host, HostError, InitError, NoConfig, Notice, Offer, PayloadField, Period, Plugin,
    Point, Reply,
    storage::{Delete, key_part},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The code of the block.
const TOOL_UNAVAILABLE: &str = "TOOL_UNAVAILABLE";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest pause: 366 days.
const MAX_COOLDOWN: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Tenant-level configuration, as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "circuit-breaker")]
struct BreakerSettings {
    /// Failures in a row, within a UTC day, after which a tool is paused, at least 1; absent: 5.
    failures: Option<NonZeroU32>,
    /// How long it is paused, such as `500ms`, `30s` or `5m`: 1 ms to 366 days. Absent: `30s`.
    cooldown: Option<Period>,
}

/// When a tool is paused, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "BreakerSettings")]
#[schemars(into = "BreakerSettings")] // both ways, the schema is that of the settings
pub struct BreakerRule {
    failures: u32,
    cooldown: Duration,
}

impl TryFrom<BreakerSettings> for BreakerRule {
    type Error = String;

    fn try_from(settings: BreakerSettings) -> Result<Self, String> {
        let cooldown = settings.cooldown.map_or(Duration::from_secs(30), |cooldown| cooldown.0);
        if cooldown.is_zero() || cooldown > MAX_COOLDOWN {
            return Err("`cooldown`: expected 1 ms to 366 days".to_owned());
        }
        Ok(BreakerRule { failures: settings.failures.map_or(5, NonZeroU32::get), cooldown })
    }
}

/// Blocks calls of tools that keep failing.
pub struct CircuitBreaker;

/// The keys of a tool.
struct ToolKeys {
    failures: String,
    open: String,
}

impl ToolKeys {
    fn new(tool: &str) -> Self {
        let tool = key_part(tool);
        ToolKeys { failures: format!("failures/{tool}"), open: format!("open/{tool}") }
    }
}

impl CircuitBreaker {
    async fn record_failure(ctx: &Context, rule: &BreakerRule, keys: ToolKeys) -> Result<(), HostError> {
        let storage = ctx.storage();
        let failures = storage.add(keys.failures, 1).window(DAY).await?;
        if failures.counter() >= i64::from(rule.failures) {
            // Calls that began before the pause don't prolong it.
            storage.put(keys.open, "").ttl(rule.cooldown).expected_version(0).await?;
        }
        Ok(())
    }

    /// Most successes follow a success, so they only read.
    async fn record_success(ctx: &Context, keys: ToolKeys) -> Result<(), HostError> {
        let storage = ctx.storage();
        if storage.get_many([&keys.failures, &keys.open]).await?.is_empty() {
            return Ok(());
        }
        let _ = storage.transact([Delete::new(keys.failures).into(), Delete::new(keys.open).into()]).await?;
        Ok(())
    }
}

/// A result as MCP servers report it.
#[derive(Deserialize)]
struct McpResult {
    #[serde(rename = "isError", default)]
    is_error: bool,
}

/// Whether the agent, or the result itself, says that the tool failed.
fn has_failed(result: &AfterToolResultPayload) -> bool {
    if result.success == Some(false) {
        return true;
    }
    // serde would also accept a list of the members.
    let is_object = result.result.trim_ascii_start().first() == Some(&b'{');
    is_object && serde_json::from_slice::<McpResult>(&result.result).is_ok_and(|result| result.is_error)
}

impl Plugin for CircuitBreaker {
    const NAME: &'static str = "circuit-breaker";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const CAPABILITIES: &'static [Capability] = &[Capability::StorageRead, Capability::StorageWrite];
    type Config = NoConfig;
    type TenantConfig = BreakerRule;

    fn points() -> Vec<Offer> {
        vec![
            Point::BeforeToolCall.read().reading_only(&[]),
            Point::AfterToolResult.read().with_side_effects().reading_only(&[PayloadField::Result]),
        ]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(CircuitBreaker)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        rule: &BreakerRule,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let tool = &call.tool_name;
        let Some(open) = ctx.storage().get(ToolKeys::new(tool).open).await? else {
            return Ok(Reply::proceed());
        };
        let wait = open.expires_in.unwrap_or(rule.cooldown);
        let message =
            format!("Tool '{tool}' failed several times in a row and is paused. Please try again later.");
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let details = json!({ "tool_name": tool, "retry_after_ms": wait_ms });
        let notice = Notice::block(TOOL_UNAVAILABLE, message.as_str()).details(&details)?;
        Ok(Reply::from(Cancel::new(TOOL_UNAVAILABLE, message).retry_after(wait)).notice(notice))
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        rule: &BreakerRule,
        result: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        if ctx.is_replay() {
            return Ok(Reply::proceed());
        }
        let keys = ToolKeys::new(&result.tool_name);
        if has_failed(&result) {
            Self::record_failure(ctx, rule, keys).await?;
        } else {
            Self::record_success(ctx, keys).await?;
        }
        Ok(Reply::proceed())
    }
}

#[cfg(test)]
mod tests;
