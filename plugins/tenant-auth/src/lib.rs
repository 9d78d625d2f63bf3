//! Reference plugins: what a tenant may do. [`TenantAuth`] decides which operators may act and which tools they may
//! use; [`TenantQuota`] limits tokens and requests.
//!
//! The rules are the tenant's own configuration, so one process serves every tenant. [`TenantAuth`] keeps no data and
//! needs no capability, so it works with any gateway; [`TenantQuota`] counts in the gateway's storage
//! (docs/decisions/0057).
#![warn(missing_docs)]

mod access;
mod quota;

use hookgate_sdk::{
    Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload, BeforeToolCallPatch, BeforeToolCallPayload,
    Cancel, Context, Host, InitError, NoConfig, Notice, Offer, Plugin, PluginError, Point, Reply,
};
use serde_json::{Value, json};

pub use access::AccessRules;
pub use quota::{QuotaLimits, TenantQuota};

/// The code of a block because of the tool.
const TOOL_NOT_ALLOWED: &str = "TOOL_NOT_ALLOWED";
/// The code of a block because of the operator.
const UNAUTHORIZED: &str = "UNAUTHORIZED";

/// Lets a tenant's operators act, with the tools of its plan. A tool that isn't allowed is blocked, and `blocked_tools`
/// wins over `allowed_tools`.
pub struct TenantAuth;

impl TenantAuth {
    /// The block of an operator who may not act.
    fn check_operator<P>(ctx: &Context, access: &AccessRules) -> Result<Option<Reply<P>>, PluginError> {
        let operator = ctx.operator();
        if access.admit(operator) {
            return Ok(None);
        }
        let message = format!("Operator '{operator}' may not act for this tenant.");
        block(Cancel::new(UNAUTHORIZED, message), &json!({ "operator": operator })).map(Some)
    }
}

/// Cancels with a notice of the same code and message.
fn block<P>(cancel: Cancel, details: &Value) -> Answer<P> {
    let notice = Notice::block(cancel.code(), cancel.message()).details(details)?;
    Ok(Reply::from(cancel).notice(notice))
}

impl Plugin for TenantAuth {
    const NAME: &'static str = "tenant-auth";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = AccessRules;

    fn points() -> Vec<Offer> {
        [Point::BeforeLlmRequest, Point::BeforeToolCall].map(|point| point.read().reading_only(&[])).into()
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(TenantAuth)
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        access: &AccessRules,
        _: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        Ok(Self::check_operator(ctx, access)?.unwrap_or_else(Reply::proceed))
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        access: &AccessRules,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        if let Some(block) = Self::check_operator(ctx, access)? {
            return Ok(block);
        }
        if access.allow(&call.tool_name) {
            return Ok(Reply::proceed());
        }
        let message = format!("Tool '{}' is not available on your plan.", call.tool_name);
        let details = json!({ "tool_name": call.tool_name, "allowed": access.patterns() });
        block(Cancel::new(TOOL_NOT_ALLOWED, message), &details)
    }
}

#[cfg(test)]
mod tests;
