//! Digests of JSON values: lower-case hex SHA-256 over RFC 8785 (JCS) canonical JSON (docs/protocol.md,
//! section 2). They identify configs, tenant-level configs and plans.
//!
//! One deliberate difference from RFC 8785: an integer that fits in 64 bits is written exactly, where the RFC
//! rounds it to the nearest double. Otherwise two configs that differ in 9007199254740992 and
//! 9007199254740993 would share a digest, and a plugin would keep the old one. Up to 2^53 the two forms are
//! the same.
//!
//! Implemented here because no crate does both: those that write every double as the RFC requires round the
//! integers, and the one that keeps the integers fails a vector of the RFC's appendix B.

use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// The canonical JSON of `value` (RFC 8785, integers exact): no white space, members ordered by the UTF-16 code
/// units of their names, numbers in their shortest form, so that `1.0` and `1` are the same.
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut json = Vec::new();
    write(value, &mut json);
    json
}

fn write(value: &Value, json: &mut Vec<u8>) {
    match value {
        Value::Null => json.extend(b"null"),
        Value::Bool(is_so) => json.extend(if *is_so { &b"true"[..] } else { b"false" }),
        Value::String(text) => write_text(text, json),
        Value::Number(number) => write_number(number, json),
        Value::Array(items) => {
            json.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    json.push(b',');
                }
                write(item, json);
            }
            json.push(b']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| match a.is_ascii() && b.is_ascii() {
                // The two orders are the same for ASCII, which most names are.
                true => a.cmp(b),
                false => a.encode_utf16().cmp(b.encode_utf16()),
            });
            json.push(b'{');
            for (at, (name, member)) in members.into_iter().enumerate() {
                if at > 0 {
                    json.push(b',');
                }
                write_text(name, json);
                json.push(b':');
                write(member, json);
            }
            json.push(b'}');
        }
    }
}

/// serde_json escapes text as section 3.2.2.2 requires.
fn write_text(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("text is JSON, and memory takes it");
}

fn write_number(number: &Number, json: &mut Vec<u8>) {
    match number.as_f64() {
        Some(double) if number.is_f64() => json.extend(ryu_js::Buffer::new().format_finite(double).bytes()),
        Some(_) | None => json.extend(number.to_string().bytes()),
    }
}

/// The digest of `value`: 64 lower-case hex digits.
pub fn digest(value: &Value) -> String {
    digest_of(&canonical(value))
}

/// The digest of the value with this [`canonical`] JSON.
pub fn digest_of(canonical: &[u8]) -> String {
    hex::encode(Sha256::digest(canonical))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    fn text(value: &Value) -> String {
        String::from_utf8(canonical(value)).expect("canonical JSON is UTF-8")
    }

    fn parsed(json: &str) -> Value {
        serde_json::from_str(json).expect("the test writes valid JSON")
    }

    #[test]
    fn rfc_8785_example_is_reproduced() {
        // Sections 3.2.2 and 3.2.3.
        let value = parsed(
            r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
                "literals": [null, true, false]}"#,
        );
        assert_eq!(
            text(&value),
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
    }

    #[test]
    fn members_are_ordered_by_utf_16_code_units() {
        // Section 3.2.3: U+1F600 is a surrogate pair and sorts before U+FB33, but after it in UTF-8.
        let value = parsed(
            r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
                "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
                "\u00f6": "Latin Small Letter O With Diaeresis"}"#,
        );
        let expected = [
            "Carriage Return",
            "One",
            "Control",
            "Latin Small Letter O With Diaeresis",
            "Euro Sign",
            "Emoji: Grinning Face",
            "Hebrew Letter Dalet With Dagesh",
        ];
        let written = text(&value);
        let places: Vec<_> = expected.iter().map(|word| written.find(word)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{written}");
    }

    #[test]
    fn rfc_8785_numbers_are_reproduced() {
        // Appendix B, the finite ones.
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(text(&json!(f64::from_bits(bits))), expected, "{bits:#x}");
        }
    }

    #[test]
    fn integers_beyond_2_to_the_53_keep_apart() {
        let of = |json: &str| digest(&parsed(json));
        assert_ne!(of(r#"{"limit": 9007199254740992}"#), of(r#"{"limit": 9007199254740993}"#));
        assert_ne!(of("[18446744073709551615]"), of("[18446744073709551614]"));
        assert_ne!(of("[-9223372036854775808]"), of("[-9223372036854775807]"));
        assert_eq!(text(&parsed("18446744073709551615")), "18446744073709551615");
    }

    #[test]
    fn digest_is_lower_case_hex_sha_256() {
        assert_eq!(digest(&json!({})), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        assert_eq!(digest(&json!([])), "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945");
    }

    /// Any JSON.
    pub(crate) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        })
    }

    /// JSON text of `value` with the members of objects in reverse order, and white space between them.
    fn reversed(value: &Value) -> String {
        match value {
            Value::Array(items) => {
                format!("[ {} ]", items.iter().map(reversed).collect::<Vec<_>>().join(" , "))
            }
            Value::Object(members) => {
                let member =
                    |(key, value): (&String, &Value)| format!("{} : {}", json!(key), reversed(value));
                format!("{{ {} }}", members.iter().rev().map(member).collect::<Vec<_>>().join(" ,\n"))
            }
            leaf => leaf.to_string(),
        }
    }

    /// Equality of JSON: numbers by value, whatever their representation.
    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
            }
            (a, b) => a == b,
        }
    }

    proptest! {
        #[test]
        fn order_of_members_and_white_space_do_not_count(value in values()) {
            prop_assert_eq!(digest(&parsed(&reversed(&value))), digest(&value));
        }

        #[test]
        fn canonical_form_reads_back_as_the_same_value(value in values()) {
            let back: Value = serde_json::from_slice(&canonical(&value)).expect("canonical JSON is JSON");
            prop_assert!(same(&value, &back), "{} became {}", value, back);
            prop_assert_eq!(canonical(&back), canonical(&value));
        }

        #[test]
        fn different_integers_have_different_digests(a in any::<i64>(), by in 1_i64..4) {
            prop_assert_ne!(digest(&json!({ "n": a })), digest(&json!({ "n": a.wrapping_add(by) })));
        }
    }
}
