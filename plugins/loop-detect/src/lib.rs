//! Reference plugin: stops an agent that calls the same tool with the same arguments again and again in one run.
//!
//! Arguments are the same if they are the same JSON value: white space and the order of members don't count. It counts
//! in the gateway's storage, so calls of a run may reach different replicas.
#![warn(missing_docs)]

mod digest;

use std::{num::NonZeroU32, time::Duration};

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Cancel, Capability, Context, Host, InitError,
    NoConfig, Notice, Offer, PayloadField, Period, Plugin, Point, Reply,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The code of the block.
const LOOP_DETECTED: &str = "LOOP_DETECTED";
/// The longest window: 366 days.
const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Tenant-level configuration, as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "loop-detect")]
struct LoopSettings {
    /// How often a run may make the same call in a window, at least 1; absent: 3.
    max_repeats: Option<NonZeroU32>,
    /// Length of the windows in which calls are counted, such as `30s`, `10m` or `1h`: 1 ms to 366 days. Windows follow
    /// each other from 1970 on, so a loop across the end of one is found in the next. Absent: `10m`.
    window: Option<Period>,
}

/// How often a run may make the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "LoopSettings")]
#[schemars(into = "LoopSettings")] // both ways, the schema is that of the settings
pub struct LoopLimit {
    max_repeats: u32,
    window: Duration,
}

impl TryFrom<LoopSettings> for LoopLimit {
    type Error = String;

    fn try_from(settings: LoopSettings) -> Result<Self, String> {
        let window = settings.window.map_or(Duration::from_secs(600), |window| window.0);
        if window.is_zero() || window > MAX_WINDOW {
            return Err("`window`: expected 1 ms to 366 days".to_owned());
        }
        Ok(LoopLimit { max_repeats: settings.max_repeats.map_or(3, NonZeroU32::get), window })
    }
}

/// Blocks tool calls that a run repeats.
pub struct LoopDetect;

impl Plugin for LoopDetect {
    const NAME: &'static str = "loop-detect";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const CAPABILITIES: &'static [Capability] = &[Capability::StorageWrite];
    type Config = NoConfig;
    type TenantConfig = LoopLimit;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read().with_side_effects().reading_only(&[PayloadField::Args])]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(LoopDetect)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        limit: &LoopLimit,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let caller = ctx.caller();
        let (kind, id) = match (&caller.run_id, &caller.session_id) {
            (Some(run), _) => ("run", run),
            (None, Some(session)) => ("session", session),
            (None, None) => return Ok(Reply::proceed()),
        };
        let key = format!("{kind}/{}", digest::of_call(id, &call.tool_name, &call.args)?);
        let max = limit.max_repeats;
        let calls = ctx.storage().add(key, 1).limit(max.into()).window(limit.window).await?;
        if calls.is_added() {
            return Ok(Reply::proceed());
        }
        let (tool, times) = (&call.tool_name, if max == 1 { "once" } else { &format!("{max} times") });
        let message = format!(
            "Tool '{tool}' was already called {times} with the same arguments. Change them, or do something else."
        );
        let details = json!({ "tool_name": tool, "repeats": calls.counter(), "max_repeats": max });
        let notice = Notice::block(LOOP_DETECTED, message.as_str()).details(&details)?;
        Ok(Reply::from(Cancel::new(LOOP_DETECTED, message)).notice(notice))
    }
}

#[cfg(test)]
mod tests;
