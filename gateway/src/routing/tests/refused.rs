//! What makes a configuration invalid, and what the problem says.

use serde_json::{Value, json};

use super::*;

#[test]
fn equal_priorities_are_refused_naming_both_bindings_and_the_first_ten_tenants() {
    let list: Vec<_> =
        (0..12).map(|n| json!({ "id": format!("t{n}"), "labels": { "plan": "pro" } })).collect();
    let found = problems(json!({
        "tenants": { "list": list },
        "plugins": two_plugins(),
        "bindings": [
            { "name": "one", "plugin": "a", "tenant": "*", "priority": -3, "points": ["before_tool_call"] },
            { "name": "other", "plugin": "b", "tenant": "*", "priority": 7 },
            { "name": "two", "plugin": "b", "selector": { "plan": "pro" }, "priority": -3,
              "points": ["before_response"], "match": { "agents": ["x"] } },
        ],
    }));
    let [problem] = found.as_slice() else { panic!("one problem: {found:?}") };
    assert_eq!(problem.pointer, "/bindings/2/priority");
    for part in ["`one`", "`two`", "priority -3", "`t0`, `t1`", "`t9` and 2 more"] {
        assert!(problem.message.contains(part), "{part}: {}", problem.message);
    }
    assert!(!problem.message.contains("`t10`"), "{}", problem.message);
}

#[test]
fn equal_priorities_are_refused_for_tenants_that_are_not_listed() {
    let clash = |unknown: &str| {
        json!({
            "tenants": { "unknown": unknown },
            "plugins": two_plugins(),
            "bindings": [
                { "plugin": "a", "tenant": "*", "priority": 1 },
                { "plugin": "b", "tenant": "*", "priority": 1 },
            ],
        })
    };
    let found = problems(clash("accept"));
    assert!(found[0].message.contains("for any other tenant;"), "{found:?}");
    // Without a tenant there is no chain, and so no clash.
    table(clash("refuse"));
}

/// The pointer and message of the only problem.
fn only_problem(members: Value) -> (String, String) {
    let mut found = problems(members);
    assert_eq!(found.len(), 1, "{found:?}");
    let problem = found.remove(0);
    (problem.pointer, problem.message)
}

fn with_bindings(bindings: Value) -> Value {
    json!({ "tenants": { "unknown": "accept" }, "plugins": two_plugins(), "bindings": bindings })
}

#[test]
fn three_bindings_of_one_priority_are_reported_pair_by_pair() {
    let found = problems(with_bindings(json!([
        { "name": "x", "plugin": "a", "tenant": "*", "priority": 4 },
        { "name": "y", "plugin": "a", "tenant": "*", "priority": 4 },
        { "name": "z", "plugin": "a", "tenant": "*", "priority": 4 },
    ])));
    let pointers: Vec<_> = found.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(pointers, ["/bindings/1/priority", "/bindings/2/priority"]);
}

#[test]
fn duplicate_names_are_refused() {
    let (pointer, message) = only_problem(json!({
        "plugins": [{ "name": "a", "builtin": "a" }, { "name": "a", "builtin": "b" }],
    }));
    assert_eq!(pointer, "/plugins/1/name");
    assert!(message.contains("plugin `a`") && message.contains("/plugins/0/name"), "{message}");

    let (pointer, message) = only_problem(with_bindings(json!([
        { "plugin": "a", "tenant": "*", "priority": 1 },
        { "plugin": "a", "selector": { "plan": "pro" }, "priority": 2 },
    ])));
    assert_eq!(pointer, "/bindings/1/name");
    assert!(message.contains("binding `a`"), "{message}");

    let (pointer, message) = only_problem(json!({ "tenants": { "list": [{ "id": "t" }, { "id": "t" }] } }));
    assert_eq!(pointer, "/tenants/list/1/id");
    assert!(message.contains("tenant `t`"), "{message}");
}

