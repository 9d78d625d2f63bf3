//! When a step runs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::core::call_site::CallSite;

fn compiled(written: Value) -> Conditions {
    let written = serde_json::from_value(written).expect("conditions of the right types");
    Conditions::compile(&written, "").expect("valid conditions")
}

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The point as a place where plugins are called.
fn site(point: Point) -> &'static CallSite {
    static SITES: [CallSite; 4] = [
        CallSite::Point(Point::BeforeLlmRequest),
        CallSite::Point(Point::BeforeToolCall),
        CallSite::Point(Point::AfterToolResult),
        CallSite::Point(Point::BeforeResponse),
    ];
    &SITES[point.index()]
}

/// A call that carries nothing.
fn bare(point: Point) -> MatchSubject<'static> {
    MatchSubject {
        site: site(point),
        tool: None,
        text: None,
        model: None,
        agent: None,
        agent_path: None,
        labels: &NO_LABELS,
    }
}

fn tool(original: &'static str, current: &'static str) -> MatchSubject<'static> {
    MatchSubject { tool: Some([original, current]), ..bare(TOOL) }
}

fn text(original: &'static str, current: &'static str) -> MatchSubject<'static> {
    MatchSubject { text: Some([original, current]), ..bare(Point::BeforeLlmRequest) }
}

#[test]
fn no_conditions_are_always_met() {
    for point in Point::ALL {
        assert!(compiled(json!({})).is_met(&bare(point)));
        assert!(Conditions::default().is_met(&bare(point)));
    }
}

#[test]
fn any_tool_of_the_list_is_enough() {
    let conditions = compiled(json!({ "tools": ["fs.*", "shell"] }));
    for (name, expected) in [("fs.read", true), ("shell", true), ("Shell", false), ("shells", false)] {
        assert_eq!(conditions.is_met(&tool(name, name)), expected, "{name}");
    }
}

#[test]
fn renaming_a_tool_does_not_evade_a_condition_on_it() {
    let conditions = compiled(json!({ "tools": ["fs.*"] }));
    assert!(conditions.is_met(&tool("fs.write", "harmless")), "by its original name");
    assert!(conditions.is_met(&tool("harmless", "fs.write")), "by its current name");
    assert!(!conditions.is_met(&tool("harmless", "harmless too")));
}

#[test]
fn rewriting_text_does_not_evade_a_condition_on_it() {
    let conditions = compiled(json!({ "text": { "contains": ["secret"], "regex": ["\\b\\d{4}\\b"] } }));
    for (original, current, expected) in [
        ("a secret", "cleaned", true),
        ("clean", "a secret", true),
        ("pin 1234", "pin ****", true),
        ("clean", "clean", false),
        ("a Secret, 12345", "", false),
    ] {
        assert_eq!(conditions.is_met(&text(original, current)), expected, "{original} -> {current}");
    }
}

#[test]
fn text_matches_by_part_or_by_expression() {
    for (condition, value, expected) in [
        (json!({ "contains": ["a.b"] }), "xa.bx", true),
        (json!({ "contains": ["a.b"] }), "aXb", false),
        (json!({ "contains": ["ü"] }), "über", true),
        (json!({ "regex": ["^a.b$"] }), "aXb", true),
        (json!({ "regex": ["(?i)SECRET"] }), "my secret", true),
        // A comment must not hide the pattern after it.
        (json!({ "regex": ["(?x)abc # note", "xyz"] }), "xyz", true),
    ] {
        let conditions = compiled(json!({ "text": condition }));
        assert_eq!(conditions.is_met(&text(value, value)), expected, "{condition} on {value}");
    }
}

#[test]
fn conditions_on_what_the_point_does_not_have_are_not_applied() {
    let conditions = compiled(json!({ "tools": ["fs.*"], "text": { "contains": ["secret"] } }));
    for point in Point::ALL {
        // Even if the caller passes both values, only the point's own is tested.
        let subject = MatchSubject { tool: Some(["no", "no"]), text: Some(["no", "no"]), ..bare(point) };
        assert!(!conditions.is_met(&subject), "{point}");
        let subject = match point.names_a_tool() {
            true => MatchSubject { tool: Some(["fs.read", "fs.read"]), ..subject },
            false => MatchSubject { text: Some(["secret", "secret"]), ..subject },
        };
        assert!(conditions.is_met(&subject), "{point}");
    }
}

#[test]
fn conditions_on_what_the_call_does_not_carry_count_as_met() {
    let conditions = compiled(json!({
        "tools": ["x"], "agents": ["x"], "agent_paths": ["x"], "models": ["x"], "labels": { "team": ["x"] }, "text": { "contains": ["x"] },
    }));
    for point in Point::ALL {
        assert!(conditions.is_met(&bare(point)), "{point}");
        let empty =
            BTreeMap::from([("team".to_owned(), String::new()), ("other".to_owned(), "y".to_owned())]);
        let subject = MatchSubject {
            tool: Some(["", ""]),
            text: Some(["", ""]),
            model: Some(""),
            agent: Some(""),
            agent_path: Some(""),
            labels: &empty,
            site: site(point),
        };
        assert!(conditions.is_met(&subject), "empty is absent: {point}");
    }
}

