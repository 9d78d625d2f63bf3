//! Validates the file against the JSON Schema, and reports every mistake at once in one sentence each. The
//! validator's own messages are not used, because they quote values and expand alternatives. The schema tells
//! what would be right.

use std::collections::BTreeSet;

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::Value;

use super::{
    problem::{Problem, did_you_mean, nearest},
    schema::{self, Schema},
};
use crate::json::pointer::{self, child};

/// The minimal `auth` section, shown to users who have none.
const MINIMAL_AUTH: &str = "auth: { issuers: [{ issuer: me, audience: hookgate, keys: [{ alg: HS256, secret: \
                             \"${HOOKGATE_JWT_SECRET}\" }] }] }";

/// The values that don't fit the schema.
#[derive(Default)]
pub(super) struct SchemaViolations {
    pub(super) problems: Vec<Problem>,
    /// Pointers to these values and keys. For a missing key, the pointer to the mapping that lacks it.
    pub(super) pointers: BTreeSet<String>,
}

/// Validates `value`. Values at one of `known` were already reported.
pub(super) fn validate(value: &Value, schema: &Schema, known: &BTreeSet<String>) -> SchemaViolations {
    let mut validation = SchemaValidation {
        schema,
        root: value,
        known,
        misfits: SchemaViolations::default(),
        missing: Vec::new(),
    };
    for error in schema.validator().iter_errors(value) {
        validation.take(&error);
    }
    validation.numbers(&mut String::new(), value);
    validation.finish()
}

struct SchemaValidation<'v> {
    schema: &'v Schema,
    root: &'v Value,
    known: &'v BTreeSet<String>,
    misfits: SchemaViolations,
    /// Mappings and their missing keys.
    missing: Vec<(String, String)>,
}

