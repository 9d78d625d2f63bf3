//! Reference plugin: limits how many calls a tenant makes in a second, a minute, an hour or a day, together or by
//! operator, user or tool. It counts at each point apart, in the gateway's storage.
//!
//! A call counts for all limits or for none: one that is refused uses nothing up.
#![warn(missing_docs)]

mod limits;

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Cancel,
    Capability, Context, Host, InitError, NoConfig, Notice, Offer, Plugin, PluginError, Point, Reply,
    storage::{Add, AddResult, RejectedReason, TransactResult, key_part},
};
use serde_json::json;

pub use limits::{Limit, LimitKey, LimitWindow, RateLimits};

/// The code of the block.
const RATE_LIMITED: &str = "RATE_LIMITED";

/// Blocks calls beyond the tenant's limits.
pub struct RateLimit;

impl RateLimit {
    async fn count<P>(point: Point, ctx: &Context, limits: &RateLimits, tool: Option<&str>) -> Answer<P> {
        let limits = limits.as_slice();
        // A part of a request to a model or of its answer isn't counted: the whole is.
        if limits.is_empty() || ctx.is_replay() || ctx.is_part() {
            return Ok(Reply::proceed());
        }
        let additions = limits.iter().map(|limit| {
            let add = Add::new(key(point, ctx, limit, tool), 1);
            add.limit(limit.requests.get().into()).window(limit.per.length()).into()
        });
        match ctx.storage().transact(additions).await? {
            TransactResult::Committed(_) => Ok(Reply::proceed()),
            TransactResult::Rejected { index, reason: RejectedReason::LimitReached(reached) } => {
                let limit = limits.get(index).ok_or_else(|| PluginError::internal("no such limit"))?;
                block(limit, reached)
            }
            TransactResult::Rejected { .. } => Err(PluginError::internal("a conflict of an addition")),
        }
    }
}

/// The counter of a limit, for example `before_tool_call/tool/minute/fs.read`.
fn key(point: Point, ctx: &Context, limit: &Limit, tool: Option<&str>) -> String {
    let value = match limit.by {
        LimitKey::Tenant => "",
        LimitKey::Operator => ctx.operator(),
        LimitKey::User => ctx.caller().user_id(),
        LimitKey::Tool => tool.unwrap_or_default(),
    };
    let (by, per) = (limit.by.as_str(), limit.per.as_str());
    format!("{point}/{by}/{per}/{}", key_part(value))
}

fn block<P>(limit: &Limit, reached: AddResult) -> Answer<P> {
    let wait = reached.resets_in().unwrap_or(limit.per.length());
    let (by, per) = (limit.by.as_str(), limit.per.as_str());
    let message =
        format!("Rate limit of {} per {per} and {by} exceeded. Please try again later.", limit.requests);
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let details = json!({ "limit": limit.requests, "per": per, "by": by, "retry_after_ms": wait_ms });
    let notice = Notice::block(RATE_LIMITED, message.as_str()).details(&details)?;
    Ok(Reply::from(Cancel::new(RATE_LIMITED, message).retry_after(wait)).notice(notice))
}

impl Plugin for RateLimit {
    const NAME: &'static str = "rate-limit";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const CAPABILITIES: &'static [Capability] = &[Capability::StorageWrite];
    type Config = NoConfig;
    type TenantConfig = RateLimits;

    fn points() -> Vec<Offer> {
        Point::ALL.map(|point| point.read().with_side_effects().reading_only(&[])).into()
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(RateLimit)
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        limits: &RateLimits,
        _: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        Self::count(Point::BeforeLlmRequest, ctx, limits, None).await
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        limits: &RateLimits,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        Self::count(Point::BeforeToolCall, ctx, limits, Some(&call.tool_name)).await
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        limits: &RateLimits,
        result: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        Self::count(Point::AfterToolResult, ctx, limits, Some(&result.tool_name)).await
    }

    async fn before_response(
        &self,
        ctx: &Context,
        limits: &RateLimits,
        _: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        Self::count(Point::BeforeResponse, ctx, limits, None).await
    }
}

#[cfg(test)]
mod tests;
