use proptest::prelude::*;
use serde_json::json;

use super::*;

fn compiled(spec: Value, action: Action) -> Result<Condition, InvalidSetting> {
    Condition::compile(&serde_json::from_value(spec).unwrap(), action, "when[0]")
}

fn judged(spec: &Value, action: Action, arguments: &Value) -> &'static str {
    match compiled(spec.clone(), action).unwrap().judge(arguments) {
        Judgement::True => "true",
        Judgement::False => "false",
        Judgement::Unclear(_) => "unclear",
    }
}

/// Checks a condition on `/a` against many values of it.
fn check(test: Value, action: Action, table: &[(Value, &str)]) {
    let mut spec = test;
    spec["pointer"] = json!("/a");
    for (value, expected) in table {
        assert_eq!(judged(&spec, action, &json!({ "a": value })), *expected, "{spec} on {value}");
    }
}

#[test]
fn a_denying_pattern_is_found_anywhere_in_a_text() {
    check(
        json!({ "pattern": r"\brm\s+-rf\b" }),
        Action::Deny,
        &[
            (json!("rm -rf /"), "true"),
            (json!("ls; rm\t-rf /"), "true"),
            (json!("ls\nrm -rf /"), "true"),
            (json!("ls"), "false"),
            (json!(""), "false"),
            (json!(["rm", "-rf", "/"]), "unclear"), // the words joined match, none of them alone
            (json!(["sh", "-c", "rm -rf /"]), "unclear"),
            (json!(["rm -rf /"]), "true"),
            (json!(["ls", "-l"]), "false"),
            (json!([]), "unclear"),
            (json!([["rm", "-rf"]]), "unclear"),
            (json!(["ls", 1]), "unclear"),
            (json!({ "text": "ls" }), "unclear"),
            (json!(1), "unclear"),
            (json!(null), "unclear"),
        ],
    );
}

#[test]
fn a_line_break_is_no_way_around_a_denying_pattern() {
    let condition = json!({ "pattern": "curl .*example" });
    check(condition.clone(), Action::Deny, &[(json!("curl \\\n example.com"), "true")]);
    check(json!({ "pattern": "curl .*" }), Action::Allow, &[(json!("curl x\nrm -rf /"), "false")]);
}

#[test]
fn an_allowing_pattern_matches_the_whole_text() {
    check(
        json!({ "pattern": "git (status|log)|pwd" }),
        Action::Allow,
        &[
            (json!("git status"), "true"),
            (json!("pwd"), "true"),
            (json!("git status; rm -rf /"), "false"),
            (json!("pwd\n"), "false"),
            (json!("sudo pwd"), "false"),
            (json!("git status\u{a0}"), "false"),
            (json!("ｐｗｄ"), "false"),
            (json!(["pwd"]), "true"),
            (json!(["pwd", "rm"]), "unclear"),
            (json!(["git", "status"]), "unclear"),
        ],
    );
}

#[test]
fn brackets_of_a_pattern_cannot_leave_the_whole_text() {
    for pattern in ["a)|(b", "a)(?:b", "(?x) a # comment", "(", ""] {
        let spec = json!({ "pointer": "/a", "pattern": pattern });
        let invalid = compiled(spec, Action::Allow).unwrap_err();
        assert_eq!(invalid.field, "when[0].pattern");
        assert!(invalid.expected.contains("regular expression"), "{invalid}");
    }
}

#[test]
fn one_of_compares_without_converting() {
    let values = json!({ "one_of": ["prod", "live"] });
    check(
        values,
        Action::Deny,
        &[
            (json!("prod"), "true"),
            (json!("PROD"), "unclear"), // a tool may ignore case, or trim
            (json!(" prod\n"), "unclear"),
            (json!(["live", "prod"]), "true"),
            (json!(["live", "test"]), "unclear"),
            (json!(["test"]), "false"),
            (json!(1), "unclear"),
            (json!({ "name": "prod" }), "unclear"),
        ],
    );
    let numbers = [
        (json!(22), "true"),
        (json!(22.0), "unclear"),
        (json!("22"), "unclear"),
        (json!(23), "false"),
        (json!(9_007_199_254_740_993_u64), "false"),
    ];
    check(json!({ "one_of": [22] }), Action::Deny, &numbers);
    check(
        json!({ "one_of": [9_007_199_254_740_992_u64] }),
        Action::Allow,
        &[(json!(9_007_199_254_740_993_u64), "unclear")],
    );
    check(
        json!({ "one_of": [true, false] }),
        Action::Allow,
        &[(json!(true), "true"), (json!("true"), "unclear")],
    );
}

