//! Reference plugin: rules for tool calls and their arguments.
//!
//! Rules of the plugin-level configuration are in force for every tenant. A tenant's own rules can deny more,
//! and allow what no plugin-level rule decides. What a rule can't judge never passes because of it
//! (docs/decisions/0054).
#![warn(missing_docs)]

mod argument;
mod condition;
mod path;
mod rules;
mod setting;

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Cancel, Context, Host, InitError, Notice, Offer,
    PayloadField, Plugin, Point, Reply,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub use condition::{Action, ConditionSpec};
pub use rules::RuleSpec;

use rules::{Rule, RuleList, ToolCall, UnclearCondition};

/// The code of the block.
const TOOL_NOT_ALLOWED: &str = "TOOL_NOT_ALLOWED";

/// The maximum size of arguments that are judged, in bytes. Parsed, they take up to 32 times the memory.
const MAX_ARGUMENTS_BYTES: usize = 1 << 20;

/// The maximum number of conditions in a notice that couldn't be judged.
const MAX_SHOWN_CONDITIONS: usize = 4;

/// Plugin-level configuration.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tool-policy")]
pub struct Config {
    /// What happens to a call that no rule decides: `allow` or `deny`; absent: `deny`.
    pub default: Option<Action>,
    /// Rules for every tenant, at most 256. The first that applies decides.
    #[serde(default)]
    pub rules: Vec<RuleSpec>,
}

/// Tenant-level configuration, as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tool-policy")]
struct TenantRuleSpecs {
    /// Rules of the tenant, at most 256. They decide a call unless a plugin-level rule denies it.
    #[serde(default)]
    tenant_rules: Vec<RuleSpec>,
}

/// The rules of a tenant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(try_from = "TenantRuleSpecs")]
#[schemars(into = "TenantRuleSpecs")] // both ways, the schema is that of the rules as written
pub struct TenantRules(RuleList);

impl TryFrom<TenantRuleSpecs> for TenantRules {
    type Error = String;

    fn try_from(specs: TenantRuleSpecs) -> Result<Self, String> {
        let rules = RuleList::compile(specs.tenant_rules, "tenant_rules");
        rules.map(TenantRules).map_err(|invalid| invalid.to_string())
    }
}

/// Blocks the tool calls that the rules don't allow.
pub struct ToolPolicy {
    default: Action,
    rules: RuleList,
}

/// What happens to a call, and why.
#[derive(Debug)]
struct Decision<'r> {
    action: Action,
    /// The rule that decided; absent for the default.
    rule: Option<&'r Rule>,
    /// If the rule that decided is among them, it is the last one.
    unclear: Vec<UnclearCondition<'r>>,
}

impl ToolPolicy {
    fn decide<'r>(&'r self, tenant: &'r TenantRules, call: ToolCall<'_>) -> Decision<'r> {
        let of_plugin = self.rules.rule_on(call);
        if of_plugin.rule.is_some_and(|rule| rule.action == Action::Deny) {
            return Decision { action: Action::Deny, rule: of_plugin.rule, unclear: of_plugin.unclear };
        }
        let of_tenant = tenant.0.rule_on(call);
        let rule = of_tenant.rule.or(of_plugin.rule);
        let mut unclear = of_plugin.unclear;
        unclear.extend(of_tenant.unclear);
        Decision { action: rule.map_or(self.default, |rule| rule.action), rule, unclear }
    }
}

impl Decision<'_> {
    /// The user's message. The model sees it too, so it says what to change where it can.
    fn message(&self, tool: &str) -> String {
        let Some(rule) = self.rule else { return format!("No rule allows this call of tool '{tool}'.") };
        let unclear = self.unclear.last().filter(|condition| std::ptr::eq(condition.rule, rule));
        let unclear = unclear.map(|UnclearCondition { pointer, reason, .. }| {
            format!("Rule '{}' can't judge `{pointer}` of tool '{tool}': {reason}.", rule.name)
        });
        match (&rule.message, unclear) {
            // The rule's message alone would blame the call for what it may not do.
            (Some(message), Some(unclear)) => format!("{message} ({unclear})"),
            (Some(message), None) => message.clone(),
            (None, Some(unclear)) => unclear,
            (None, None) => format!("Rule '{}' denies this call of tool '{tool}'.", rule.name),
        }
    }

    /// The details have no value of the call except the tool's name.
    fn block(&self, tool: &str) -> Answer<BeforeToolCallPatch> {
        let message = self.message(tool);
        let mut details = json!({ "tool_name": tool });
        if let Some(rule) = self.rule {
            details["rule"] = json!(rule.name);
        }
        let shown = self.unclear.iter().rev().take(MAX_SHOWN_CONDITIONS).rev();
        let shown = shown.map(|UnclearCondition { rule, pointer, reason }| {
            json!({ "rule": rule.name, "pointer": pointer, "reason": reason })
        });
        let shown: Vec<Value> = shown.collect();
        if !shown.is_empty() {
            details["not_judged"] = json!(shown);
        }
        let notice = Notice::block(TOOL_NOT_ALLOWED, message.as_str()).details(&details)?;
        Ok(Reply::from(Cancel::new(TOOL_NOT_ALLOWED, message)).notice(notice))
    }
}

impl Plugin for ToolPolicy {
    const NAME: &'static str = "tool-policy";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = TenantRules;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read().reading_only(&[PayloadField::Args])]
    }

    async fn initialize(config: Config, _: Host) -> Result<Self, InitError> {
        let rules = RuleList::compile(config.rules, "rules");
        let rules = rules.map_err(|invalid| InitError::config(&invalid.field, invalid.expected))?;
        Ok(ToolPolicy { default: config.default.unwrap_or(Action::Deny), rules })
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        tenant: &TenantRules,
        payload: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let is_small = payload.args.len() <= MAX_ARGUMENTS_BYTES;
        let arguments = is_small.then(|| hookgate_sdk::json::parse::<Value>(&payload.args)).transpose()?;
        let call = ToolCall { tool: &payload.tool_name, arguments: arguments.as_ref() };
        let decision = self.decide(tenant, call);
        match decision.action {
            Action::Allow => Ok(Reply::proceed()),
            Action::Deny => decision.block(&payload.tool_name),
        }
    }
}

#[cfg(test)]
mod tests;
