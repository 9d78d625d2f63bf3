//! Compares the scanner with serde_json as the reference, and tests its limits.

use std::{collections::HashSet, fmt};

use proptest::prelude::*;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::*;

/// The reference: a `serde_json::Value` that rejects repeated keys and measures depth.
struct Reference {
    depth: usize,
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reference { depth: 0 })
    }
}

impl<'de> DeserializeSeed<'de> for Reference {
    type Value = Reference;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Reference, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reference {
    type Value = Reference;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated keys")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Reference, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Reference, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Reference, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Reference, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Reference, E> {
        Ok(self)
    }
    fn visit_unit<E>(self) -> Result<Reference, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Reference, A::Error> {
        let mut depth = 1;
        while let Some(inner) = seq.next_element::<Reference>()? {
            depth = depth.max(inner.depth + 1);
        }
        Ok(Reference { depth })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reference, A::Error> {
        let mut seen = HashSet::new();
        let mut depth = 1;
        while let Some((key, inner)) = map.next_entry::<String, Reference>()? {
            depth = depth.max(inner.depth + 1);
            if !seen.insert(key) {
                return Err(A::Error::custom("repeated key"));
            }
        }
        Ok(Reference { depth })
    }
}

fn reference_accepts(bytes: &[u8], max_depth: usize) -> bool {
    serde_json::from_slice::<Reference>(bytes).is_ok_and(|value| value.depth <= max_depth)
}

fn flaw(text: &str) -> JsonError {
    scan(text.as_bytes(), MAX_DEPTH).expect_err(text)
}

/// Random JSON text, with varying spacing, escapes and occasionally repeated keys.
fn json_text() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        r#"[ab]{0,2}"#.prop_map(|key| format!("\"{key}\"")),
        Just(r#""\u0061""#.to_owned()),
        Just(r#""a\u0062""#.to_owned()),
        Just(r#""\ud83d\ude00""#.to_owned()),
        any::<String>().prop_map(|key| serde_json::to_string(&key).expect("a string")),
    ];
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).expect("a string")),
        r#""(\\u[0-9a-fA-Fd]{4}){0,3}""#,
    ];
    let space = || "[ \n\t\r]{0,2}";
    scalar.prop_recursive(6, 64, 6, move |inner| {
        let element = (space(), inner.clone(), space()).prop_map(|(a, value, b)| a + &value + &b);
        let member = (space(), key.clone(), space(), inner, space())
            .prop_map(|(a, key, b, value, c)| format!("{a}{key}{b}:{value}{c}"));
        prop_oneof![
            prop::collection::vec(element, 0..5).prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec(member, 0..5).prop_map(|list| format!("{{{}}}", list.join(","))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn accepts_what_serde_json_accepts_less_repeated_keys_and_depth(text in json_text(), max in 0_usize..6) {
        prop_assert_eq!(scan(text.as_bytes(), max).is_ok(), reference_accepts(text.as_bytes(), max));
    }

    #[test]
    fn agrees_with_serde_json_on_damaged_json(
        text in json_text(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte, how) in damage {
            let at = at.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ => bytes.truncate(at),
            }
        }
        prop_assert_eq!(scan(&bytes, MAX_DEPTH).is_ok(), reference_accepts(&bytes, MAX_DEPTH));
    }

    #[test]
    fn agrees_with_serde_json_on_json_like_soup(text in r#"[\[\]{}:,"\\ aeu0-9.+\-truefalsn\u{1}é]{0,24}"#) {
        prop_assert_eq!(scan(text.as_bytes(), MAX_DEPTH).is_ok(), reference_accepts(text.as_bytes(), MAX_DEPTH));
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(scan(&bytes, MAX_DEPTH).is_ok(), reference_accepts(&bytes, MAX_DEPTH));
        if let Err(flaws) = scan_all(&bytes, MAX_DEPTH) {
            prop_assert!(!flaws.is_empty());
            prop_assert!(flaws.iter().all(|flaw| flaw.offset <= bytes.len()));
        }
        let text = String::from_utf8_lossy(&bytes);
        let _ = (members(&text).count(), elements(&text).count(), unescape(&text));
    }

    #[test]
    fn walking_yields_what_serde_json_reads(text in json_text()) {
        if scan(text.as_bytes(), MAX_DEPTH).is_ok() {
            prop_assert_eq!(rebuild(&text), serde_json::from_str::<serde_json::Value>(&text).expect("scanned"));
        }
    }
}

/// Reads `text` with the walkers only.
fn rebuild(text: &str) -> serde_json::Value {
    match ValueKind::from_text(text.as_bytes()) {
        Some(ValueKind::Object) => members(text)
            .map(|(key, value)| (key.into_owned(), rebuild(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Some(ValueKind::Array) => elements(text).map(rebuild).collect::<Vec<_>>().into(),
        Some(ValueKind::String) => unescape(text).into_owned().into(),
        _ => serde_json::from_str(text).expect("a scalar"),
    }
}

fn nested(open: &str, depth: usize, inside: &str, close: &str) -> String {
    format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn depth_64_passes_and_65_is_refused() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let levels = open.matches(['[', '{']).count();
        let text = nested(open, MAX_DEPTH / levels, "1", close);
        assert!(scan(text.as_bytes(), MAX_DEPTH).is_ok(), "{text}");
        for too_deep in [format!("[{text}]"), format!("{{\"x\":{text}}}")] {
            assert_eq!(flaw(&too_deep).kind, JsonErrorKind::TooDeep);
        }
    }
    assert_eq!(scan(b"1", 0), Ok(ValueKind::Number), "a scalar has depth 0");
    assert_eq!(scan(b"[]", 0).expect_err("one level").kind, JsonErrorKind::TooDeep);
}

#[test]
fn a_million_levels_end_at_level_65_without_recursion() {
    for depth in [65, 10_000, 1_000_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let found = flaw(&nested(open, depth, "1", close));
            assert_eq!((found.kind, found.offset), (JsonErrorKind::TooDeep, open.len() * MAX_DEPTH));
        }
        assert_eq!(flaw(&"[".repeat(depth)).kind, JsonErrorKind::TooDeep);
    }
    // The caller sets the limit: without one, only the heap limits the stack.
    assert!(scan(nested("[", 1_000_000, "1", "]").as_bytes(), usize::MAX).is_ok());
    assert_eq!(elements(&nested("[", 1_000_000, "1", "]")).count(), 1);
}

#[test]
fn repeated_keys_are_named_by_pointer_however_they_are_written() {
    for (text, pointer) in [
        (r#"{"a":1,"a":2}"#, "/a"),
        (r#"{"a":1,"\u0061":2}"#, "/a"),
        (r#"{"\u0061":1,"a":2}"#, "/a"),
        (r#"{"":1,"":2}"#, "/"),
        (r#"[0,{"x":{"a/b":1,"c":[{}],"a/b":2}}]"#, "/1/x/a~1b"),
        (r#"{"\ud83d\ude00":1,"😀":2}"#, "/😀"),
        (r#"{"x":[{"b":1},{"b":1,"c":2,"b":3}]}"#, "/x/1/b"),
    ] {
        let found = flaw(text);
        assert_eq!((found.kind, found.pointer.as_str()), (JsonErrorKind::DuplicateKey, pointer), "{text}");
    }
    for text in [r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#, r#"{"a":1,"A":2,"á":3,"a ":4}"#] {
        assert_eq!(scan(text.as_bytes(), MAX_DEPTH), Ok(ValueKind::Object), "{text}");
    }
}

#[test]
fn a_repeated_key_among_very_many_is_found() {
    let many: Vec<String> = (0..200_000).map(|number| format!("\"k{number}\":0")).collect();
    let unique = format!("{{{}}}", many.join(","));
    assert_eq!(scan(unique.as_bytes(), MAX_DEPTH), Ok(ValueKind::Object));
    let repeated = format!("{{{},\"k\\u0037\":1}}", many.join(","));
    assert_eq!(flaw(&repeated).pointer, "/k7");
    let all_the_same = format!("{{{}}}", vec!["\"k\":0"; 200_000].join(","));
    let flaws = scan_all(all_the_same.as_bytes(), MAX_DEPTH).expect_err("repeated");
    assert_eq!(flaws.len(), MAX_ERRORS - 1);
}

#[test]
fn every_repeated_key_is_listed_and_the_syntax_error_behind_them_too() {
    let flaws = scan_all(br#"[{"a":1,"a":2},{"b":1,"b":2},{"c":}]"#, MAX_DEPTH).expect_err("flawed");
    let found: Vec<_> = flaws.iter().map(|flaw| (flaw.kind, flaw.pointer.as_str())).collect();
    assert_eq!(
        found,
        [
            (JsonErrorKind::DuplicateKey, "/0/a"),
            (JsonErrorKind::DuplicateKey, "/1/b"),
            (JsonErrorKind::Syntax, "/2/c")
        ]
    );
}

#[test]
fn syntax_errors_say_what_was_expected_and_where() {
    for (text, offset, pointer, message) in [
        ("", 0, "", "expected a value, found the end"),
        ("  ", 2, "", "expected a value, found the end"),
        ("{", 1, "", "expected a key in quotes or `}`, found the end"),
        ("{a:1}", 1, "", "expected a key in quotes or `}`, found `a`"),
        (r#"{"a"}"#, 4, "/a", "expected `:`, found `}`"),
        (r#"{"a":1,}"#, 7, "", "expected a key in quotes, found `}`"),
        (r#"{"a":1 "b":2}"#, 7, "", "expected `,` or `}`, found `\"`"),
        ("[1,]", 3, "/1", "expected a value, found `]`"),
        ("[1}", 2, "", "expected `,` or `]`, found `}`"),
        ("1 2", 2, "", "expected nothing after the value, found `2`"),
        ("tru", 0, "", "expected a value, found `t`"),
        ("NaN", 0, "", "expected a value, found `N`"),
        ("\u{feff}{}", 0, "", "expected a value, found U+FEFF"),
        ("01", 1, "", "expected no digit after a leading 0"),
        ("[1.]", 3, "/0", "expected a digit, found `]`"),
        ("+1", 0, "", "expected a value, found `+`"),
        ("[1e400]", 1, "/0", "expected a number within the range of a double (RFC 7493)"),
        ("\"a", 2, "", "expected the closing `\"` of a string, found the end"),
        ("\"a\nb\"", 2, "", "expected `\\u000a` for a control character"),
        (r#"["\x"]"#, 2, "/0", "found a `\\` that begins no escape"),
        (r#""\u12g4""#, 1, "", "expected four hexadecimal digits after `\\u`"),
        (r#""\ud800""#, 1, "", "found half of a surrogate pair"),
        (r#""\udc00\ud800""#, 1, "", "found half of a surrogate pair"),
        (r#"{"x":[0,{"y":[true,nul]}]}"#, 19, "/x/1/y/1", "expected a value, found `n`"),
    ] {
        let found = flaw(text);
        assert_eq!(
            (found.kind, found.offset, found.pointer.as_str(), found.message.as_str()),
            (JsonErrorKind::Syntax, offset, pointer, message),
            "{text}"
        );
    }
}

#[test]
fn a_byte_that_is_not_utf8_is_placed_in_the_document() {
    let found = scan(b"{\"a\":[1,\"x\xff\"]}", MAX_DEPTH).expect_err("not UTF-8");
    assert_eq!((found.kind, found.offset, found.pointer.as_str()), (JsonErrorKind::Encoding, 10, "/a/1"));
    // A flaw before it is reported instead; a repeated key before it is listed too.
    assert_eq!(scan(b"{]\xff", MAX_DEPTH).expect_err("not JSON").kind, JsonErrorKind::Syntax);
    let flaws = scan_all(b"[{\"a\":1,\"a\":2},\"\xff\"]", MAX_DEPTH).expect_err("two flaws");
    let kinds: Vec<_> = flaws.iter().map(|flaw| flaw.kind).collect();
    assert_eq!(kinds, [JsonErrorKind::DuplicateKey, JsonErrorKind::Encoding]);
    assert_eq!(scan(b"{}\xff", MAX_DEPTH).expect_err("behind the value").kind, JsonErrorKind::Encoding);
}

#[test]
fn positions_count_lines_and_characters_from_one() {
    let text = "{\n  \"é\": tru\n}";
    assert_eq!(flaw(text).position(text.as_bytes()), (2, 8));
    assert_eq!(flaw("x").position(b"x"), (1, 1));
}

#[test]
fn the_kind_at_the_root_is_told() {
    for (text, kind) in [
        (" {} ", ValueKind::Object),
        ("\n[]", ValueKind::Array),
        ("\"\"", ValueKind::String),
        ("-1.5e3", ValueKind::Number),
        ("false", ValueKind::Boolean),
        ("null", ValueKind::Null),
    ] {
        assert_eq!(scan(text.as_bytes(), MAX_DEPTH), Ok(kind));
    }
}