#[test]
fn every_path_of_a_list_has_to_be_below() {
    check(
        json!({ "path_under": ["/work", "/tmp"], "relative_to": "/work/repo" }),
        Action::Allow,
        &[
            (json!("/work/a"), "true"),
            (json!("src/../a"), "true"),
            (json!("../../etc/passwd"), "false"),
            (json!(["/work/a", "/tmp/b"]), "true"),
            (json!(["/work/a", "/etc/passwd"]), "unclear"),
            (json!(["/etc/passwd"]), "false"),
            (json!(["/work/a", "~/x"]), "unclear"),
            (json!([]), "unclear"),
            (json!(7), "unclear"),
        ],
    );
    check(json!({ "path_under": ["/work"] }), Action::Allow, &[(json!("a"), "unclear")]);
}

#[test]
fn absence_is_judged_by_the_pointer_alone() {
    let [absent, present] = [true, false].map(|absent| json!({ "pointer": "/a/b", "absent": absent }));
    for (arguments, expected) in [
        (json!({ "a": { "b": null } }), ["false", "true"]),
        (json!({ "a": {} }), ["true", "false"]),
        (json!({}), ["true", "false"]),
        (json!({ "a": "b" }), ["unclear", "unclear"]),
        (json!({ "a": { "B": 1 } }), ["unclear", "unclear"]),
    ] {
        let found = [&absent, &present].map(|spec| judged(spec, Action::Deny, &arguments));
        assert_eq!(found, expected, "{arguments}");
    }
}

#[test]
fn a_missing_argument_and_a_long_list_are_unclear() {
    let spec = json!({ "pointer": "/a", "pattern": "x" });
    assert_eq!(judged(&spec, Action::Deny, &json!({ "b": "x" })), "unclear");
    assert_eq!(judged(&spec, Action::Deny, &json!({ "a": vec!["y"; 1024] })), "false");
    assert_eq!(judged(&spec, Action::Deny, &json!({ "a": vec!["y"; 1025] })), "unclear");
}

#[test]
fn a_mistake_in_a_condition_is_named() {
    for (spec, says) in [
        (json!({ "pointer": "a", "absent": true }), "`when[0].pointer`: expected a JSON pointer"),
        (json!({ "pointer": "/a" }), "`when[0]`: expected exactly one of `pattern`"),
        (json!({ "pointer": "/a", "absent": true, "pattern": "x" }), "`when[0]`: expected exactly one of"),
        (
            json!({ "pointer": "/a", "pattern": "x(" }),
            "`when[0].pattern`: not a usable regular expression: unclosed",
        ),
        (
            json!({ "pointer": "/a", "pattern": r"\w{999}" }),
            "`when[0].pattern`: not a usable regular expression: Compiled",
        ),
        (
            json!({ "pointer": "/a", "pattern": "(?=x)" }),
            "`when[0].pattern`: not a usable regular expression: look-around",
        ),
        (json!({ "pointer": "/a", "one_of": [] }), "`when[0].one_of`: expected at least one entry"),
        (json!({ "pointer": "/a", "one_of": ["x", []] }), "`when[0].one_of[1]`: expected a string"),
        (json!({ "pointer": "/a", "path_under": [] }), "`when[0].path_under`: expected at least one entry"),
        (
            json!({ "pointer": "/a", "path_under": ["/a", "b"] }),
            "`when[0].path_under[1]`: expected an absolute",
        ),
        (
            json!({ "pointer": "/a", "path_under": ["/a"], "relative_to": "b" }),
            "`when[0].relative_to`: expected an absolute directory",
        ),
        (
            json!({ "pointer": "/a", "pattern": "x", "relative_to": "/b" }),
            "`when[0].relative_to`: this is a setting of `path_under`",
        ),
    ] {
        let invalid = compiled(spec, Action::Deny).unwrap_err().to_string();
        assert!(invalid.starts_with(says), "{invalid}");
    }
}

/// Any JSON value, with lists and objects.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ab/. ]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[aAb]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    /// An allow rule passes a call only if every text of the argument passes alone.
    #[test]
    fn an_argument_that_is_true_has_only_true_texts(arguments in any_json()) {
        let spec = json!({ "pointer": "/a", "pattern": "a+" });
        if judged(&spec, Action::Allow, &arguments) == "true" {
            let texts = match &arguments["a"] {
                Value::Array(entries) => entries.clone(),
                value => vec![value.clone()],
            };
            let is_run = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty() && text.chars().all(|c| c == 'a'));
            prop_assert!(!texts.is_empty() && texts.iter().all(is_run), "{}", arguments);
        }
    }

    #[test]
    fn a_condition_and_its_opposite_are_never_both_true(arguments in any_json()) {
        let [absent, present] = [true, false].map(|absent| json!({ "pointer": "/a/b", "absent": absent }));
        let found = [&absent, &present].map(|spec| judged(spec, Action::Deny, &arguments));
        prop_assert!(matches!(found, ["true", "false"] | ["false", "true"] | ["unclear", "unclear"]), "{:?}", found);
    }
}
