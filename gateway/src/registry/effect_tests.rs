//! Tests which facts of a step count as a change of the plan.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::core::manifest::{Access, Manifest, PointAccess, SideEffects};

const TOOL: Point = Point::BeforeToolCall;

/// The manifest of both plugins, which run before tools only.
fn manifest(version: &str, access: Access, schema: Value) -> Option<Arc<Manifest>> {
    let mut offers = [None; 4];
    offers[TOOL.index()] = Some(PointAccess::new(access, SideEffects::None));
    Some(Arc::new(Manifest {
        name: "a".into(),
        version: version.parse().expect("a version"),
        offers,
        hooks: BTreeMap::new(),
        tool_names: Arc::default(),
        tools: None,
        capabilities: Vec::new(),
        config_schema: None,
        tenant_config_schema: Some(Arc::new(jsonschema::validator_for(&schema).expect("a schema"))),
    }))
}

/// Two tenants, of which the first has a binding. The members given override those of the binding and of
/// its plugin.
fn config(binding: Value, plugin: Value) -> Config {
    let merged = |mut object: Value, members: Value| {
        let Value::Object(members) = members else { panic!("members, not {members}") };
        object.as_object_mut().expect("an object").extend(members);
        object
    };
    let own = json!({ "name": "own", "plugin": "a", "tenant": "t0", "priority": 1, "on_error": "fail" });
    let config = json!({
        "auth": { "issuers": [] },
        "plugins": [merged(json!({ "name": "a", "builtin": "x" }), plugin), { "name": "b", "builtin": "x" }],
        "tenants": { "unknown": "accept", "list": [{ "id": "t0" }, { "id": "t1" }] },
        "bindings": [{ "name": "floor", "plugin": "b", "tenant": "*", "priority": 0 }, merged(own, binding)],
    });
    serde_json::from_value(config).expect("the test writes a configuration of the right types")
}

fn told(before: &(Config, RouteTable), after: &(Config, RouteTable)) -> Effects {
    let troubles = StepFailures::new();
    let [before, after] =
        [before, after].map(|(config, table)| EffectInputs { config, table, troubles: &troubles });
    effects(&before, &after)
}

fn built(config: Config, manifest: Option<Arc<Manifest>>) -> (Config, RouteTable) {
    let table = RouteTable::build(&config, &[manifest.clone(), manifest], 1).expect("it is right");
    (config, table)
}

#[test]
fn whichever_fact_of_a_step_is_another_its_plan_changes_for_its_tenant_alone() {
    let usual = || manifest("1.0.0", Access::Read, json!({}));
    let before = built(config(json!({}), json!({})), usual());
    assert_eq!(told(&before, &built(config(json!({}), json!({})), usual())), Effects::default(), "as it was");
    let bound = |members| built(config(members, json!({})), usual());
    for (fact, after) in [
        ("plugin", bound(json!({ "plugin": "b" }))),
        ("mode", bound(json!({ "mode": "advise" }))),
        ("on_error", bound(json!({ "on_error": "skip" }))),
        ("timeout", bound(json!({ "timeout": "7s" }))),
        ("config", bound(json!({ "config": { "x": 1 } }))),
        ("writable", bound(json!({ "writable": ["args"] }))),
        ("match", bound(json!({ "match": { "tools": ["fs.*"] } }))),
        ("priority", bound(json!({ "priority": 2 }))),
        ("the plugin's config", built(config(json!({}), json!({ "config": { "x": 1 } })), usual())),
    ] {
        let effects = told(&before, &after);
        let [effect] = effects.sample.as_slice() else { panic!("{fact}: {effects:?}") };
        assert_eq!((effects.tenants, &*effect.tenant, effect.settings), (1, "t0", false), "{fact}");
        let plan = effect.points.get(&TOOL).filter(|_| effect.points.len() == 1);
        let plan = plan.unwrap_or_else(|| panic!("{fact}: {effect:?}"));
        assert_eq!(
            (&*plan.changed, &*plan.added, &*plan.removed),
            (&["own".to_owned()][..], &[][..], &[][..]),
            "{fact}"
        );
        assert_eq!(plan.order, ["floor", "own"], "{fact}");
    }
}

