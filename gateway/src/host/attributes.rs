//! Attributes of log lines and events that plugins write, as one JSON object for the gateway's log.

use std::collections::BTreeMap;

use super::error::FieldViolation;
use crate::telemetry::value::cut;

const MAX_ATTRIBUTES: usize = 32;
const MAX_NAME_BYTES: usize = 64;
/// A value is cut at this length.
const MAX_VALUE_BYTES: usize = 1 << 10;
/// The member that says how many were left out.
const LEFT_OUT: &str = "left_out";
/// Longest object. It keeps the whole line within its limit.
const MAX_JSON_BYTES: usize = 16 << 10;

/// The attributes as a JSON object; `None` if there are none. Attributes that don't fit are left out, and a member
/// `left_out` has their number.
///
/// # Errors
/// If a name is invalid or there are too many.
pub(super) fn attributes_json(
    field: &str,
    attributes: BTreeMap<String, String>,
) -> Result<Option<String>, FieldViolation> {
    if attributes.len() > MAX_ATTRIBUTES || !attributes.keys().all(|name| is_name(name)) {
        let rule = "takes at most 32 attributes, whose names have 1 to 64 letters, digits, `_`, `-` or `.`, and \
                    aren't `left_out`";
        return Err(FieldViolation { field: field.to_owned(), rule: rule.to_owned() });
    }
    let (mut object, mut left_out) = (String::new(), 0);
    for (name, value) in attributes {
        let value = serde_json::Value::from(cut(&value, MAX_VALUE_BYTES));
        let member = format!("\"{name}\":{value}");
        if left_out > 0 || object.len() + member.len() > MAX_JSON_BYTES {
            left_out += 1;
        } else {
            let comma = if object.is_empty() { "" } else { "," };
            object = object + comma + &member;
        }
    }
    let more = if left_out > 0 { format!(",\"{LEFT_OUT}\":{left_out}") } else { String::new() };
    Ok((!object.is_empty()).then(|| format!("{{{object}{more}}}")))
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_letter) && name != LEFT_OUT
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(attributes: BTreeMap<String, String>) -> Option<serde_json::Value> {
        let text = attributes_json("attributes", attributes).expect("valid")?;
        assert!(text.len() <= MAX_JSON_BYTES + 32, "{}", text.len());
        Some(serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn too_many_attributes_and_wrong_names_are_refused() {
        let many = (0..=MAX_ATTRIBUTES).map(|number| (format!("a{number}"), String::new())).collect();
        assert!(attributes_json("attributes", many).is_err());
        for name in ["", "left_out", "with space", "ü", "a\"b", &"x".repeat(MAX_NAME_BYTES + 1)] {
            let one = BTreeMap::from([(name.to_owned(), String::new())]);
            assert_eq!(
                attributes_json("records[3].attributes", one).unwrap_err().field,
                "records[3].attributes"
            );
        }
        assert_eq!(json(BTreeMap::new()), None);
    }

    #[test]
    fn attributes_that_do_not_fit_are_left_out_and_counted() {
        let long = "\u{1}".repeat(2 * MAX_VALUE_BYTES);
        let attributes = (0..MAX_ATTRIBUTES).map(|number| (format!("a{number:02}"), long.clone())).collect();
        let object = json(attributes).expect("an object");
        assert_eq!(object["a00"].as_str().map(str::len), Some(MAX_VALUE_BYTES));
        let kept = object.as_object().expect("an object").len() - 1;
        assert_eq!(object["left_out"], MAX_ATTRIBUTES - kept);
    }

    proptest! {
        #[test]
        fn values_arrive_as_they_are(
            attributes in proptest::collection::btree_map("[a-zA-Z0-9_.-]{1,64}", "\\PC{0,100}", 1..=8)
        ) {
            let object = json(attributes.clone()).expect("an object");
            prop_assert_eq!(object, serde_json::json!(attributes));
        }
    }
}
