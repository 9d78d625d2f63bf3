//! Reference plugin: writes what agents do as JSON lines.
//!
//! Meant for `mode: observe`, because observers learn how the chain ended. A line says who did what, and
//! the result. It never contains a payload's values: no text, no arguments, no result.
#![warn(missing_docs)]

mod record;

use std::path::PathBuf;

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host,
    InitError, NoConfig, Offer, Plugin, PluginError, Point, Reply,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Mutex,
};

pub use record::Record;

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "audit-log")]
pub struct Config {
    /// File to append to, made when there is none; absent for standard output.
    pub path: Option<PathBuf>,
}

/// Writes one line for each call that isn't a replay.
pub struct AuditLog {
    output: Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
}

impl AuditLog {
    async fn write(&self, point: Point, ctx: &Context, tool: Option<&str>) -> Result<(), PluginError> {
        if ctx.is_replay() {
            return Ok(());
        }
        let mut line = serde_json::to_vec(&Record::from_call(point, ctx, tool)?)?;
        line.push(b'\n');
        let mut output = self.output.lock().await;
        // Written in one call: tokio's writers take a whole line at once, so a cancelled call never leaves
        // half a line.
        output.write_all(&line).await?;
        output.flush().await?;
        Ok(())
    }
}

impl Plugin for AuditLog {
    const NAME: &'static str = "audit-log";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        Point::ALL.into_iter().map(|point| point.read().with_side_effects().reading_only(&[])).collect()
    }

    async fn initialize(config: Config, _: Host) -> Result<Self, InitError> {
        let output: Box<dyn AsyncWrite + Send + Unpin> = match config.path {
            None => Box::new(tokio::io::stdout()),
            Some(path) => {
                let opened = tokio::fs::OpenOptions::new().append(true).create(true).open(&path).await;
                let wrong = |error| InitError::config("path", format!("can't append to the file: {error}"));
                Box::new(opened.map_err(wrong)?)
            }
        };
        Ok(AuditLog { output: Mutex::new(output) })
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        _: &NoConfig,
        _: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        self.write(Point::BeforeLlmRequest, ctx, None).await?;
        Ok(Reply::proceed())
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        self.write(Point::BeforeToolCall, ctx, Some(&call.tool_name)).await?;
        Ok(Reply::proceed())
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        _: &NoConfig,
        result: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        self.write(Point::AfterToolResult, ctx, Some(&result.tool_name)).await?;
        Ok(Reply::proceed())
    }

    async fn before_response(
        &self,
        ctx: &Context,
        _: &NoConfig,
        _: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        self.write(Point::BeforeResponse, ctx, None).await?;
        Ok(Reply::proceed())
    }

    async fn shutdown(&self) {
        // Every line was flushed when it was written, and a failure was reported to its caller.
        let _ = self.output.lock().await.flush().await;
    }
}

#[cfg(test)]
mod tests;
