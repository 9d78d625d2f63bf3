//! What a step knows of its plugin and tenant, and what distinguishes plans.

use serde_json::{Value, json};

use super::*;
use crate::{config::Detail, core::digest::digest};

fn one_binding(more: Value) -> Value {
    let mut binding = json!({ "plugin": "a", "tenant": "*", "priority": 1 });
    extend(&mut binding, more);
    json!({
        "tenants": { "unknown": "accept", "list": [{ "id": "acme" }] },
        "plugins": two_plugins(),
        "bindings": [binding],
    })
}

fn with_manifest(members: Value, manifest: Option<Arc<Manifest>>) -> RouteTable {
    RouteTable::build(&config(members), &[manifest], 1).expect("the configuration is valid")
}

#[test]
fn a_binding_without_points_applies_everywhere_until_a_manifest_is_known() {
    let before = with_manifest(one_binding(json!({})), None);
    for point in Point::ALL {
        let [step] = plan(&before, "acme", point).steps.as_slice() else { panic!("one step at {point}") };
        assert_eq!((step.offer, step.not_offered), (None, false), "{point}");
    }
    let after = with_manifest(one_binding(json!({})), manifest("1.0.0", &[TOOL], None));
    for point in Point::ALL {
        let steps = &plan(&after, "acme", point).steps;
        assert_eq!(steps.len(), usize::from(point == TOOL), "{point}");
        assert!(steps.iter().all(|step| step.offer.is_some() && !step.not_offered));
    }
}

/// The table before there is a manifest, if the entry of `a` consents to `before_tool_call` only.
fn consented(binding: Value) -> RouteTable {
    let mut members = one_binding(binding);
    members["plugins"][0]["accepted"] =
        json!({ "points": { "before_tool_call": { "access": "read", "side_effects": "none" } } });
    table(members)
}

#[test]
fn before_there_is_a_manifest_a_binding_applies_where_its_plugins_entry_consents() {
    let before = consented(json!({}));
    for point in Point::ALL {
        let steps = &plan(&before, "acme", point).steps;
        assert_eq!(steps.len(), usize::from(point == TOOL), "{point}");
        assert!(
            steps
                .iter()
                .all(|step| step.offer.is_none() && !step.not_offered && step.written.version.is_none())
        );
    }
    // If listed, the binding is in the plan and is known to fail, whatever manifest comes later.
    let listed = consented(json!({ "points": ["before_response", "before_tool_call"] }));
    assert!(plan(&listed, "acme", Point::BeforeResponse).steps[0].not_offered);
    assert!(!plan(&listed, "acme", TOOL).steps[0].not_offered);
}

#[test]
fn a_point_listed_but_not_offered_keeps_its_step_and_is_marked() {
    let listed = one_binding(json!({ "points": ["before_response", "before_tool_call"] }));
    let table = with_manifest(listed.clone(), manifest("1.0.0", &[TOOL], None));
    assert!(plan(&table, "acme", Point::BeforeResponse).steps[0].not_offered);
    assert!(!plan(&table, "acme", TOOL).steps[0].not_offered);
    assert!(plan(&table, "acme", Point::AfterToolResult).steps.is_empty());
    // Without a manifest the offer is unknown: not ready, but not refused.
    assert!(!plan(&with_manifest(listed, None), "acme", Point::BeforeResponse).steps[0].not_offered);
}

/// The pointers and remedies of the sites that `a`, which offers `points`, doesn't offer.
fn unoffered(members: Value, points: &[Point]) -> Vec<(String, String)> {
    let sites = unoffered_sites(&config(members), &[manifest("1.0.0", points, None)]);
    let told = sites.iter().map(|unoffered| unoffered.problem());
    told.map(|problem| (problem.pointer, problem.remedy.unwrap_or_default())).collect()
}

