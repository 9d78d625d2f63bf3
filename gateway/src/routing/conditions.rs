//! Match conditions of a binding, compiled (docs/protocol.md, section 3): whether a step runs for a call.
//!
//! A step is left out only when a condition is known to be false. So a condition on something that the point
//! doesn't have isn't applied, and one on a value that the call doesn't carry counts as met; an empty value is
//! an absent one, as on the wire. Evaluation can't fail, so that `condition_error` has no cause here: patterns are
//! compiled when the configuration is, and matching is linear in the length of the value. Knows nothing of
//! payloads; the caller names the values.

use std::{collections::BTreeMap, sync::Arc};

use regex::{Regex, RegexSet};

use crate::{
    config::{Match, Problem, TextMatch},
    point::Point,
};

/// The values of a call that conditions look at.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Where the call is.
    pub point: Point,
    /// The tool's name as the agent sent it and as it is now, at points that name a tool.
    pub tool: Option<[&'a str; 2]>,
    /// `text` or `content` as the agent sent it and as it is now, at the other points.
    pub text: Option<[&'a str; 2]>,
    /// The payload's `model`, else the context's.
    pub model: Option<&'a str>,
    /// The context's `agent_id`.
    pub agent: Option<&'a str>,
    /// The request's labels and those from the token (`claim.*`); never the tenant's.
    pub labels: &'a BTreeMap<String, String>,
}

/// The conditions of one binding. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Option<Arc<Compiled>>);

#[derive(Debug)]
struct Compiled {
    tools: Option<RegexSet>,
    agents: Option<RegexSet>,
    models: Option<RegexSet>,
    labels: Vec<(String, RegexSet)>,
    text: Option<RegexSet>,
}

impl Conditions {
    /// Compiles `written`, which stands at `pointer` in the configuration.
    ///
    /// # Errors
    /// A problem for each pattern that is invalid or empty and for each empty list: an empty list would join no
    /// alternatives, so it could only switch the step off for good, or be taken for a condition where there is none.
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
        let tools = written.tools.as_deref().and_then(|list| globs(list, &format!("{pointer}/tools")));
        let agents = written.agents.as_deref().and_then(|list| globs(list, &format!("{pointer}/agents")));
        let models = written.models.as_deref().and_then(|list| globs(list, &format!("{pointer}/models")));
        let labels = written.labels.iter().filter_map(|(key, list)| {
            let name = format!("{pointer}/labels/{}", super::escape(key));
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
        Ok(Conditions(Some(Arc::new(Compiled { tools, agents, models, labels, text }))))
    }

    /// Whether the step runs for `subject`: false only when a condition is known to be false.
    pub fn met(&self, subject: &Subject<'_>) -> bool {
        let Some(compiled) = &self.0 else { return true };
        let tool = subject.tool.filter(|_| subject.point.names_a_tool());
        let text = subject.text.filter(|_| !subject.point.names_a_tool());
        one(compiled.agents.as_ref(), subject.agent)
            && one(compiled.models.as_ref(), subject.model)
            && compiled.labels.iter().all(|(key, globs)| {
                one(Some(globs), subject.labels.get(key).map(String::as_str))
            })
            && either(compiled.tools.as_ref(), tool)
            // Last: the only one whose cost grows with the payload.
            && either(compiled.text.as_ref(), text)
    }
}

fn one(condition: Option<&RegexSet>, value: Option<&str>) -> bool {
    match (condition, value) {
        (Some(set), Some(value)) => value.is_empty() || set.is_match(value),
        (None, _) | (_, None) => true,
    }
}

/// Original or current value: what an earlier plugin writes can bring a step in, never take it out.
fn either(condition: Option<&RegexSet>, value: Option<[&str; 2]>) -> bool {
    let (Some(set), Some([original, current])) = (condition, value) else { return true };
    // Unchanged values are shared, so the usual case looks once.
    one(condition, Some(original)) || (!std::ptr::eq(original, current) && set.is_match(current))
}

/// The expressions of `list`, each by its own pointer.
fn patterns(
    list: &[String],
    pointer: &str,
    to_regex: impl Fn(&str) -> Result<String, String>,
) -> Vec<Result<String, Problem>> {
    let pattern = |(at, written): (usize, &String)| {
        let problem = |message: String| Problem::new(format!("{pointer}/{at}"), message);
        if written.is_empty() {
            return Err(problem("an empty pattern names nothing; leave it out".to_owned()));
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
        return Err(problem("an empty list matches nothing; name a pattern or leave the key out".to_owned()));
    }
    let (valid, invalid): (Vec<_>, Vec<_>) = patterns.into_iter().partition(Result::is_ok);
    if !invalid.is_empty() {
        return Err(invalid.into_iter().filter_map(Result::err).collect());
    }
    let set = RegexSet::new(valid.into_iter().flatten());
    set.map(Some).map_err(|error| problem(format!("too much for one condition: {error}")))
}

fn texts(written: &TextMatch, pointer: &str) -> Result<Option<RegexSet>, Vec<Problem>> {
    let contains =
        patterns(&written.contains, &format!("{pointer}/contains"), |part| Ok(regex::escape(part)));
    let regex = patterns(&written.regex, &format!("{pointer}/regex"), |regex| Ok(regex.to_owned()));
    set(contains.into_iter().chain(regex).collect(), pointer)
}