#[test]
fn a_binding_that_would_not_do_what_it_says_is_refused() {
    let tenant = |more: Value| {
        let mut binding = json!({ "plugin": "a", "priority": 1 });
        extend(&mut binding, more);
        only_problem(with_bindings(json!([binding])))
    };
    for (binding, pointer, part) in [
        (json!({ "plugin": "c", "tenant": "*" }), "/bindings/0/plugin", "no plugin `c`"),
        (json!({ "tenant": "acme" }), "/bindings/0/tenant", "no tenant `acme`"),
        (json!({}), "/bindings/0", "neither `tenant` nor `selector`"),
        (
            json!({ "tenant": "*", "selector": { "plan": "pro" } }),
            "/bindings/0",
            "both `tenant` and `selector`",
        ),
        (json!({ "selector": {} }), "/bindings/0/selector", "empty selector"),
        (json!({ "tenant": "*", "points": [] }), "/bindings/0/points", "means no point"),
        (
            json!({ "tenant": "*", "points": ["before_response", "after_tool_result"],
                    "match": { "text": { "contains": ["x"] } } }),
            "/bindings/0/match/text",
            "no text at the tool points",
        ),
    ] {
        let (at, message) = tenant(binding);
        assert_eq!(at, pointer);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn disable_takes_only_overridable_bindings_that_concern_the_tenant() {
    let found = problems(json!({
        "tenants": { "list": [
            { "id": "acme", "disable": ["floor", "soft", "theirs", "nothing", "selected"] },
            { "id": "globex" },
        ] },
        "plugins": two_plugins(),
        "bindings": [
            { "name": "floor", "plugin": "a", "tenant": "*", "priority": 1 },
            { "name": "soft", "plugin": "a", "tenant": "*", "priority": 2, "overridable": true },
            { "name": "theirs", "plugin": "a", "tenant": "globex", "priority": 3, "overridable": true },
            { "name": "selected", "plugin": "b", "selector": { "plan": "pro" }, "priority": 4 },
        ],
    }));
    let found: Vec<_> = found.iter().map(|problem| (&*problem.pointer, &*problem.message)).collect();
    for ((pointer, message), (at, part)) in found.iter().zip([
        ("/tenants/list/0/disable/0", "`floor` is not `overridable`"),
        ("/tenants/list/0/disable/2", "`theirs` belongs to another tenant"),
        ("/tenants/list/0/disable/3", "no binding `nothing`"),
        ("/tenants/list/0/disable/4", "`selected` is not `overridable`"),
    ]) {
        assert_eq!(*pointer, at);
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(found.len(), 4);
}

#[test]
fn tenant_config_for_an_unknown_plugin_is_refused() {
    let (pointer, message) = only_problem(json!({
        "tenants": { "list": [{ "id": "acme", "config": { "a": {}, "c/d": {} } }] },
        "plugins": two_plugins(),
    }));
    assert_eq!(pointer, "/tenants/list/0/config/c~1d");
    assert!(message.contains("no plugin `c/d`"), "{message}");
}

#[test]
fn invalid_patterns_are_refused_each_by_its_pointer_on_disabled_bindings_too() {
    let found = problems(with_bindings(json!([{
        "plugin": "a", "tenant": "*", "priority": 1, "enabled": false,
        "match": {
            "tools": ["ok", "fs[", ""], "agents": [], "labels": { "x/y": ["[b-a]"] },
            "text": { "contains": [""], "regex": ["ok", "("] },
        },
    }])));
    let pointers: Vec<_> = found.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/bindings/0/match/tools/1",
            "/bindings/0/match/tools/2",
            "/bindings/0/match/agents",
            "/bindings/0/match/labels/x~1y/0",
            "/bindings/0/match/text/contains/0",
            "/bindings/0/match/text/regex/1",
        ]
    );
}

#[test]
fn everything_wrong_is_reported_at_once() {
    let found = problems(with_bindings(json!([
        { "plugin": "c", "priority": 1, "points": [], "match": { "tools": [] } },
        { "name": "x", "plugin": "a", "tenant": "*", "priority": 2 },
        { "name": "x", "plugin": "b", "tenant": "*", "priority": 2 },
    ])));
    let pointers: Vec<_> = found.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/bindings/2/name",
            "/bindings/0/plugin",
            "/bindings/0/points",
            "/bindings/0",
            "/bindings/0/match/tools",
            "/bindings/2/priority",
        ]
    );
}

#[test]
fn a_floor_binding_that_a_tenant_wrongly_disables_still_clashes() {
    let found = problems(json!({
        "tenants": { "list": [{ "id": "acme", "disable": ["floor"] }] },
        "plugins": two_plugins(),
        "bindings": [
            { "name": "floor", "plugin": "a", "tenant": "*", "priority": 1 },
            { "name": "own", "plugin": "b", "tenant": "acme", "priority": 1 },
        ],
    }));
    let pointers: Vec<_> = found.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(pointers, ["/tenants/list/0/disable/0", "/bindings/1/priority"]);
}