#[test]
fn points_and_hooks_that_a_plugin_does_not_offer_are_found_with_what_it_offers() {
    let named = one_binding(json!({ "points": ["before_tool_call", "before_response"] }));
    let found = |pointer: &str, remedy: &str| vec![(pointer.to_owned(), remedy.to_owned())];
    assert_eq!(
        unoffered(named.clone(), &[TOOL]),
        found(
            "/bindings/0/points/1",
            "it offers `before_tool_call`: name some of these, or omit `points` for all"
        )
    );
    assert_eq!(unoffered(named.clone(), &[TOOL, Point::BeforeResponse]), []);
    let tools = found("/bindings/0/points/1", "it offers only tools: omit `points`");
    assert_eq!(unoffered(named.clone(), &[])[1..], tools);
    let hooks = one_binding(json!({ "hooks": ["recall"], "mode": "observe" }));
    let nothing = "it offers no hooks: name `points` instead, or remove the binding";
    assert_eq!(unoffered(hooks, &[TOOL]), found("/bindings/0/hooks/0", nothing));
    assert_eq!(unoffered(one_binding(json!({})), &[TOOL]), [], "without a list it applies where it can");
    for disabled in ["/bindings/0", "/plugins/0"] {
        let mut members = named.clone();
        members.pointer_mut(disabled).expect("it is there")["enabled"] = json!(false);
        assert_eq!(unoffered(members, &[TOOL]), [], "{disabled}");
    }
    assert_eq!(unoffered_sites(&config(named), &[None]), [], "what it offers is unknown");
}

