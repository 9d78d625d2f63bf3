//! Compiled match conditions of a binding (docs/protocol.md, section 3), which decide whether a step runs for
//! a call.
//!
//! A step is skipped only if a condition is known to be false. So a condition on something that the point
//! doesn't have isn't applied, and a condition on a value that the call doesn't carry counts as met. An empty
//! value counts as absent, as on the wire.
//!
//! Evaluation can't fail, so nothing here causes `condition_error`: patterns are compiled with the
//! configuration, and matching is linear in the length of the value. This module knows nothing of payloads;
//! the caller passes the values.

use std::{collections::BTreeMap, sync::Arc};

use regex::{Regex, RegexSet};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    config::{JsonObject, Match, Problem, TextMatch},
    core::{call_site::CallSite, point::Point},
    json::pointer::child,
    routing::pattern_pool::PatternPool,
};

/// The values of a call that conditions test.
#[derive(Debug, Clone, Copy)]
pub struct MatchSubject<'a> {
    pub site: &'a CallSite,
    /// The tool's name as the agent sent it and its current value, at points that name a tool.
    pub tool: Option<[&'a str; 2]>,
    /// `text` or `content` as the agent sent it and its current value, at the other points.
    pub text: Option<[&'a str; 2]>,
    /// The payload's `model`, or else the context's.
    pub model: Option<&'a str>,
    /// The context's `agent_id`.
    pub agent: Option<&'a str>,
    /// The context's `agent_path`.
    pub agent_path: Option<&'a str>,
    /// The request's labels and those from the token (`claim.*`); never the tenant's.
    pub labels: &'a BTreeMap<String, String>,
}

/// The conditions of one binding. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Option<Arc<CompiledConditions>>);

#[derive(Debug)]
pub(super) struct CompiledConditions {
    /// As written, without absent keys.
    written: Value,
    tools: Option<RegexSet>,
    agents: Option<RegexSet>,
    agent_paths: Option<RegexSet>,
    models: Option<RegexSet>,
    labels: Vec<(String, RegexSet)>,
    text: Option<RegexSet>,
}

/// One of a binding's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition<'a> {
    /// `agents`.
    Agents,
    /// `agent_paths`.
    AgentPaths,
    /// `models`.
    Models,
    /// An entry of `labels`, by its key.
    Label(&'a str),
    /// `tools`.
    Tools,
    /// `text`.
    Text,
}

/// The result of a condition for a call. Only [`ConditionOutcome::NotMatched`] skips a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionOutcome {
    /// A pattern matches.
    Matched,
    /// The call has the value, and no pattern matches it.
    NotMatched,
    /// The call doesn't carry the value, or it is empty: counts as met.
    NotSent,
    /// The point has no such value: counts as met.
    NotApplied,
}

