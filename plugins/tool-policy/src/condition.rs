//! A condition on one argument of a call. It is true, false, or can't be judged; it never fails.

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Number, Value};

use crate::{
    argument::{Argument, Pointer, fold},
    path::Directory,
    setting::{InvalidSetting, non_empty},
};

/// The maximum size of a compiled pattern, in bytes. Matching takes time that grows with it.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The maximum number of entries of a list that are judged. Commands and lists of paths have fewer.
const MAX_ENTRIES: usize = 1024;

/// A condition on an argument. It has exactly one of `pattern`, `one_of`, `path_under` and `absent`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionSpec {
    /// JSON pointer (RFC 6901) to the argument, such as `/command`; empty for all arguments.
    pointer: String,
    /// Regular expression (Rust crate regex). In a rule that denies, it is found anywhere in the text; in a rule
    /// that allows, it matches the whole text.
    pattern: Option<String>,
    /// Strings, numbers, booleans or null, one of which the argument equals.
    one_of: Option<Vec<Value>>,
    /// Absolute directories. The path is one of them or below one.
    path_under: Option<Vec<String>>,
    /// The absolute directory at which relative paths start; absent: they can't be judged.
    relative_to: Option<String>,
    /// `true`: there is no such argument; `false`: there is one.
    absent: Option<bool>,
}

/// The effect of the rule that a condition belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The call goes on.
    Allow,
    /// The call is blocked.
    Deny,
}

/// A compiled condition.
#[derive(Debug)]
pub(crate) struct Condition {
    pointer: Pointer,
    test: ArgumentTest,
}

#[derive(Debug)]
enum ArgumentTest {
    Absent(bool),
    Value(ValueTest),
}

#[derive(Debug)]
enum ValueTest {
    Pattern(Regex),
    OneOf(Vec<Value>),
    PathUnder { directories: Vec<Directory>, relative_to: Option<Directory> },
}

/// The result of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    True,
    False,
    /// The condition can't be judged. The text says why, without a value of the call.
    Unclear(&'static str),
}

impl From<bool> for Judgement {
    fn from(holds: bool) -> Self {
        if holds { Judgement::True } else { Judgement::False }
    }
}

impl Condition {
    /// Compiles the condition at `field` of the settings, for a rule with this action.
    ///
    /// # Errors
    /// Names the first invalid setting.
    pub(crate) fn compile(spec: &ConditionSpec, action: Action, field: &str) -> Result<Self, InvalidSetting> {
        let invalid = |name: &str, expected| InvalidSetting::new(format!("{field}.{name}"), expected);
        let pointer = Pointer::parse(&spec.pointer).map_err(|expected| invalid("pointer", expected))?;
        if spec.relative_to.is_some() && spec.path_under.is_none() {
            return Err(invalid("relative_to", "this is a setting of `path_under`".to_owned()));
        }
        let test = match (&spec.pattern, &spec.one_of, &spec.path_under, spec.absent) {
            (Some(pattern), None, None, None) => {
                let pattern = compile_pattern(pattern, action);
                ValueTest::Pattern(pattern.map_err(|expected| invalid("pattern", expected))?)
            }
            (None, Some(values), None, None) => ValueTest::OneOf(scalars(values, field)?),
            (None, None, Some(directories), None) => {
                non_empty(directories, &format!("{field}.path_under"))?;
                let parse = |name: &str, written: &String| {
                    Directory::parse(written).map_err(|expected| invalid(name, expected))
                };
                let numbered = directories.iter().enumerate();
                let directories =
                    numbered.map(|(index, written)| parse(&format!("path_under[{index}]"), written));
                let relative_to = spec.relative_to.as_ref().map(|written| parse("relative_to", written));
                ValueTest::PathUnder {
                    directories: directories.collect::<Result<_, _>>()?,
                    relative_to: relative_to.transpose()?,
                }
            }
            (None, None, None, Some(absent)) => {
                return Ok(Condition { pointer, test: ArgumentTest::Absent(absent) });
            }
            _ => {
                let expected = "expected exactly one of `pattern`, `one_of`, `path_under` and `absent`";
                return Err(InvalidSetting::new(field, expected));
            }
        };
        Ok(Condition { pointer, test: ArgumentTest::Value(test) })
    }

    pub(crate) fn pointer(&self) -> &str {
        self.pointer.as_str()
    }

    pub(crate) fn judge(&self, arguments: &Value) -> Judgement {
        match (self.pointer.find(arguments), &self.test) {
            (Argument::Unclear(why), _) => Judgement::Unclear(why),
            (found, ArgumentTest::Absent(wanted)) => ((found == Argument::Missing) == *wanted).into(),
            (Argument::Missing, _) => Judgement::Unclear("there is no such argument"),
            (Argument::Found(Value::Array(entries)), ArgumentTest::Value(test)) => test.judge_list(entries),
            (Argument::Found(value), ArgumentTest::Value(test)) => test.judge(value),
        }
    }
}