#[test]
fn the_tenants_keys_replace_those_of_the_binding_at_the_top_level() {
    let mut members = one_binding(json!({ "config": { "deep": { "x": 1, "y": 2 }, "kept": null } }));
    members["tenants"]["list"][0]["config"] =
        json!({ "a": { "deep": { "x": 9_007_199_254_740_993_u64 } }, "b": {} });
    let table = table(members);
    let own = &plan(&table, "acme", TOOL).steps[0];
    assert_eq!(own.tenant_config, r#"{"deep":{"x":9007199254740993},"kept":null}"#);
    let other = &plan(&table, "stranger", TOOL).steps[0];
    assert_eq!(other.tenant_config, r#"{"deep":{"x":1,"y":2},"kept":null}"#);
    for step in [own, other] {
        let config = serde_json::from_slice(&step.tenant_config).expect("JSON");
        assert_eq!(*step.tenant_config_digest, digest(&config));
    }
    assert_ne!(own.tenant_config_digest, other.tenant_config_digest);
}

#[test]
fn a_tenant_config_that_the_schema_refuses_closes_that_tenants_step_alone() {
    let schema = json!({ "properties": { "limit": { "type": "integer" } }, "additionalProperties": false });
    let mut members = one_binding(json!({ "config": { "limit": 1 } }));
    members["tenants"]["list"] =
        json!([{ "id": "acme", "config": { "a": { "limit": "hunter2" } } }, { "id": "globex" }]);
    let table = with_manifest(members.clone(), manifest("1.0.0", &Point::ALL, Some(schema)));
    let refused = plan(&table, "acme", TOOL).steps[0].config_refused.clone().expect("refused");
    assert!(
        refused.contains("/limit") && refused.contains("integer") && !refused.contains("hunter2"),
        "{refused}"
    );
    assert_eq!(plan(&table, "globex", TOOL).steps[0].config_refused, None);
    let [problem] = table.config_problems() else { panic!("one problem: {:?}", table.config_problems()) };
    assert_eq!(problem.pointer, "/tenants/list/0/config/a");
    assert!(problem.message.contains("binding `a` for tenant `acme`"), "{}", problem.message);
    assert!(with_manifest(members, None).config_problems().is_empty(), "nothing to check against yet");
}

#[test]
fn a_config_for_a_plugin_that_takes_none_says_so() {
    let members = one_binding(json!({ "config": { "limit": 1 } }));
    for (schema, at) in [(json!(false), "/"), (json!({ "properties": { "limit": false } }), "/limit")] {
        let table = with_manifest(members.clone(), manifest("1.0.0", &Point::ALL, Some(schema)));
        let [problem] = table.config_problems() else { panic!("one: {:?}", table.config_problems()) };
        let expected = format!("tenant-level config: the plugin takes nothing at `{at}`");
        assert!(problem.message.contains(&expected), "{}", problem.message);
    }
}

#[test]
fn a_bindings_own_config_is_refused_once_and_only_where_it_is_used() {
    let schema = json!({ "required": ["limit"] });
    let mut members = one_binding(json!({}));
    let build = |members: &Value| {
        with_manifest(members.clone(), manifest("1.0.0", &Point::ALL, Some(schema.clone())))
    };
    members["tenants"]["list"] = json!([{ "id": "acme" }, { "id": "globex" }]);
    let table = build(&members);
    let pointers: Vec<_> = table.config_problems().iter().map(|problem| &*problem.pointer).collect();
    assert_eq!(pointers, ["/bindings/0/config"]);
    members["tenants"] = json!({ "list": [{ "id": "acme", "config": { "a": { "limit": 1 } } }] });
    assert!(build(&members).config_problems().is_empty(), "every tenant gives what is required");
}

#[test]
fn writable_fields_travel_with_the_step() {
    let table = table(one_binding(json!({ "writable": ["args", "extra"] })));
    assert_eq!(
        plan(&table, "acme", TOOL).steps[0].writable.as_deref(),
        Some(&["args".into(), "extra".into()][..])
    );
}

#[test]
fn tenants_have_their_own_limits_and_detail_or_the_gateways() {
    let table = table(json!({
        "limits": { "tenant_in_flight": 7, "tenant_rate": "10/s" },
        "answer": { "detail": "minimal" },
        "tenants": { "unknown": "accept", "list": [
            { "id": "acme", "limits": { "in_flight": 1, "rate": "5/m" },
              "answer": { "detail": "full" } },
            { "id": "globex" },
        ] },
    }));
    let of = |tenant| {
        let plans = known(&table, tenant);
        (plans.in_flight, plans.rate, plans.detail)
    };
    assert_eq!(of("acme"), (1, "5/m".parse().ok(), Detail::Full));
    assert_eq!(of("globex"), (7, "10/s".parse().ok(), Detail::Minimal));
    assert_eq!(of("stranger"), (7, "10/s".parse().ok(), Detail::Minimal));
}

#[test]
fn tenants_have_the_models_of_their_list_or_all() {
    let table = table(json!({
        "tenants": { "unknown": "accept", "list": [
            { "id": "acme", "llm": { "models": ["gpt-*"] } },
            { "id": "globex", "llm": { "models": [] } },
            { "id": "initech", "llm": { "models": ["gpt-*"] } },
            { "id": "umbrella" },
        ] },
    }));
    let may_name = |tenant| known(&table, tenant).models.as_ref().map(|models| models.contains("gpt-5"));
    assert_eq!((may_name("acme"), may_name("globex")), (Some(true), Some(false)));
    assert_eq!((may_name("umbrella"), may_name("stranger")), (None, None));
    let list = |tenant| known(&table, tenant).models.clone().expect("it has a list");
    assert!(Arc::ptr_eq(&list("acme"), &list("initech")), "equal lists are one");
}

#[test]
fn tenants_with_equal_chains_share_their_plans() {
    let tenant = |n: usize| {
        let config = if n.is_multiple_of(3) { json!({ "a": { "tier": n % 2 } }) } else { json!({}) };
        json!({ "id": format!("tenant-{n}"), "labels": { "plan": if n < 150 { "pro" } else { "free" } }, "config": config })
    };
    let bindings: Vec<_> = (0..20)
        .map(|n| match n % 2 {
            0 => json!({ "name": format!("all-{n}"), "plugin": "a", "tenant": "*", "priority": n,
                         "match": { "tools": [format!("tool-{n}.*")] } }),
            _ => json!({ "name": format!("pro-{n}"), "plugin": "b", "selector": { "plan": "pro" }, "priority": n }),
        })
        .collect();
    let table = table(json!({
        "tenants": { "list": (0..300).map(tenant).collect::<Vec<_>>() },
        "plugins": two_plugins(),
        "bindings": bindings,
    }));
    let distinct: std::collections::HashSet<_> =
        (0..300).map(|n| std::ptr::from_ref(plan(&table, &format!("tenant-{n}"), TOOL))).collect();
    assert_eq!(distinct.len(), 6, "pro and free, each without config and with either tier");
    assert_eq!(plan(&table, "tenant-0", TOOL).steps.len(), 20);
    assert_eq!(plan(&table, "tenant-299", TOOL).steps.len(), 10);
}

#[test]
fn the_digest_covers_what_is_written_here() {
    let mut members = one_binding(json!({
        "name": "floor", "points": ["before_response", "before_llm_request"], "timeout": "250ms", "mode": "observe",
        "config": { "x": 1 }, "match": { "tools": ["fs.*"], "labels": { "k": ["v"] }, "text": { "contains": ["t"] } },
    }));
    members["plugins"][0]["config"] = json!({ "key": "${KEY}" });
    let table = with_manifest(members, manifest("1.2.3", &[Point::BeforeResponse], None));
    let expected = json!([{
        "binding": "floor", "plugin": "a", "version": "1.2.3", "priority": 1,
        "points": ["before_llm_request", "before_response"], "mode": "observe", "on_error": "skip", "timeout_ms": 250,
        "config": digest(&json!({ "key": "${KEY}" })), "tenant_config": digest(&json!({ "x": 1 })),
        "match": { "tools": ["fs.*"], "labels": { "k": ["v"] }, "text": { "contains": ["t"], "regex": [] } },
    }]);
    assert_eq!(*plan(&table, "acme", Point::BeforeResponse).digest, digest(&expected));
}

#[test]
fn changing_a_name_or_any_setting_of_a_step_changes_the_digest() {
    let of = |more: Value| {
        let table = table(one_binding(more));
        plan(&table, "acme", TOOL).digest.to_string()
    };
    let variants = [
        json!({}),
        json!({ "name": "renamed" }),
        json!({ "plugin": "b", "name": "a" }),
        json!({ "priority": 2 }),
        json!({ "points": ["before_tool_call"] }),
        json!({ "mode": "enforce", "on_error": "skip" }),
        json!({ "mode": "advise" }),
        json!({ "mode": "observe" }),
        json!({ "timeout": "4999ms" }),
        json!({ "config": { "n": 9_007_199_254_740_992_u64 } }),
        json!({ "config": { "n": 9_007_199_254_740_993_u64 } }),
        json!({ "match": { "tools": ["x"] } }),
        json!({ "match": { "agents": ["x"] } }),
        json!({ "match": { "models": ["x"] } }),
        json!({ "match": { "labels": { "x": ["x"] } } }),
        json!({ "match": { "text": { "contains": ["x"] } } }),
        json!({ "match": { "text": { "regex": ["x"] } } }),
    ];
    let digests: std::collections::HashSet<_> = variants.iter().cloned().map(of).collect();
    assert_eq!(digests.len(), variants.len());
    // Equivalent settings make the same plan.
    assert_eq!(of(json!({})), of(json!({ "blocking": true, "timeout": "5s", "name": "a" })));
}

#[test]
fn changing_the_order_the_version_or_the_plugins_config_changes_the_digest() {
    let ordered = |first: i64, second: i64| {
        let table = table(json!({
            "tenants": { "unknown": "accept" },
            "plugins": two_plugins(),
            "bindings": [
                { "plugin": "a", "tenant": "*", "priority": first },
                { "plugin": "b", "tenant": "*", "priority": second },
            ],
        }));
        plan(&table, "x", TOOL).digest.clone()
    };
    assert_ne!(ordered(1, 2), ordered(2, 1));

    let versioned =
        |version: &str| with_manifest(one_binding(json!({})), manifest(version, &Point::ALL, None));
    let (one, two) = (versioned("1.0.0"), versioned("1.0.1"));
    assert_ne!(plan(&one, "acme", TOOL).digest, plan(&two, "acme", TOOL).digest);
    let before = with_manifest(one_binding(json!({})), None);
    assert_ne!(plan(&one, "acme", TOOL).digest, plan(&before, "acme", TOOL).digest);

    let mut configured = one_binding(json!({}));
    configured["plugins"][0]["config"] = json!({ "x": 1 });
    assert_ne!(plan(&table(configured), "acme", TOOL).digest, plan(&before, "acme", TOOL).digest);
}

#[test]
fn the_digest_is_per_point() {
    let mut members = one_binding(json!({ "points": ["before_tool_call"] }));
    let only = json!({ "plugin": "b", "tenant": "*", "priority": 9, "points": ["before_response"] });
    let before = table(members.clone());
    members["bindings"].as_array_mut().expect("a list").push(only);
    let after = table(members);
    assert_eq!(plan(&before, "acme", TOOL).digest, plan(&after, "acme", TOOL).digest);
    assert_ne!(
        plan(&before, "acme", Point::BeforeResponse).digest,
        plan(&after, "acme", Point::BeforeResponse).digest
    );
}
