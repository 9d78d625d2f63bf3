//! An ordered list of rules. The first rule that applies to a call decides.

use std::collections::BTreeSet;

use regex::RegexSet;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    condition::{Action, Condition, ConditionSpec, Judgement},
    setting::{InvalidSetting, non_empty},
};

/// Limits of the settings. They bound the work of a call, and the details of a notice.
const MAX_RULES: usize = 256;
const MAX_CONDITIONS: usize = 16;
const MAX_NAME_BYTES: usize = 64;
/// The gateway cuts longer messages.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A rule, as written.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// 1 to 64 letters, digits, `.`, `_` and `-`, unique in its list. A block names the rule.
    name: String,
    /// Globs (`*`, `?`, `[..]`, case-sensitive) of the tools that the rule is about; absent: every tool.
    tools: Option<Vec<String>>,
    /// Conditions on the arguments, all of which have to be true; absent: none.
    #[serde(default)]
    when: Vec<ConditionSpec>,
    /// `allow` or `deny`.
    action: Action,
    /// The block's message, at most 1 KiB; only for a rule that denies.
    message: Option<String>,
}

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) action: Action,
    pub(crate) message: Option<String>,
    tools: Option<RegexSet>,
    conditions: Vec<Condition>,
}

/// Compiled rules, in order.
#[derive(Debug, Default)]
pub(crate) struct RuleList(Vec<Rule>);

/// A call, as rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolCall<'c> {
    pub(crate) tool: &'c str,
    /// Absent if they are too large to be judged.
    pub(crate) arguments: Option<&'c Value>,
}

/// A condition that couldn't be judged for a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnclearCondition<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) pointer: &'r str,
    pub(crate) reason: &'static str,
}

/// The result of a list of rules for a call.
#[derive(Debug, Default)]
pub(crate) struct Ruling<'r> {
    /// The rule that decides, if one does.
    pub(crate) rule: Option<&'r Rule>,
    /// The first condition of each rule up to there that couldn't be judged.
    pub(crate) unclear: Vec<UnclearCondition<'r>>,
}

impl RuleList {
    /// Compiles the rules at `field` of the settings.
    ///
    /// # Errors
    /// Names the first invalid setting.
    pub(crate) fn compile(specs: Vec<RuleSpec>, field: &str) -> Result<Self, InvalidSetting> {
        if specs.len() > MAX_RULES {
            return Err(InvalidSetting::new(field, format!("expected at most {MAX_RULES} rules")));
        }
        let mut names = BTreeSet::new();
        let compile = |(index, spec): (usize, RuleSpec)| {
            let field = format!("{field}[{index}]");
            match names.insert(spec.name.clone()) {
                true => Rule::compile(spec, &field),
                false => Err(InvalidSetting::new(format!("{field}.name"), "an earlier rule has this name")),
            }
        };
        specs.into_iter().enumerate().map(compile).collect::<Result<_, _>>().map(RuleList)
    }

    /// Finds the first rule that applies. A rule with a condition that can't be judged applies if it denies,
    /// and doesn't if it allows.
    pub(crate) fn rule_on(&self, call: ToolCall<'_>) -> Ruling<'_> {
        let mut unclear = Vec::new();
        let rule = self.0.iter().find(|rule| match rule.judge(call) {
            Ok(applies) => applies,
            Err(condition) => {
                unclear.push(condition);
                rule.action == Action::Deny
            }
        });
        Ruling { rule, unclear }
    }
}

impl Rule {
    fn compile(spec: RuleSpec, field: &str) -> Result<Self, InvalidSetting> {
        let invalid = |name: &str, expected: String| InvalidSetting::new(format!("{field}.{name}"), expected);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=MAX_NAME_BYTES).contains(&spec.name.len()) || !spec.name.chars().all(is_plain) {
            let expected = format!("expected 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` and `-`");
            return Err(invalid("name", expected));
        }
        if let Some(message) = &spec.message {
            if spec.action == Action::Allow {
                return Err(invalid("message", "only a rule that denies has a message".to_owned()));
            }
            if !(1..=MAX_MESSAGE_BYTES).contains(&message.len()) {
                return Err(invalid("message", format!("expected 1 to {MAX_MESSAGE_BYTES} bytes")));
            }
        }
        if spec.when.len() > MAX_CONDITIONS {
            return Err(invalid("when", format!("expected at most {MAX_CONDITIONS} conditions")));
        }
        let tools = spec.tools.map(|globs| {
            let field = format!("{field}.tools");
            non_empty(&globs, &field)?;
            Ok::<_, InvalidSetting>(hookgate_glob::compile(&field, &globs)?)
        });
        let numbered = spec.when.iter().enumerate();
        let conditions = numbered
            .map(|(index, when)| Condition::compile(when, spec.action, &format!("{field}.when[{index}]")));
        Ok(Rule {
            tools: tools.transpose()?,
            conditions: conditions.collect::<Result<_, _>>()?,
            name: spec.name,
            action: spec.action,
            message: spec.message,
        })
    }

    /// Whether the rule applies. One false condition is enough for "no", whatever can't be judged.
    fn judge(&self, call: ToolCall<'_>) -> Result<bool, UnclearCondition<'_>> {
        if self.tools.as_ref().is_some_and(|tools| !tools.is_match(call.tool)) {
            return Ok(false);
        }
        let mut unclear = None;
        for condition in &self.conditions {
            let judgement = match call.arguments {
                Some(arguments) => condition.judge(arguments),
                None => Judgement::Unclear("the arguments exceed 1 MiB"),
            };
            match judgement {
                Judgement::True => {}
                Judgement::False => return Ok(false),
                Judgement::Unclear(reason) => {
                    let pointer = condition.pointer();
                    unclear.get_or_insert(UnclearCondition { rule: self, pointer, reason });
                }
            }
        }
        unclear.map_or(Ok(true), Err)
    }
}
