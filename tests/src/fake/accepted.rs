//! The consent of an operator who accepts a plugin's current manifest (docs/decisions/0033-consent.md).

use hookgate::core::digest::digest;
use hookgate_proto::{
    plugin::v1::{Access, DescribeResponse, HookOffer, SideEffects},
    types::v1::ExtensionPoint,
};
use serde_json::{Map, Value, json};

/// The `accepted` of an entry for a plugin with this manifest.
pub(super) fn accepted(manifest: &DescribeResponse) -> Value {
    let mut points = Map::new();
    for offer in &manifest.points {
        let point = match offer.point() {
            ExtensionPoint::Unspecified => continue,
            ExtensionPoint::BeforeLlmRequest => "before_llm_request",
            ExtensionPoint::BeforeToolCall => "before_tool_call",
            ExtensionPoint::AfterToolResult => "after_tool_result",
            ExtensionPoint::BeforeResponse => "before_response",
        };
        let access = if offer.access() == Access::Modify { "modify" } else { "read" };
        let side_effects = if offer.side_effects() == SideEffects::Some { "some" } else { "none" };
        let mut accepted = json!({ "access": access, "side_effects": side_effects });
        if let Some(reads) = &offer.reads {
            accepted["reads"] = json!(reads.names);
        }
        if offer.windows {
            accepted["windows"] = json!(true);
        }
        points.insert(point.to_owned(), accepted);
    }
    let mut accepted = json!({ "points": points, "capabilities": manifest.capabilities });
    if !manifest.hooks.is_empty() {
        let side_effects =
            |offer: &HookOffer| if offer.side_effects() == SideEffects::Some { "some" } else { "none" };
        let hooks = manifest.hooks.iter().map(|offer| (offer.hook.clone(), side_effects(offer).into()));
        accepted["hooks"] = Value::Object(hooks.collect());
    }
    if !manifest.tools.is_empty() {
        accepted["tools"] = json!(manifest.tools);
    }
    for (member, schema) in
        [("config_schema", &manifest.config_schema), ("tenant_config_schema", &manifest.tenant_config_schema)]
    {
        if !schema.is_empty() {
            let schema = serde_json::from_slice(schema).expect("a test's schema is JSON");
            accepted[member] = digest(&schema).into();
        }
    }
    accepted
}
