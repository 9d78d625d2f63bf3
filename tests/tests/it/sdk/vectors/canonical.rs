//! JSON texts in a form that is equal for equal values: integers by all their digits, other numbers as doubles, texts by
//! their code points, members of objects in any order.

use serde_json::value::RawValue;

/// The canonical form of a JSON text.
///
/// # Errors
/// What is wrong, if it isn't JSON or an object repeats a key.
pub(super) fn canonical(text: &[u8]) -> Result<String, String> {
    let text = str::from_utf8(text).map_err(|error| format!("not UTF-8: {error}"))?;
    let value =
        serde_json::from_str::<&RawValue>(text).map_err(|error| format!("not JSON: {error}: {text}"))?;
    write(value)
}

fn write(value: &RawValue) -> Result<String, String> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') => write_object(text),
        Some(b'[') => {
            let items: Vec<&RawValue> = parse(text)?;
            let items: Vec<_> = items.into_iter().map(write).collect::<Result<_, _>>()?;
            Ok(format!("[{}]", items.join(",")))
        }
        Some(b'"') => Ok(format!("{:?}", parse::<String>(text)?)),
        Some(b'-' | b'0'..=b'9') => Ok(write_number(text)),
        _ => Ok(text.to_owned()),
    }
}

fn write_object(text: &str) -> Result<String, String> {
    let object: hookgate_sdk::json::Object = parse(text)?;
    let mut members = Vec::new();
    for name in object.names() {
        let value: Option<Box<RawValue>> = object.get(name).expect("every text is a raw value");
        members.push((name, write(&value.expect("the object has the member"))?));
    }
    members.sort();
    if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("the key {:?} is repeated: {text}", pair[0].0));
    }
    let members: Vec<_> = members.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

/// Languages write the same double with and without a fraction (`1.0`, `1`) and with and without an exponent. So a double
/// without a fraction is written as the integer that it is, except the negative zero.
fn write_number(text: &str) -> String {
    if text != "-0" && !text.contains(['.', 'e', 'E']) {
        return text.to_owned();
    }
    let double: f64 = text.parse().expect("a number of JSON is one of Rust");
    let is_negative_zero = double == 0.0 && double.is_sign_negative();
    if double.fract() == 0.0 && !is_negative_zero { format!("{double:.0}") } else { format!("{double:?}") }
}

fn parse<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}: {text}"))
}

#[test]
fn equal_values_have_one_form() {
    for (one, other) in [
        (r#"{"a":1,"b":[1.5,null]}"#, r#" { "b" : [ 15e-1, null ], "a" : 1.0 } "#),
        ("1e20", "100000000000000000000"),
        ("-0.0", "-0"),
        ("1E+300", "1e300"),
        ("9007199254740993.0", "9007199254740992"),
        (r#""\ud83d\ude00\/\u0041""#, "\"😀/A\""),
    ] {
        assert_eq!(canonical(one.as_bytes()), canonical(other.as_bytes()), "{one} {other}");
    }
}

#[test]
fn different_values_have_different_forms() {
    for (one, other) in [
        ("9007199254740993", "9007199254740992"),
        ("1234567890123456789012345", "1.2345678901234568e24"),
        ("-0.0", "0"),
        ("0.1", "0.10000000000000002"),
        ("1", "\"1\""),
        ("null", "{}"),
        (r#""\u00e9""#, r#""e\u0301""#),
        (r#""\ufeffa""#, r#""a""#),
        (r#"{"a":[]}"#, r#"{"a":{}}"#),
    ] {
        assert_ne!(canonical(one.as_bytes()), canonical(other.as_bytes()), "{one} {other}");
    }
}

#[test]
fn what_a_gateway_would_refuse_has_no_form() {
    for text in ["", "1 2", r#""\ud83d""#, r#"{"a":1,"a":1}"#, "NaN", "01"] {
        assert!(canonical(text.as_bytes()).is_err(), "{text}");
    }
}
