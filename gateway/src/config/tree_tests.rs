use proptest::prelude::*;
use serde_json::json;

use super::*;

fn good(text: &str) -> Node {
    let parsed = parse(text);
    assert_eq!(parsed.faults, [], "{text}");
    parsed.root.unwrap()
}

#[track_caller]
fn faulty(text: &str, line: usize, column: usize, message: &str) {
    let parsed = parse(text);
    let found: Vec<_> =
        parsed.faults.iter().map(|f| (f.at.start.line, f.at.start.column, f.message.as_str())).collect();
    assert_eq!(found, [(line, column, message)], "{text}");
}

#[test]
fn scalars_follow_the_core_schema_of_yaml_1_2() {
    for (text, value) in [
        ("null", json!(null)),
        ("~", json!(null)),
        ("a:", json!({"a": null})),
        ("true", json!(true)),
        ("False", json!(false)),
        ("yes", json!("yes")),
        ("on", json!("on")),
        ("'true'", json!("true")),
        ("\"5\"", json!("5")),
        ("5", json!(5)),
        ("+5", json!(5)),
        ("-5", json!(-5)),
        ("007", json!(7)),
        ("0x1F", json!(31)),
        ("0o17", json!(15)),
        ("0x", json!("0x")),
        ("0b1", json!("0b1")),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1e3", json!(1000.0)),
        ("-1.5e-1", json!(-0.15)),
        ("1_000", json!("1_000")),
        ("1.2.3", json!("1.2.3")),
        ("1:30", json!("1:30")),
        ("5s", json!("5s")),
        ("inf", json!("inf")),
        ("nan", json!("nan")),
        ("-", json!([null])),
        ("infinity", json!("infinity")),
        ("9007199254740993", json!(9_007_199_254_740_993_u64)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("|\n a\n b\n", json!("a\nb\n")),
    ] {
        assert_eq!(good(text).to_json(), value, "{text}");
    }
    for text in [
        "18446744073709551616",
        "-9223372036854775809",
        "0xFFFFFFFFFFFFFFFFF",
        ".inf",
        "-.Inf",
        ".nan",
        "1e999",
    ] {
        faulty(text, 1, 0, "this number can't be represented exactly; put it in quotes to make it text");
    }
}

#[test]
fn every_value_knows_its_place() {
    let root = good("a: { b: 1 }\nlist:\n  - x\n  - k: 'v'\n\"é/~\": \"ü\"\n");
    let place = |pointer: &str| {
        let (node, key) = NodeFinder::new(&root).find(pointer).unwrap();
        let at = |mark: Mark| (mark.line, mark.column);
        (at(node.region.start), at(node.region.end), key.map(|key| at(key.start)))
    };
    assert_eq!(place("/a/b"), ((1, 8), (1, 9), Some((1, 5))));
    assert_eq!(place("/list/0"), ((3, 4), (3, 5), None));
    assert_eq!(place("/list/1/k"), ((4, 7), (4, 10), Some((4, 4))));
    assert_eq!(place("/é~1~0"), ((5, 7), (5, 10), Some((5, 0))));
    for missing in ["/a/c", "/list/2", "/list/x"] {
        assert!(NodeFinder::new(&root).find(missing).is_none(), "{missing}");
    }
}

#[test]
fn a_repeated_key_names_both_lines() {
    let parsed = parse("a: 1\nb:\n  c: 2\n  d: 3\n  c: 4\na: 5\n");
    let found: Vec<_> = parsed.faults.iter().map(|f| (f.at.start.line, f.message.as_str())).collect();
    assert_eq!(
        found,
        [
            (5, "`c` is written twice; the first is in line 3"),
            (6, "`a` is written twice; the first is in line 1"),
        ]
    );
    assert_eq!(parsed.root.unwrap().to_json(), json!({"a": 1, "b": {"c": 2, "d": 3}}), "the first stands");
    assert_eq!(parsed.dropped.len(), 2);
}

#[test]
fn aliases_are_written_out_within_bounds() {
    assert_eq!(
        good("a: &x { k: [1] }\nb: [*x, *x]").to_json(),
        json!({"a": {"k": [1]}, "b": [{"k": [1]}, {"k": [1]}]})
    );
    assert_eq!(good("a: &x 1\nb: &x 2\nc: *x").to_json(), json!({"a": 1, "b": 2, "c": 2}));
    faulty("a: &x [*x]", 1, 7, "this alias refers to a value that contains it");
    faulty("&x a: 1\n*x : 2", 2, 0, "a key must be text, not an alias");
    let mut text = String::from("a0: &a0 [1]\n");
    for n in 1..70 {
        text.push_str(&format!("a{n}: &a{n} [*a{}]\n", n - 1));
    }
    let parsed = parse(&text);
    assert_eq!(parsed.faults[0].message, "mappings and lists are nested more than 64 deep");
}

#[test]
fn what_json_has_no_word_for_is_refused() {
    faulty("a: !!str 1", 1, 9, "a tag is not supported here");
    faulty("a: !x [1]", 1, 6, "a tag is not supported here");
    faulty("<<: { a: 1 }", 1, 0, "`<<` merges no mapping here (it is not YAML 1.2)");
    assert_eq!(good("'<<': 1").to_json(), json!({"<<": 1}));
    faulty("? [a]\n: b", 1, 2, "a key must be text, not a mapping or a list");
    faulty("a: 1\n---\nb: 2", 2, 0, "a second document begins here");
    faulty(&("[".repeat(65) + &"]".repeat(65)), 1, 64, "mappings and lists are nested more than 64 deep");
    assert!(parse("").root.is_none() && parse("# nothing\n").root.is_none());
}

#[test]
fn syntax_errors_have_a_place_and_a_remedy() {
    let remedy = |text: &str| {
        let parsed = parse(text);
        assert!(parsed.root.is_none());
        let fault = parsed.faults.into_iter().next().unwrap();
        assert!(fault.message.starts_with("not YAML: "), "{}", fault.message);
        (fault.at.start.line, fault.at.start.column, fault.remedy.unwrap_or_default())
    };
    assert_eq!(remedy("a: 1\nb: *\n"), (2, 3, "put a `*` that is text in quotes: \"*\"".into()));
    assert_eq!(remedy("b: *x\n"), (1, 3, "put a `*` that is text in quotes: \"*\"".into()));
    let reference = "inside { } and [ ] put a reference in quotes: \"${NAME}\"";
    assert_eq!(remedy("{ a: ${X} }"), (1, 6, reference.into()));
    assert_eq!(remedy("a: @b"), (1, 3, "write the text in quotes".into()));
    assert_eq!(
        remedy("a: b: c"),
        (1, 4, "check the indentation, and write text that holds `: ` in quotes".into())
    );
}

proptest! {
    #[test]
    fn json_is_read_as_it_is(value in json_value()) {
        let text = serde_json::to_string(&value).unwrap();
        // JSON's escapes are valid in YAML, except for the slash, which serde_json doesn't escape.
        prop_assert_eq!(good(&text).to_json(), value);
    }

    #[test]
    fn every_pointer_of_a_tree_leads_back(value in json_value()) {
        let root = good(&serde_json::to_string(&value).unwrap());
        let mut pointers = Vec::new();
        root.scalars("", &mut |pointer, node| pointers.push((pointer.to_owned(), node.to_json())));
        for (pointer, expected) in pointers {
            prop_assert_eq!(NodeFinder::new(&root).find(&pointer).unwrap().0.to_json(), expected.clone());
            prop_assert_eq!(value.pointer(&pointer), Some(&expected));
        }
    }
}

/// JSON that YAML can represent: printable text, keys of at most 40 characters, integers.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~éü~/]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[ -~/é]{0,9}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