#[test]
fn a_changed_manifest_changes_the_plugins_plans() {
    let plain = || config(json!({}), json!({}));
    let before = built(plain(), manifest("1.0.0", Access::Read, json!({})));
    for (fact, now) in [
        ("version", manifest("1.0.1", Access::Read, json!({}))),
        ("offer", manifest("1.0.0", Access::Modify, json!({}))),
        ("schema", manifest("1.0.0", Access::Read, json!({ "required": ["x"] }))),
    ] {
        let effects = told(&before, &built(plain(), now));
        let changed: Vec<_> = effects
            .sample
            .iter()
            .map(|effect| (&*effect.tenant, effect.points[&TOOL].changed.join(" ")))
            .collect();
        let floor = || "floor".to_owned();
        assert_eq!(changed, [("*", floor()), ("t0", "floor own".to_owned()), ("t1", floor())], "{fact}");
    }
}

#[test]
fn a_bypass_for_an_unlisted_tenant_names_that_tenant() {
    let usual = || manifest("1.0.0", Access::Read, json!({}));
    let before = built(config(json!({}), json!({})), usual());
    let mut with = config(json!({}), json!({}));
    let bypass =
        json!({ "binding": "floor", "tenant": "guest", "until": "2026-11-22T10:00:00Z", "reason": "x" });
    with.bypasses = vec![serde_json::from_value(bypass).expect("a bypass")];
    let after = built(with, usual());
    for (effects, added, removed) in [
        (told(&before, &after), [].as_slice(), ["floor"].as_slice()),
        (told(&after, &before), &["floor"], &[]),
    ] {
        let [effect] = effects.sample.as_slice() else { panic!("{effects:?}") };
        assert_eq!((effects.tenants, &*effect.tenant), (1, "guest"));
        let plan = &effect.points[&TOOL];
        assert_eq!((&*plan.added, &*plan.removed), (&*strings(added), &*strings(removed)));
    }
}

/// With these members of the listed tenant `t1`, which has no step at `before_response`.
fn with_tenant(members: Value) -> (Config, RouteTable) {
    let mut with = config(json!({}), json!({}));
    let mut tenant = json!({ "id": "t1" });
    tenant.as_object_mut().expect("an object").extend(members.as_object().expect("members").clone());
    with.tenants.list[1] = serde_json::from_value(tenant).expect("a tenant");
    built(with, manifest("1.0.0", Access::Read, json!({})))
}

#[test]
fn a_tenant_that_requires_a_step_it_lacks_is_told_that_its_calls_are_or_were_refused() {
    let (usual, strict) =
        (with_tenant(json!({})), with_tenant(json!({ "require_steps": ["before_response"] })));
    for (effects, is_refused) in [(told(&usual, &strict), true), (told(&strict, &usual), false)] {
        let [effect] = effects.sample.as_slice() else { panic!("{effects:?}") };
        assert_eq!((&*effect.tenant, effect.points.len()), ("t1", 1));
        let plan = &effect.points[&Point::BeforeResponse];
        assert_eq!((plan.lacks_steps, plan.lacked_steps), (is_refused, !is_refused));
    }
}

#[test]
fn a_tenants_models_are_settings() {
    let [all, some, others] =
        [json!({}), json!({ "llm": { "models": ["gpt-*"] } }), json!({ "llm": { "models": [] } })]
            .map(with_tenant);
    for (before, after, is_changed) in [(&all, &some, true), (&some, &others, true), (&some, &some, false)] {
        let changed: Vec<_> = told(before, after).sample.iter().map(|effect| effect.settings).collect();
        assert_eq!(changed, vec![true; usize::from(is_changed)]);
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
