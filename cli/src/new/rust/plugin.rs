//! Refuses the tools that a tenant's configuration lists.

use hookgate_sdk::*;

pub struct ToolGuard;

/// The configuration of one tenant.
#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuardedTools {
    /// The tools that the tenant's agents may not use.
    refused_tools: Vec<String>,
}

impl Plugin for ToolGuard {
    const NAME: &'static str = "@NAME@";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = GuardedTools;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(ToolGuard)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        tenant: &GuardedTools,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        if tenant.refused_tools.contains(&call.tool_name) {
            let message = format!("Agents may not use {}.", call.tool_name);
            return Ok(Reply::cancel("TOOL_NOT_ALLOWED", message));
        }
        Ok(Reply::proceed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hookgate_sdk::harness::TestPlugin;
    use serde_json::json;

    #[tokio::test]
    async fn refuses_what_the_tenant_s_configuration_lists() {
        let plugin = TestPlugin::<ToolGuard>::start(&NoConfig {}).await.unwrap();
        let tenant = json!({ "refused_tools": ["shell.exec"] });
        let plugin = plugin.with_tenant_config(&tenant).unwrap();
        for (tool, refused) in [("shell.exec", true), ("fs.read", false)] {
            let call = BeforeToolCallPayload {
                tool_name: tool.into(),
                ..Default::default()
            };
            let reply = plugin.before_tool_call(call).await.unwrap();
            assert_eq!(reply.cancelled().is_some(), refused, "{tool}");
        }
    }
}