impl SchemaValidation<'_> {
    fn take(&mut self, error: &ValidationError<'_>) {
        let pointer = error.instance_path().to_string();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                for key in unexpected {
                    self.unknown_key(&pointer, key);
                }
            }
            ValidationErrorKind::Required { property } => {
                self.missing.push((pointer, property.as_str().unwrap_or_default().to_owned()));
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                // The branch with the value's type is the one that the author meant.
                let mut meant = context.iter().filter(|errors| {
                    !errors
                        .iter()
                        .any(|inner| inner.instance_path() == error.instance_path() && is_other_type(inner))
                });
                match (meant.next(), meant.next()) {
                    (Some(errors), None) => errors.iter().for_each(|inner| self.take(inner)),
                    _ => self.wrong_value(&pointer),
                }
            }
            ValidationErrorKind::MinItems { .. } => {
                self.report(Problem::new(
                    &pointer,
                    format!("{} must have at least one entry", name(&pointer)),
                ));
            }
            _ => self.wrong_value(&pointer),
        }
    }

    fn unknown_key(&mut self, pointer: &str, key: &str) {
        let place = self.schema.at(pointer).unwrap_or(&Value::Null);
        let keys = self.schema.keys(place);
        let mut problem = Problem::at_key(child(pointer, key), format!("`{key}` is not a key here"));
        problem.remedy = did_you_mean(key, keys.iter().copied())
            .or_else(|| self.deeper(place, key).map(|inner| format!("write it under `{inner}`")))
            .or_else(|| {
                Some(format!("the keys are {}", schema::alternatives(&keys).replace(" or ", " and ")))
            });
        self.report(problem);
    }

    /// The mapping directly below `place` that has `key`.
    fn deeper<'s>(&'s self, place: &'s Value, key: &str) -> Option<&'s str> {
        let below = place["properties"].as_object()?;
        let found =
            below.iter().find(|(_, inner)| self.schema.resolve(inner)["properties"].get(key).is_some())?;
        Some(found.0)
    }

    fn wrong_value(&mut self, pointer: &str) {
        let null = Value::Null;
        let place = self.schema.at(pointer).unwrap_or(&null);
        let value = self.root.pointer(pointer).unwrap_or(&null);
        let right = schema::expected(place);
        let found = match value {
            Value::Null => ", not empty".to_owned(),
            Value::Array(_) => ", not a list".to_owned(),
            Value::Object(_) => ", not a mapping".to_owned(),
            _ if !self.schema.shows(pointer) => String::new(),
            Value::String(text) => format!(", not `{text}`"),
            scalar => format!(", not `{scalar}`"),
        };
        let mut problem = Problem::new(pointer, format!("{} must be {right}{found}", name(pointer)));
        if let (Some(words), Some(text)) = (schema::words(place), value.as_str()) {
            problem.remedy = did_you_mean(text, words);
        } else if let Some(format) = place["format"].as_str() {
            problem.remedy = with_unit(format, value);
        } else if schema::types(place).contains(&"string") && (value.is_number() || value.is_boolean()) {
            problem.remedy = Some("write it in quotes".into());
        } else if schema::types(place).contains(&"array") && !value.is_array() && !value.is_null() {
            problem.remedy = Some("write one entry per line, each after `- `, or put the list in [ ]".into());
        }
        self.report(problem);
    }

    /// Checks for numbers that the schema accepts but the types don't: for the schema `1e1` is an integer, of
    /// any size.
    fn numbers(&mut self, pointer: &mut String, value: &Value) {
        let end = pointer.len();
        let mut below = |key: &str, value: &Value| {
            if value.is_number() || value.is_array() || value.is_object() {
                pointer.push_str(&child("", key));
                self.numbers(pointer, value);
                pointer.truncate(end);
            }
        };
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| below(key, value)),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, value)| below(&at.to_string(), value));
            }
            number => self.number(pointer, number),
        }
    }

    fn number(&mut self, pointer: &str, number: &Value) {
        let Some(place) = self.schema.at(pointer).filter(|place| schema::types(place).contains(&"integer"))
        else {
            return;
        };
        // All other types have a narrower range in the schema.
        if !number.is_i64() {
            let problem =
                Problem::new(pointer, format!("{} must be {}", name(pointer), schema::expected(place)));
            let is_large = number.as_f64().is_none_or(|number| number.abs() > f64::from(u32::MAX));
            self.report(problem.remedy(if is_large {
                format!("write one from {} to {}", i64::MIN, i64::MAX)
            } else {
                "write only digits".to_owned()
            }));
        }
    }

    fn report(&mut self, problem: Problem) {
        if !self.known.contains(&problem.pointer) && self.misfits.pointers.insert(problem.pointer.clone()) {
            self.misfits.problems.push(problem);
        }
    }

    /// Reports missing keys, except for those that are present but misspelled.
    fn finish(mut self) -> SchemaViolations {
        for (pointer, key) in std::mem::take(&mut self.missing) {
            let place = self.schema.at(&pointer).unwrap_or(&Value::Null);
            let keys = self.schema.keys(place);
            let mut written = self.root.pointer(&pointer).and_then(Value::as_object).into_iter().flatten();
            let misspelt = written.any(|(written, _)| {
                !keys.contains(&written.as_str())
                    && nearest(written, keys.iter().copied()) == Some(key.as_str())
            });
            self.misfits.pointers.insert(pointer.clone());
            if misspelt {
                continue;
            }
            let problem = Problem::new(&pointer, format!("`{key}` is missing here"));
            let right = self.schema.at(&child(&pointer, &key)).map(schema::expected).unwrap_or_default();
            let problem = problem.remedy(match (pointer.as_str(), key.as_str()) {
                ("", "auth") => format!("add the tokens' issuer, such as `{MINIMAL_AUTH}`"),
                _ => format!("add `{key}`: {right}"),
            });
            self.misfits.problems.push(problem);
        }
        self.misfits
    }
}

/// Suggests a unit for a bare number: seconds for a duration; for a size or a rate the unit is unknown. Text
/// may come from a reference, so it isn't repeated in a suggestion.
fn with_unit(format: &str, value: &Value) -> Option<String> {
    let number = value.as_u64().filter(|_| format == "duration-text")?;
    Some(format!("did you mean `{number}s`?"))
}

fn is_other_type(error: &ValidationError<'_>) -> bool {
    matches!(
        error.kind(),
        ValidationErrorKind::Type { .. }
            | ValidationErrorKind::Constant { .. }
            | ValidationErrorKind::Enum { .. }
    )
}

/// How a sentence refers to the value at `pointer`.
fn name(pointer: &str) -> String {
    let mut keys: Vec<_> = pointer::keys(pointer).collect();
    let last = keys.pop().unwrap_or_default();
    if last.is_empty() {
        return "the configuration".into();
    }
    match keys.last() {
        Some(list) if last.bytes().all(|b| b.is_ascii_digit()) => format!("an entry of `{list}`"),
        _ => format!("`{last}`"),
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
