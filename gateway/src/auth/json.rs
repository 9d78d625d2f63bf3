//! Parses the JSON objects of tokens. A repeated name is rejected at any depth, because two readers of the
//! same token must never see different values (RFC 7515, section 4; RFC 7519, section 4).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses one JSON object without trailing text.
pub(super) fn object(text: &[u8]) -> Option<Value> {
    match serde_json::from_slice(text) {
        Ok(StrictJson(value @ Value::Object(_))) => Some(value),
        _ => None,
    }
}

struct StrictJson(Value);

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(StrictJson)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON in which no object has a name twice")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(StrictJson(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, StrictJson(value))) = members.next_entry::<String, StrictJson>()? {
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is given twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_as_it_stands() {
        let text = br#"{"a":[1,-2,1.5,null,true,{"b":"c"}],"d":18446744073709551615}"#;
        assert_eq!(object(text), Some(json!({"a":[1,-2,1.5,null,true,{"b":"c"}],"d":u64::MAX})));
    }

    #[test]
    fn a_name_given_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":{"b":1,"b":2}}"#, r#"{"a":[{"b":1,"\u0062":2}]}"#] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        for text in ["", "[]", "1", "\"a\"", "null", "{} {}", "{", "{\"a\":1e400}", "{\"a\":NaN}", &deep] {
            assert_eq!(object(text.as_bytes()), None);
        }
    }
}
