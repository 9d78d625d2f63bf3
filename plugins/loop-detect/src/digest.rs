//! One digest for equal tool calls: SHA-256 over a canonical form of the arguments, close to RFC 8785.

use std::io::Write;

use hookgate_sdk::PluginError;
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// The maximum size of arguments that are parsed, in bytes. Parsed, they take up to 32 times the memory. Larger ones are
/// the same if their text is.
const MAX_ARGUMENTS_BYTES: usize = 1 << 20;
/// Up to this, a double holds every integer.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The digest of a call in a run or session.
pub(crate) fn of_call(id: &str, tool: &str, args: &[u8]) -> Result<String, PluginError> {
    let mut digest = Sha256::new();
    for text in [id, tool] {
        // With its length, so that no two pairs of texts look the same.
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    if args.len() > MAX_ARGUMENTS_BYTES {
        digest.update(args);
    } else {
        write(&hookgate_sdk::json::parse(args)?, &mut digest)?;
    }
    Ok(hex::encode(digest.finalize()))
}

/// Writes a value without white space, members in the order of their names' bytes.
fn write(value: &Value, to: &mut impl Write) -> Result<(), PluginError> {
    match value {
        Value::Number(number) => write!(to, "{}", canonical_number(number))?,
        Value::Array(items) => {
            write!(to, "[")?;
            for item in items {
                write(item, to)?;
                write!(to, ",")?;
            }
            write!(to, "]")?;
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            write!(to, "{{")?;
            for (name, member) in members {
                serde_json::to_writer(&mut *to, name)?;
                write!(to, ":")?;
                write(member, to)?;
                write!(to, ",")?;
            }
            write!(to, "}}")?;
        }
        Value::Null | Value::Bool(_) | Value::String(_) => serde_json::to_writer(to, value)?,
    }
    Ok(())
}

/// `1.0` and `1e0` are 1.
fn canonical_number(number: &Number) -> String {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() <= MAX_EXACT => {
            format!("{}", double as i64)
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(args: &str) -> String {
        of_call("run", "tool", args.as_bytes()).unwrap()
    }

    #[test]
    fn equal_values_have_one_digest() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#" { "b" : [true, null], "a" : 1 } "#),
            (r#"{"o":{"x":1,"y":2}}"#, r#"{"o":{"y":2,"x":1}}"#),
            (r#"[1, 100, 0]"#, r#"[1.0, 1e2, -0.0]"#),
            (r#""\u00e9\/""#, r#""é/""#),
            ("null", ""),
        ] {
            assert_eq!(digest(one), digest(other), "{one} {other}");
        }
    }

    #[test]
    fn different_values_have_different_digests() {
        let values = [
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":null}"#,
            r#"{}"#,
            r#"[]"#,
            r#"[[]]"#,
            r#"[{"a":1}]"#,
            r#"["a,b"]"#,
            r#"["a","b"]"#,
            r#"[1,2]"#,
            r#"[2,1]"#,
            r#"[12]"#,
            r#"1.5"#,
            r#"9007199254740993"#,
            r#"9007199254740992"#,
        ];
        for (index, one) in values.iter().enumerate() {
            for other in &values[index + 1..] {
                assert_ne!(digest(one), digest(other), "{one} {other}");
            }
        }
        assert_ne!(of_call("ab", "c", b"1").unwrap(), of_call("a", "bc", b"1").unwrap());
    }

    #[test]
    fn arguments_that_are_no_json_are_an_error_and_large_ones_are_compared_as_text() {
        assert!(of_call("run", "tool", b"{").is_err());
        let large = |space: &str| format!("[{space}\"{}\"]", "x".repeat(MAX_ARGUMENTS_BYTES));
        assert_eq!(digest(&large("")), digest(&large("")));
        assert_ne!(digest(&large("")), digest(&large(" ")));
    }
}
