//! Reads JSON that comes as a text, as strictly as the gateway reads requests.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Parses one JSON value; `None` if the text is anything else, or an object has a key twice. Readers disagree
/// on which of the two counts, so the agent could read another value than the one that was checked.
pub(crate) fn parse(text: &str) -> Option<Value> {
    // serde_json refuses values that are nested deeper than 127, and text after the value.
    serde_json::from_str(text).ok().map(|UniqueKeys(value)| value)
}

/// A value whose objects have each key once.
struct UniqueKeys(Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(UniqueKeys)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(UniqueKeys(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((key, UniqueKeys(value))) = access.next_entry::<String, _>()? {
            if members.insert(key, value).is_some() {
                return Err(A::Error::custom("a key occurs twice"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_that_has_several_readings_is_no_json() {
        for text in [
            "",
            "hello",
            "{}{}",
            "\u{feff}{}",
            "```json\n{}\n```",
            "[1,]",
            "NaN",
            "1e999",
            r#""\ud800""#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":{"a":1,"a":1}}]"#,
            &"[".repeat(100_000),
        ] {
            assert_eq!(parse(text), None, "{text:.40}");
        }
        assert_eq!(parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))), None);
    }

    proptest! {
        #[test]
        fn any_other_json_is_read_like_by_serde(
            text in "[\\[\\]{}:,\"a0-9.eE \\\\u-]{0,24}",
            number in any::<f64>().prop_filter("JSON has no others", |number| number.is_finite()),
            integer in any::<i64>(),
            word in any::<String>(),
        ) {
            let value = serde_json::json!({ "n": [number, integer, null, true], "w": { "a": word } }).to_string();
            prop_assert_eq!(parse(&value), serde_json::from_str(&value).ok());
            if let Some(value) = parse(&text) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
    }
}