impl Conditions {
    /// Compiles `written`, which is at `pointer` in the configuration.
    ///
    /// # Errors
    /// A problem for each invalid or empty pattern, and for each empty list. An empty list has no
    /// alternatives, so it could only disable the step for good, or look like a condition without being one.
    pub fn compile(written: &Match, pointer: &str) -> Result<Self, Vec<Problem>> {
        if *written == Match::default() {
            return Ok(Conditions(None));
        }
        let mut problems = Vec::new();
        let mut globs = |list: &[String], name: &str| {
            set(patterns(list, name, hookgate_glob::to_regex), name).unwrap_or_else(|errors| {
                problems.extend(errors);
                None
            })
        };
        let mut set_of = |list: &Option<Vec<String>>, key: &str| {
            list.as_deref().and_then(|list| globs(list, &format!("{pointer}/{key}")))
        };
        let tools = set_of(&written.tools, "tools");
        let agents = set_of(&written.agents, "agents");
        let agent_paths = set_of(&written.agent_paths, "agent_paths");
        let models = set_of(&written.models, "models");
        let labels = written.labels.iter().filter_map(|(key, list)| {
            let name = child(&format!("{pointer}/labels"), key);
            Some((key.clone(), globs(list, &name)?))
        });
        let labels = labels.collect();
        let text = written.text.as_ref().and_then(|text| {
            texts(text, &format!("{pointer}/text")).unwrap_or_else(|errors| {
                problems.extend(errors);
                None
            })
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        let written = as_written(written);
        let compiled = CompiledConditions { written, tools, agents, agent_paths, models, labels, text };
        Ok(Conditions(Some(Arc::new(compiled))))
    }

    /// Whether a condition reads the text that the user or the model says.
    pub fn reads_text(&self) -> bool {
        self.0.as_ref().is_some_and(|compiled| compiled.text.is_some())
    }

    /// The conditions as written, without absent keys. Null without conditions.
    pub fn source(&self) -> &Value {
        self.0.as_ref().map_or(&Value::Null, |compiled| &compiled.written)
    }

    /// Whether the step runs for `subject`. Returns false only if a condition is known to be false.
    pub fn is_met(&self, subject: &MatchSubject<'_>) -> bool {
        self.each(*subject).all(|(_, checked)| checked != ConditionOutcome::NotMatched)
    }

    /// The outcome of each condition for `subject`, evaluated lazily.
    pub fn each<'s>(
        &'s self,
        subject: MatchSubject<'s>,
    ) -> impl Iterator<Item = (Condition<'s>, ConditionOutcome)> {
        let point = subject.site.point();
        let (at_tool, has_text) =
            (point.is_some_and(Point::names_a_tool), point.is_some_and(|point| !point.names_a_tool()));
        self.0.iter().flat_map(move |compiled| {
            let agents = compiled.agents.iter().map(move |set| (Condition::Agents, one(set, subject.agent)));
            let paths = compiled.agent_paths.iter();
            let paths = paths.map(move |set| (Condition::AgentPaths, one(set, subject.agent_path)));
            let models = compiled.models.iter().map(move |set| (Condition::Models, one(set, subject.model)));
            let labels = compiled.labels.iter().map(move |(key, set)| {
                (Condition::Label(key), one(set, subject.labels.get(key).map(String::as_str)))
            });
            let tools = compiled.tools.iter().map(move |set| {
                (
                    Condition::Tools,
                    if at_tool { either(set, subject.tool) } else { ConditionOutcome::NotApplied },
                )
            });
            let text = compiled.text.iter().map(move |set| {
                (
                    Condition::Text,
                    if has_text { either(set, subject.text) } else { ConditionOutcome::NotApplied },
                )
            });
            // Text comes last: it is the only condition whose cost grows with the payload.
            agents.chain(paths).chain(models).chain(labels).chain(tools).chain(text)
        })
    }
}

impl PatternPool {
    /// See [`Conditions::compile`].
    ///
    /// # Errors
    /// As [`Conditions::compile`].
    pub(super) fn compile(&self, written: &Match, pointer: &str) -> Result<Conditions, Vec<Problem>> {
        if let Some(same) = self.conditions.get(written) {
            return Ok(Conditions(Some(same)));
        }
        let conditions = Conditions::compile(written, pointer)?;
        if let Some(compiled) = &conditions.0 {
            self.conditions.insert(written.clone(), compiled);
        }
        Ok(conditions)
    }
}

fn as_written(conditions: &Match) -> Value {
    let Match { tools, agents, agent_paths, models, labels, text } = conditions;
    let mut members = JsonObject::new();
    for (name, list) in
        [("tools", tools), ("agents", agents), ("agent_paths", agent_paths), ("models", models)]
    {
        members.extend(list.as_ref().map(|list| (name.to_owned(), json!(list))));
    }
    if !labels.is_empty() {
        members.insert("labels".to_owned(), json!(labels));
    }
    let of_text = |text: &TextMatch| json!({ "contains": text.contains, "regex": text.regex });
    members.extend(text.as_ref().map(|text| ("text".to_owned(), of_text(text))));
    Value::Object(members)
}

fn one(set: &RegexSet, value: Option<&str>) -> ConditionOutcome {
    match value {
        None | Some("") => ConditionOutcome::NotSent,
        Some(value) => outcome_from(set.is_match(value)),
    }
}

/// Matches the original or the current value: a change by an earlier plugin can add a step, and never remove
/// one.
fn either(set: &RegexSet, value: Option<[&str; 2]>) -> ConditionOutcome {
    let Some([original, current]) = value else { return ConditionOutcome::NotSent };
    match one(set, Some(original)) {
        // Unchanged values share their memory, so the usual case matches once.
        ConditionOutcome::NotMatched if !std::ptr::eq(original, current) => {
            outcome_from(set.is_match(current))
        }
        checked => checked,
    }
}

fn outcome_from(met: bool) -> ConditionOutcome {
    if met { ConditionOutcome::Matched } else { ConditionOutcome::NotMatched }
}

/// The patterns of `list`, each checked and reported by its own pointer.
fn patterns(
    list: &[String],
    pointer: &str,
    to_regex: impl Fn(&str) -> Result<String, String>,
) -> Vec<Result<String, Problem>> {
    let pattern = |(at, written): (usize, &String)| {
        let problem = |message: String| Problem::new(format!("{pointer}/{at}"), message);
        if written.is_empty() {
            return Err(problem("an empty pattern matches nothing; remove it".to_owned()));
        }
        let regex = to_regex(written).map_err(problem)?;
        Regex::new(&regex).map_err(|error| problem(format!("`{written}` is not usable: {error}")))?;
        Ok(regex)
    };
    list.iter().enumerate().map(pattern).collect()
}

/// One set of all `patterns`, so that a value is scanned once.
fn set(patterns: Vec<Result<String, Problem>>, pointer: &str) -> Result<Option<RegexSet>, Vec<Problem>> {
    let problem = |message: String| vec![Problem::new(pointer, message)];
    if patterns.is_empty() {
        return Err(problem("an empty list matches nothing; add a pattern or omit the key".to_owned()));
    }
    let (valid, invalid): (Vec<_>, Vec<_>) = patterns.into_iter().partition(Result::is_ok);
    if !invalid.is_empty() {
        return Err(invalid.into_iter().filter_map(Result::err).collect());
    }
    let set = RegexSet::new(valid.into_iter().flatten());
    set.map(Some).map_err(|error| problem(format!("the condition is too large: {error}")))
}

fn texts(written: &TextMatch, pointer: &str) -> Result<Option<RegexSet>, Vec<Problem>> {
    let contains =
        patterns(&written.contains, &format!("{pointer}/contains"), |part| Ok(regex::escape(part)));
    let regex = patterns(&written.regex, &format!("{pointer}/regex"), |regex| Ok(regex.to_owned()));
    set(contains.into_iter().chain(regex).collect(), pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_conditions_are_shared_and_kept_only_while_used() {
        let pool = PatternPool::default();
        let compiled = |tool: usize| {
            let written = Match { tools: Some(vec![format!("tool-{tool}")]), ..Match::default() };
            pool.compile(&written, "").expect("valid conditions")
        };
        let (one, same, other) = (compiled(0), compiled(0), compiled(1));
        assert!(std::ptr::eq(one.source(), same.source()));
        assert!(!std::ptr::eq(one.source(), other.source()));
        for tool in 2..100 {
            drop(compiled(tool));
        }
        assert!(pool.conditions.len() < 10, "{} unused conditions are kept", pool.conditions.len());
        assert!(std::ptr::eq(one.source(), compiled(0).source()));
        assert!(pool.compile(&Match { tools: Some(Vec::new()), ..Match::default() }, "/match").is_err());
    }
}
