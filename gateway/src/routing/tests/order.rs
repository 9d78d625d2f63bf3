//! Which bindings are in a chain, in which order, and with which settings.

use serde_json::{Value, json};

use super::*;
use crate::core::{
    digest,
    step::{Mode, OnError},
};

#[test]
fn order_is_ascending_priority_at_every_point_whatever_the_file_says() {
    let table = table(json!({
        "tenants": { "list": [{ "id": "acme", "labels": { "plan": "pro" } }] },
        "plugins": two_plugins(),
        "bindings": [
            { "name": "last", "plugin": "a", "tenant": "*", "priority": 900 },
            { "name": "own", "plugin": "b", "tenant": "acme", "priority": 5 },
            { "name": "first", "plugin": "b", "tenant": "*", "priority": -10 },
            { "name": "pro", "plugin": "a", "selector": { "plan": "pro" }, "priority": 0 },
        ],
    }));
    for point in Point::ALL {
        assert_eq!(chain(&table, "acme", point), ["first", "pro", "own", "last"], "{point}");
    }
}

#[test]
fn settings_have_the_defaults_of_blocking() {
    let binding = |name: &str, priority: i64, more: Value| {
        let mut binding = json!({ "name": name, "plugin": "a", "tenant": "*", "priority": priority });
        extend(&mut binding, more);
        binding
    };
    let table = table(json!({
        "tenants": { "unknown": "accept" },
        "plugins": [{ "name": "a", "builtin": "a", "limits": { "timeout": "700ms" } }],
        "bindings": [
            binding("default", 1, json!({})),
            binding("blocking", 2, json!({ "blocking": true, "timeout": "40ms" })),
            binding("not-blocking", 3, json!({ "blocking": false })),
            binding("advise", 4, json!({ "mode": "advise" })),
            binding("advise-fail", 5, json!({ "mode": "advise", "on_error": "fail" })),
            binding("enforce-skip", 6, json!({ "mode": "enforce", "on_error": "skip" })),
            binding("enforce", 7, json!({ "mode": "enforce", "timeout": "3s" })),
            binding("observe", 8, json!({ "mode": "observe" })),
        ],
    }));
    let steps = &plan(&table, "anyone", TOOL).steps;
    let settings: Vec<_> =
        steps.iter().map(|s| (s.mode, s.on_error, s.timeout.as_millis(), s.reserve.as_millis())).collect();
    assert_eq!(
        settings,
        [
            (Mode::Enforce, OnError::Fail, 700, 40 + 700 + 3_000),
            (Mode::Enforce, OnError::Fail, 40, 700 + 3_000),
            (Mode::Advise, OnError::Skip, 700, 700 + 3_000),
            (Mode::Advise, OnError::Skip, 700, 700 + 3_000),
            (Mode::Advise, OnError::Fail, 700, 3_000),
            (Mode::Enforce, OnError::Skip, 700, 3_000),
            (Mode::Enforce, OnError::Fail, 3_000, 0),
            (Mode::Observe, OnError::Skip, 700, 0),
        ]
    );
}

#[test]
fn disabled_plugins_and_bindings_stand_in_no_plan() {
    let table = table(json!({
        "tenants": { "unknown": "accept" },
        "plugins": [{ "name": "a", "builtin": "a", "enabled": false }, { "name": "b", "builtin": "b" }],
        "bindings": [
            { "plugin": "a", "tenant": "*", "priority": 1 },
            { "plugin": "b", "tenant": "*", "priority": 1 },
            { "name": "off", "plugin": "b", "tenant": "*", "priority": 1, "enabled": false },
        ],
    }));
    assert_eq!(chain(&table, "anyone", TOOL), ["b"]);
}

#[test]
fn equal_priorities_of_bindings_that_never_meet_are_allowed() {
    let table = table(json!({
        "tenants": { "list": [
            { "id": "acme" }, { "id": "globex", "disable": ["floor"] },
            { "id": "off", "enabled": false },
        ] },
        "plugins": two_plugins(),
        "bindings": [
            { "name": "floor", "plugin": "a", "tenant": "*", "priority": 1, "overridable": true },
            { "plugin": "b", "tenant": "globex", "priority": 1 },
            { "name": "off-1", "plugin": "b", "tenant": "off", "priority": 1 },
        ],
    }));
    assert_eq!(chain(&table, "acme", TOOL), ["floor"]);
    assert_eq!(chain(&table, "globex", TOOL), ["b@globex"]);
    assert!(matches!(table.tenant("off"), TenantRoute::Disabled));
}

#[test]
fn tenants_that_are_not_listed_get_the_bindings_for_all_or_none() {
    let members = |unknown: &str| {
        json!({
            "tenants": { "unknown": unknown, "list": [{ "id": "acme", "labels": { "plan": "pro" } }] },
            "plugins": two_plugins(),
            "bindings": [
                { "plugin": "a", "tenant": "*", "priority": 1 },
                { "plugin": "b", "selector": { "plan": "pro" }, "priority": 2 },
                { "name": "own", "plugin": "b", "tenant": "acme", "priority": 3 },
            ],
        })
    };
    let accepting = table(members("accept"));
    assert_eq!(chain(&accepting, "acme", TOOL), ["a", "b", "own"]);
    assert_eq!(chain(&accepting, "stranger", TOOL), ["a"]);
    assert!(matches!(table(members("refuse")).tenant("stranger"), TenantRoute::Unknown));
}

#[test]
fn no_bindings_make_empty_plans() {
    let table = table(json!({ "tenants": { "list": [{ "id": "acme" }] }, "plugins": two_plugins() }));
    for point in Point::ALL {
        let plan = plan(&table, "acme", point);
        assert!(plan.steps.is_empty());
        assert_eq!(*plan.digest, digest::digest(&json!([])));
    }
}
