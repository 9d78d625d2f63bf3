//! Parses the JSON objects of tokens and keys. A repeated name is rejected at any depth, because two readers of
//! the same token must never see different values (RFC 7515, section 4; RFC 7519, section 4).

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{self, ValueKind, elements, members};

/// Parses one JSON object without trailing text, nested at most [`json::MAX_DEPTH`] deep.
pub(super) fn object(text: &[u8]) -> Option<Value> {
    match json::scan(text, json::MAX_DEPTH) {
        Ok(ValueKind::Object) => tree(str::from_utf8(text).ok()?),
        _ => None,
    }
}

/// The value of a scanned text. `Value` parses scalars only: it replaces an object whose first key is
/// `$serde_json::private::RawValue` by the JSON inside that member, which nothing has scanned.
fn tree(text: &str) -> Option<Value> {
    match ValueKind::from_text(text.as_bytes())? {
        ValueKind::Object => {
            let member = |(key, value): (Cow<'_, str>, _)| Some((key.into_owned(), tree(value)?));
            members(text).map(member).collect::<Option<_>>().map(Value::Object)
        }
        ValueKind::Array => elements(text).map(tree).collect::<Option<_>>().map(Value::Array),
        _ => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_as_written() {
        let text = br#" {"a": [1,-2,1.5,null,true,{"b":"\u0063\""}], "\u0064":18446744073709551615} "#;
        assert_eq!(object(text), Some(json!({"a":[1,-2,1.5,null,true,{"b":"c\""}],"d":u64::MAX})));
    }

    #[test]
    fn a_member_with_a_name_of_the_parser_is_one_like_any_other() {
        let text =
            br#"{"$serde_json::private::RawValue":"{\"a\":1}","b":[{"$serde_json::private::RawValue":1}]}"#;
        let read = object(text).expect("an object");
        assert_eq!(read["$serde_json::private::RawValue"], json!("{\"a\":1}"));
        assert_eq!(read["b"][0]["$serde_json::private::RawValue"], json!(1));
    }

    #[test]
    fn a_name_given_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":{"b":1,"b":2}}"#, r#"{"a":[{"b":1,"\u0062":2}]}"#] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn an_object_may_be_nested_as_deep_as_any_other_json_here() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(nested(json::MAX_DEPTH - 1).as_bytes()).is_some());
        assert_eq!(object(nested(json::MAX_DEPTH).as_bytes()), None);
        assert_eq!(object(nested(10_000).as_bytes()), None);
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        for text in [
            "",
            "[]",
            "1",
            "\"a\"",
            "null",
            "{} {}",
            "{",
            "{\"a\":1e400}",
            "{\"a\":NaN}",
            "{\"a\":\"\\ud800\"}",
        ] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None);
    }
}
