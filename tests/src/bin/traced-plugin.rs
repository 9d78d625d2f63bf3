//! A plugin that enables telemetry with one line, as an author would. Its tool runs in its own span.

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host, InitError, NoConfig, Offer, Plugin,
    Point, Reply, serve, telemetry,
};

struct TracedPlugin;

impl Plugin for TracedPlugin {
    const NAME: &'static str = "traced";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(TracedPlugin)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        rules(&call.tool_name).await;
        tracing::info!(tool = call.tool_name, "the rules allow it");
        Ok(Reply::proceed())
    }
}

#[tracing::instrument]
async fn rules(tool: &str) {
    tokio::task::yield_now().await;
}

// One thread, to show that the last export doesn't depend on the runtime whose thread waits for it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _telemetry = telemetry::init::<TracedPlugin>()?;
    serve::<TracedPlugin>("http://127.0.0.1:0").await?;
    Ok(())
}