impl ValueTest {
    /// Judges every entry. If some pass and others don't, an attacker could choose the entry that counts.
    fn judge_list(&self, entries: &[Value]) -> Judgement {
        if entries.len() > MAX_ENTRIES {
            return Judgement::Unclear("the list has more than 1024 entries");
        }
        // A command may be a list of its words, and a pattern may match several of them.
        let joined = match self {
            ValueTest::Pattern(_) => joined(entries),
            ValueTest::OneOf(_) | ValueTest::PathUnder { .. } => None,
        };
        let mut judgements = entries.iter().chain(&joined).map(|entry| self.judge(entry));
        let Some(first) = judgements.next() else { return Judgement::Unclear("the list is empty") };
        judgements.fold(first, |all, next| match (all, next) {
            (Judgement::Unclear(why), _) | (_, Judgement::Unclear(why)) => Judgement::Unclear(why),
            (all, next) if all == next => all,
            _ => Judgement::Unclear("it is true for a part of the list only"),
        })
    }

    fn judge(&self, value: &Value) -> Judgement {
        match (self, value) {
            (ValueTest::Pattern(pattern), Value::String(text)) => pattern.is_match(text).into(),
            (ValueTest::Pattern(_), _) => Judgement::Unclear("the argument isn't text"),
            (ValueTest::PathUnder { directories, relative_to }, Value::String(path)) => {
                let mut contained = directories.iter().map(|one| one.contains(path, relative_to.as_ref()));
                match contained.find(|one| *one != Ok(false)) {
                    Some(Err(why)) => Judgement::Unclear(why),
                    found => found.is_some().into(),
                }
            }
            (ValueTest::PathUnder { .. }, _) => Judgement::Unclear("the path isn't text"),
            (ValueTest::OneOf(values), value) => judge_equality(values, value),
        }
    }
}

/// The words of a command as one text, if there are several and all are text.
fn joined(entries: &[Value]) -> Option<Value> {
    let words: Option<Vec<&str>> = entries.iter().map(Value::as_str).collect();
    words.filter(|words| words.len() > 1).map(|words| Value::String(words.join(" ")))
}

/// A value of another type could be converted by the tool: `"22"` may mean 22.
fn judge_equality(values: &[Value], value: &Value) -> Judgement {
    if values.contains(value) {
        return Judgement::True;
    }
    let is_alike = |other: &Value| match (other, value) {
        (Value::Number(other), Value::Number(number)) => !is_close(other, number),
        // Some tools read `delete` as `DELETE`.
        (Value::String(other), Value::String(text)) => fold(other.trim()) != fold(text.trim()),
        _ => std::mem::discriminant(other) == std::mem::discriminant(value),
    };
    match values.iter().all(is_alike) {
        true => Judgement::False,
        false => Judgement::Unclear("the argument has another type or form than the listed values"),
    }
}

/// Whether a reader of doubles could take one number for the other, such as 22 and 22.0.
fn is_close(one: &Number, other: &Number) -> bool {
    one.as_f64() == other.as_f64()
}

/// In a rule that allows, the pattern has to match the whole text: whatever it doesn't describe could be an
/// attack.
fn compile_pattern(written: &str, action: Action) -> Result<Regex, String> {
    if written.is_empty() {
        return Err("expected a regular expression, which isn't empty".to_owned());
    }
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        // `.` also matches a line break in a pattern that denies: a text of several lines is no way around it.
        builder.size_limit(MAX_PATTERN_BYTES).dot_matches_new_line(action == Action::Deny);
        builder.build().map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            format!("not a usable regular expression: {}", reason.trim_start_matches("error: "))
        })
    };
    // Checked alone first: brackets that only match together with ours would change the meaning.
    let pattern = build(written)?;
    match action {
        Action::Deny => Ok(pattern),
        Action::Allow => build(&format!(r"\A(?:{written})\z")),
    }
}

fn scalars(values: &[Value], field: &str) -> Result<Vec<Value>, InvalidSetting> {
    let field = format!("{field}.one_of");
    non_empty(values, &field)?;
    match values.iter().position(|value| value.is_array() || value.is_object()) {
        Some(index) => Err(InvalidSetting::new(
            format!("{field}[{index}]"),
            "expected a string, a number, a boolean or null",
        )),
        None => Ok(values.to_vec()),
    }
}

#[cfg(test)]
mod tests;
