//! Whether JSON texts have the same value. Plugins may write what they leave with other white space, and the members of an object in
//! another order.

use std::{borrow::Cow, collections::HashMap};

use super::value::{kind, string};
use crate::json::{self, ValueKind};

/// Whether two JSON texts have the same value. Numbers count as they are written: large ones that differ are the same to many readers.
/// Depth is bounded by the scan.
pub(super) fn is_same_value(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match (kind(one), kind(other)) {
        (ValueKind::Object, ValueKind::Object) => is_same_but(one, other, &[]),
        (ValueKind::Array, ValueKind::Array) => {
            let (mut one, mut other) = (json::elements(one), json::elements(other));
            loop {
                match (one.next(), other.next()) {
                    (None, None) => return true,
                    (Some(one), Some(other)) if is_same_value(one, other) => {}
                    _ => return false,
                }
            }
        }
        (ValueKind::String, ValueKind::String) => string(one) == string(other),
        _ => false,
    }
}

/// Whether two objects have the same members, but for those with these names.
pub(super) fn is_same_but(one: &str, other: &str, names: &[&str]) -> bool {
    let members = |object| json::members(object).filter(|(name, _)| !names.contains(&name.as_ref()));
    let others: HashMap<_, _> = members(other).collect();
    let is_in_both = |(name, value): (Cow<'_, str>, &str)| {
        others.get(&name).is_some_and(|other| is_same_value(value, other))
    };
    members(one).count() == others.len() && members(one).all(is_in_both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_without_the_way_they_are_written() {
        for (one, other) in [
            (r#"{"a":[1,{"b":"\u0061"}],"c":null}"#, r#"{ "c": null, "a": [1, {"b": "a"}] }"#),
            ("[ ]", "[]"),
            ("1e400", "1e400"),
        ] {
            assert!(is_same_value(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("41111111111111111111", "41111111111111110000"),
            ("[1]", "[1,2]"),
            ("[1,2]", "[1]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            (r#"{"a":1,"b":1}"#, r#"{"a":1}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            ("null", "false"),
            (r#""1""#, "1"),
        ] {
            assert!(!is_same_value(one, other), "{one} {other}");
        }
    }

    #[test]
    fn members_with_given_names_do_not_count() {
        let (one, other) = (r#"{"a":1,"b":[2]}"#, r#"{"b" : [ 2 ],"a":2,"c":3}"#);
        assert!(is_same_but(one, other, &["a", "c"]));
        assert!(!is_same_but(one, other, &["a"]) && !is_same_but(one, other, &["c"]));
    }
}
