//! What a value violates in a plugin's schema, in words that hide the value: it may be a secret.

use jsonschema::{
    JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind},
};

/// The error itself, or that of the schema beside `null`: an optional member's schema has both, and says of a wrong value only
/// that it fits neither.
pub fn specific<'e>(error: &'e ValidationError<'e>) -> &'e ValidationError<'e> {
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        error.kind()
    else {
        return error;
    };
    let mut others =
        context.iter().filter(|alternative| !matches!(&alternative[..], [only] if is_null(only)));
    match (context.len(), others.next(), others.next()) {
        (2, Some(alternative), None) => alternative.first().map_or(error, specific),
        _ => error,
    }
}

fn is_null(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Type { kind: TypeKind::Single(JsonType::Null) })
}

/// The violated rule. If only certain values are permitted, it names them.
pub fn rule(error: &ValidationError<'_>) -> String {
    let error = specific(error);
    match permitted_values(error.kind()) {
        Some(values) => format!("value is not one of {}", values.join(", ")),
        None => error.masked().to_string(),
    }
}

/// The violating member, as a JSON pointer; `/` for the value itself.
pub fn place<'e>(error: &'e ValidationError<'e>) -> &'e str {
    match specific(error).instance_path().as_str() {
        "" => "/",
        path => path,
    }
}

/// The permitted values, if the schema is a list of values. `null` beside them stands for an absent member.
fn permitted_values(kind: &ValidationErrorKind) -> Option<Vec<String>> {
    match kind {
        ValidationErrorKind::Constant { expected_value } => Some(vec![expected_value.to_string()]),
        ValidationErrorKind::Enum { options } => {
            Some(options.as_array()?.iter().map(ToString::to_string).collect())
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let mut values = Vec::new();
            for alternative in context {
                let [error] = &alternative[..] else { return None };
                if !is_null(error) {
                    values.extend(permitted_values(error.kind())?);
                }
            }
            (!values.is_empty()).then_some(values)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rule_of(schema: &Value, value: &Value) -> String {
        let schema = jsonschema::validator_for(schema).expect("it is a schema");
        rule(&schema.validate(value).expect_err("it is violated"))
    }

    #[test]
    fn permitted_values_are_named_and_the_value_is_not() {
        let documented = json!({ "oneOf": [{ "const": "mask", "description": "x" }, { "const": "block" }] });
        let listed = json!({ "type": "string", "enum": ["mask", "block"] });
        let mixed = json!({ "oneOf": [{ "type": "string", "enum": ["mask"] }, { "const": "block" }] });
        for schema in [&documented, &listed, &mixed] {
            for schema in [schema.clone(), json!({ "anyOf": [schema, { "type": "null" }] })] {
                let said = rule_of(&schema, &json!("hunter2"));
                assert_eq!(said, r#"value is not one of "mask", "block""#, "{schema}");
            }
        }
    }

    #[test]
    fn of_an_optional_member_the_wrong_part_is_named() {
        let inner = json!({ "type": "object", "properties": { "n": { "minimum": 1 } }, "additionalProperties": false });
        let schema = json!({ "properties": { "inner": { "anyOf": [inner, { "type": "null" }] } } });
        let schema = jsonschema::validator_for(&schema).expect("it is a schema");
        for (value, at, said) in [
            (
                json!({ "inner": { "term": 1 } }),
                "/inner",
                "Additional properties are not allowed ('term' was unexpected)",
            ),
            (json!({ "inner": { "n": 0 } }), "/inner/n", "value is less than the minimum of 1"),
        ] {
            let error = schema.validate(&value).expect_err("it is violated");
            assert_eq!((place(&error), rule(&error).as_str()), (at, said));
        }
    }

    #[test]
    fn other_rules_are_worded_by_the_library_without_the_value() {
        let either = json!({ "anyOf": [{ "const": "all" }, { "type": "integer", "minimum": 1 }] });
        for schema in [either, json!({ "maxLength": 3 })] {
            let said = rule_of(&schema, &json!("hunter2"));
            assert!(!said.contains("hunter2") && !said.contains("one of \""), "{said}");
        }
    }
}
