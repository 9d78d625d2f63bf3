//! Tenants that must not run without a step.

use super::*;

/// The points at which calls of `tenant` are refused for want of a step.
fn lacking(table: &RouteTable, tenant: &str) -> Vec<Point> {
    Point::ALL.into_iter().filter(|point| known(table, tenant).lacks_steps(&(*point).into())).collect()
}

#[test]
fn a_required_step_is_one_that_takes_part_in_the_decision() {
    for (mode, enabled, expected) in [
        ("enforce", true, vec![]),
        ("advise", true, vec![]),
        ("observe", true, vec![TOOL]),
        ("enforce", false, vec![TOOL]),
    ] {
        let table = table(json!({
            "tenants": { "list": [{ "id": "acme", "require_steps": ["before_tool_call"] }] },
            "plugins": two_plugins(),
            "bindings": [{ "plugin": "a", "tenant": "*", "priority": 1, "mode": mode, "enabled": enabled }],
        }));
        assert_eq!(lacking(&table, "acme"), expected, "{mode}, enabled: {enabled}");
    }
}

#[test]
fn a_step_whose_conditions_may_be_false_is_a_step() {
    let table = table(json!({
        "tenants": { "list": [{ "id": "acme", "require_steps": ["before_tool_call"] }] },
        "plugins": two_plugins(),
        "bindings": [{ "plugin": "a", "tenant": "*", "priority": 1, "match": { "tools": ["fs.*"] } }],
    }));
    assert_eq!(lacking(&table, "acme"), []);
}

#[test]
fn what_all_tenants_require_adds_to_what_one_requires() {
    let table = table(json!({
        "tenants": {
            "unknown": "accept",
            "require_steps": ["before_response"],
            "list": [{ "id": "acme", "require_steps": ["before_tool_call", "before_llm_request"] }, { "id": "globex" }],
        },
        "plugins": two_plugins(),
        "bindings": [{ "plugin": "a", "tenant": "*", "priority": 1, "points": ["before_llm_request"] }],
    }));
    assert_eq!(lacking(&table, "acme"), [TOOL, Point::BeforeResponse]);
    assert_eq!(lacking(&table, "globex"), [Point::BeforeResponse]);
    assert_eq!(lacking(&table, "stranger"), [Point::BeforeResponse]);
}

#[test]
fn a_bypassed_step_does_not_count() {
    let mut config = config(json!({
        "tenants": { "require_steps": ["before_tool_call"], "list": [{ "id": "acme" }, { "id": "globex" }] },
        "plugins": two_plugins(),
        "bindings": [{ "name": "rule", "plugin": "a", "tenant": "*", "priority": 1 }],
    }));
    let bypass =
        json!({ "binding": "rule", "tenant": "acme", "until": "2026-11-22T10:00:00Z", "reason": "x" });
    config.bypasses = vec![serde_json::from_value(bypass).expect("a bypass")];
    let table = RouteTable::build(&config, &[], 1).expect("the configuration is valid");
    assert_eq!(lacking(&table, "acme"), [TOOL]);
    assert_eq!(lacking(&table, "globex"), []);
}