#[test]
fn empty_text_does_not_hide_other_fields() {
    let conditions = compiled(json!({ "text": { "contains": ["secret"] } }));
    assert!(conditions.is_met(&text("", "written by a plugin")));
}

#[test]
fn keys_are_joined_by_and() {
    let conditions = compiled(json!({ "agents": ["coder-*"], "models": ["gpt-?"], "tools": ["fs.*"] }));
    let all = MatchSubject { agent: Some("coder-1"), model: Some("gpt-5"), ..tool("fs.read", "fs.read") };
    assert!(conditions.is_met(&all));
    assert!(!conditions.is_met(&MatchSubject { agent: Some("writer"), ..all }));
    assert!(!conditions.is_met(&MatchSubject { model: Some("gpt-55"), ..all }));
    assert!(!conditions.is_met(&MatchSubject { tool: Some(["net.get", "net.get"]), ..all }));
}

#[test]
fn labels_of_the_request_and_the_token_are_matched_by_key() {
    let conditions =
        compiled(json!({ "labels": { "claim.role": ["admin", "ops-*"], "run.kind": ["nightly"] } }));
    for (role, kind, expected) in [
        (Some("admin"), Some("nightly"), true),
        (Some("ops-1"), Some("nightly"), true),
        (Some("user"), Some("nightly"), false),
        (Some("admin"), Some("manual"), false),
        (None, Some("nightly"), true),
        (None, None, true),
        (None, Some("manual"), false),
    ] {
        let labels: BTreeMap<_, _> = [("claim.role", role), ("run.kind", kind)]
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
            .collect();
        let subject = MatchSubject { labels: &labels, ..bare(TOOL) };
        assert_eq!(conditions.is_met(&subject), expected, "{labels:?}");
    }
}

#[test]
fn an_agent_filter_by_part_of_its_id_is_a_glob() {
    let conditions = compiled(json!({ "agents": ["*research*"] }));
    let agent =
        |agent| conditions.is_met(&MatchSubject { agent: Some(agent), ..bare(Point::BeforeLlmRequest) });
    assert!(agent("deep-research-2") && !agent("coder"));
}

#[test]
fn an_agent_path_is_matched_as_a_whole() {
    let conditions = compiled(json!({ "agent_paths": ["main/*", "batch"] }));
    for (path, expected) in [
        ("main/research", true),
        ("main/research/coder", true),
        ("batch", true),
        ("main", false),
        ("batch/coder", false),
        ("other/main/research", false),
    ] {
        let subject = MatchSubject { agent_path: Some(path), ..bare(TOOL) };
        assert_eq!(conditions.is_met(&subject), expected, "{path}");
    }
    let id = MatchSubject { agent: Some("other"), ..bare(TOOL) };
    assert!(conditions.is_met(&id), "the agent's id is not its path");
}

proptest! {
    /// A step is skipped only if a condition is known to be false, so removing a value never removes a step.
    #[test]
    fn a_call_that_carries_less_never_loses_a_step(
        patterns in prop::collection::vec("[ab*?]{1,3}", 1..3),
        values in prop::array::uniform4("[ab]{0,3}"),
        dropped in 0_usize..6,
        point in prop::sample::select(Point::ALL.to_vec()),
    ) {
        let conditions = compiled(json!({
            "tools": patterns, "agents": patterns, "agent_paths": patterns, "models": patterns,
            "labels": { "k": patterns },
            "text": { "contains": patterns },
        }));
        let [a, b, c, d] = values.each_ref().map(String::as_str);
        let labels = BTreeMap::from([("k".to_owned(), d.to_owned())]);
        let full = MatchSubject {
            site: site(point), tool: Some([a, b]), text: Some([a, b]), model: Some(c), agent: Some(d), agent_path: Some(c),
            labels: &labels,
        };
        let mut less = full;
        match dropped {
            0 => less.tool = None,
            1 => less.text = None,
            2 => less.model = None,
            3 => less.agent = None,
            4 => less.agent_path = None,
            _ => less.labels = &NO_LABELS,
        }
        prop_assert!(!conditions.is_met(&full) || conditions.is_met(&less));
    }

    /// A change by an earlier plugin can only add a step.
    #[test]
    fn no_rewrite_takes_a_step_out(pattern in "[ab*?]{1,3}", original in "[ab]{0,3}", current in "[ab]{0,3}") {
        let conditions = compiled(json!({ "tools": [pattern], "text": { "contains": [pattern] } }));
        for point in Point::ALL {
            let with = |current| {
                let values = Some([original.as_str(), current]);
                conditions.is_met(&MatchSubject { tool: values, text: values, ..bare(point) })
            };
            prop_assert!(!with(&original) || with(&current));
        }
    }
}
