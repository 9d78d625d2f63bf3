//! Reference plugin: which tools a tenant may use.
//!
//! The rules are the tenant's own configuration, so one process serves every tenant: `allowed_tools` and
//! `blocked_tools` are lists of globs. A tool on neither list is blocked, and `blocked_tools` wins.
#![warn(missing_docs)]

mod tools;

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Cancel, Context, Host, InitError, NoConfig, Notice,
    Offer, Plugin, Point, Reply,
};

pub use tools::ToolRules;

/// The code of the block.
const TOOL_NOT_ALLOWED: &str = "TOOL_NOT_ALLOWED";

/// Lets a tenant use the tools of its plan.
pub struct TenantAuth;

impl Plugin for TenantAuth {
    const NAME: &'static str = "tenant-auth";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = ToolRules;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(TenantAuth)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        tools: &ToolRules,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        if tools.allow(&call.tool_name) {
            return Ok(Reply::proceed());
        }
        let message = format!("Tool '{}' is not available on your plan.", call.tool_name);
        let details = serde_json::json!({ "tool_name": call.tool_name, "allowed": tools.patterns() });
        let notice = Notice::block(TOOL_NOT_ALLOWED, message.as_str()).details(&details)?;
        Ok(Reply::from(Cancel::new(TOOL_NOT_ALLOWED, message)).notice(notice))
    }
}

#[cfg(test)]
mod tests;
