//! What the tests of several modules share: plugins that are one rule for tool calls, and a gateway's call to
//! them.

use hookgate_proto::plugin::v1::{BeforeToolCallRequest, Call};

use crate::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host, InitError, NoConfig, Offer, Plugin,
    Point,
};

/// A plugin without configuration that answers only before tool calls.
pub(crate) trait ToolRule: Default + Send + Sync + 'static {
    const NAME: &'static str;

    fn answer(&self, tool: &str) -> impl Future<Output = Answer<BeforeToolCallPatch>> + Send;

    fn flush(&self) {}
}

impl<R: ToolRule> Plugin for R {
    const NAME: &'static str = <R as ToolRule>::NAME;
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(R::default())
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        self.answer(&call.tool_name).await
    }

    async fn shutdown(&self) {
        self.flush();
    }
}

/// A call of `tool` to the instance with the configuration `digest`.
pub(crate) fn request(digest: &str, tool: &str) -> BeforeToolCallRequest {
    let call = Call { config_digest: digest.to_owned(), ..Default::default() };
    let payload = BeforeToolCallPayload { tool_name: tool.to_owned(), ..Default::default() };
    BeforeToolCallRequest { call: Some(call), payload: Some(payload) }
}
