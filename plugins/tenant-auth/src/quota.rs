//! A tenant's tokens and requests, counted in the gateway's storage.
//!
//! The counters of a tenant, each of which starts again from 0 in its window:
//!
//! | key | window | counts |
//! |---|---|---|
//! | `tokens`, `tokens/operator/OPERATOR` | UTC day | tokens of answers, input and output |
//! | `tool_calls`, `tool_calls/operator/OPERATOR` | UTC day | results of tools |
//! | `requests` | full minute | requests to a model, if they are limited |

use std::time::Duration;

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, Cancel, Capability, Context, Host, HostError, InitError,
    NoConfig, Offer, Plugin, Point, Reply,
    storage::{Add, RejectedReason, TransactResult, key_part},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::block;

/// The code of the blocks.
const QUOTA_EXCEEDED: &str = "QUOTA_EXCEEDED";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
/// The greatest number that a counter can hold.
const MAX_COUNTER: i64 = 1 << 53;

/// Tenant-level configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "tenant-quota")]
pub struct QuotaLimits {
    /// Tokens, input and output, that the tenant may use in a UTC day; absent: no limit. A request to a model is blocked
    /// once they are used up. The request that uses them up may exceed the limit.
    pub daily_tokens: Option<u64>,
    /// Requests to a model that the tenant may make in a full minute; absent: no limit.
    pub requests_per_minute: Option<u32>,
}

/// Blocks requests to a model beyond the tenant's quota, and counts what is used.
pub struct TenantQuota;

impl TenantQuota {
    /// Adds to the day's total of the tenant and of the operator, up to the greatest number that fits.
    async fn record(ctx: &Context, what: &str, amount: u64) -> Result<(), HostError> {
        let mut amount = i64::try_from(amount).unwrap_or(i64::MAX).min(MAX_COUNTER);
        let operator = format!("{what}/operator/{}", key_part(ctx.operator()));
        // Each time that it is rejected, less has room.
        while amount > 0 {
            let totals = [what, &operator].map(|key| Add::new(key, amount).window(DAY).into());
            let TransactResult::Rejected { reason: RejectedReason::LimitReached(total), .. } =
                ctx.storage().transact(totals).await?
            else {
                break;
            };
            amount = MAX_COUNTER.saturating_sub(total.counter()).min(amount - 1);
        }
        Ok(())
    }

    async fn check_tokens(ctx: &Context, limit: u64) -> Answer<BeforeLlmRequestPatch> {
        let entry = ctx.storage().get("tokens").await?;
        let used = entry.as_ref().and_then(|entry| entry.counter()).unwrap_or(0);
        let used = u64::try_from(used).unwrap_or(0);
        if used < limit {
            return Ok(Reply::proceed());
        }
        let message = "Daily token limit exceeded. Please upgrade your plan or try again tomorrow.";
        let cancel =
            with_retry(Cancel::new(QUOTA_EXCEEDED, message), entry.and_then(|entry| entry.expires_in));
        block(cancel, &json!({ "used": used, "limit": limit }))
    }

    async fn count_request(ctx: &Context, limit: u32) -> Answer<BeforeLlmRequestPatch> {
        let requests = ctx.storage().add("requests", 1).limit(limit.into()).window(MINUTE).await?;
        if requests.is_added() {
            return Ok(Reply::proceed());
        }
        let message = format!("Request limit of {limit} per minute exceeded. Please try again in a minute.");
        let cancel = with_retry(Cancel::new(QUOTA_EXCEEDED, message), requests.resets_in());
        block(cancel, &json!({ "used": requests.counter(), "limit": limit }))
    }
}

fn with_retry(cancel: Cancel, after: Option<Duration>) -> Cancel {
    match after {
        Some(after) => cancel.retry_after(after),
        None => cancel,
    }
}

impl Plugin for TenantQuota {
    const NAME: &'static str = "tenant-quota";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const CAPABILITIES: &'static [Capability] = &[Capability::StorageRead, Capability::StorageWrite];
    type Config = NoConfig;
    type TenantConfig = QuotaLimits;

    fn points() -> Vec<Offer> {
        let points = [Point::BeforeLlmRequest, Point::AfterToolResult, Point::BeforeResponse];
        points.map(|point| point.read().with_side_effects().reading_only(&[])).into()
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(TenantQuota)
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        limits: &QuotaLimits,
        _: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        // The request as a whole is counted by another call, and was by an earlier one if this is a replay.
        if ctx.is_replay() || ctx.is_part() {
            return Ok(Reply::proceed());
        }
        // Tokens first: a request that they block doesn't count as one of the minute.
        if let Some(limit) = limits.daily_tokens {
            let reply = Self::check_tokens(ctx, limit).await?;
            if reply.cancelled().is_some() {
                return Ok(reply);
            }
        }
        match limits.requests_per_minute {
            Some(limit) => Self::count_request(ctx, limit).await,
            None => Ok(Reply::proceed()),
        }
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        _: &QuotaLimits,
        _: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        if !ctx.is_replay() {
            Self::record(ctx, "tool_calls", 1).await?;
        }
        Ok(Reply::proceed())
    }

    async fn before_response(
        &self,
        ctx: &Context,
        _: &QuotaLimits,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        let usage = response.token_usage.unwrap_or_default();
        let tokens = usage.input.saturating_add(usage.output);
        if tokens > 0 {
            Self::record(ctx, "tokens", tokens).await?;
        }
        Ok(Reply::proceed())
    }
}

#[cfg(test)]
mod tests;
