//! One line of the log: facts about the call, without any value of the payload.

use hookgate_sdk::{Context, PluginError, Point, proto::types::v1::Decision};
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// One line of the log. Absent members are left out.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    /// When the plugin was called: RFC 3339, UTC.
    time: String,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    tenant: &'a str,
    operator: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    point: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    /// `continue`, `block`, or `none` if there was no decision. Absent unless the plugin observes.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    /// The plugin that blocked or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    /// The code of the block or the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// The line for a call at `point`, with the tool's name if the point has one.
    ///
    /// # Errors
    /// If the clock is past the year 9999.
    pub fn from_call(point: Point, ctx: &'a Context, tool: Option<&'a str>) -> Result<Self, PluginError> {
        let caller = ctx.caller();
        let result = ctx.chain_result();
        Ok(Record {
            time: OffsetDateTime::now_utc().format(&Rfc3339)?,
            request_id: ctx.request_id(),
            correlation_id: caller.correlation_id.as_deref(),
            tenant: ctx.tenant(),
            operator: ctx.operator(),
            session_id: caller.session_id.as_deref(),
            agent_id: caller.agent_id.as_deref(),
            provider: caller.provider.as_deref(),
            model: caller.model.as_deref(),
            point: point.as_str(),
            tool,
            decision: result.map(|result| match result.decision() {
                Decision::Continue => "continue",
                Decision::Block => "block",
                Decision::Answer => "answer",
                Decision::Unspecified => "none",
            }),
            plugin: result.and_then(|result| result.plugin.as_deref()),
            code: result.and_then(|result| result.code.as_deref()),
        })
    }
}
