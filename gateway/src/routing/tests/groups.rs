//! Tests which steps of a plan form a group.

use super::*;

/// A table with one plugin and one binding for each name, in this order. The first letter says what the
/// plugin may do: `r` reads, `s` reads with side effects, `m` modifies, `o` reads and is bound as an observer,
/// and `x` has no manifest. A plugin bound before is bound again.
fn plan_of(names: &[&str]) -> Plan {
    let mut plugins: Vec<&str> = Vec::new();
    let mut bindings = Vec::new();
    for (priority, name) in names.iter().copied().enumerate() {
        if !plugins.contains(&name) {
            plugins.push(name);
        }
        let mode = if name.starts_with('o') { "observe" } else { "advise" };
        bindings.push(json!({
            "name": format!("b{priority}"), "plugin": name, "tenant": "*", "priority": priority, "mode": mode,
            "points": ["before_tool_call"],
        }));
    }
    let manifests: Vec<_> = plugins.iter().map(|name| manifest_of(name)).collect();
    let entries: Vec<_> = plugins.iter().map(|name| json!({ "name": name, "builtin": "x" })).collect();
    let members = json!({
        "plugins": entries, "bindings": bindings, "tenants": { "list": [{ "id": "acme" }] },
    });
    let table = RouteTable::build(&config(members), &manifests, 1).expect("the configuration is valid");
    plan(&table, "acme", TOOL).clone()
}

fn manifest_of(name: &str) -> Option<Arc<Manifest>> {
    let (access, side_effects) = match name.as_bytes().first()? {
        b'r' | b'o' => (Access::Read, SideEffects::None),
        b's' => (Access::Read, SideEffects::Some),
        b'm' => (Access::Modify, SideEffects::None),
        _ => return None,
    };
    let mut manifest = Manifest::clone(&*manifest("1.0.0", &[TOOL], None)?);
    manifest.offers[TOOL.index()] = Some(PointAccess::new(access, side_effects));
    Some(Arc::new(manifest))
}

/// The groups of the plan, as the names of plugins.
fn grouped(names: &[&str]) -> Vec<String> {
    let plan = plan_of(names);
    let names =
        |group: &[Step]| group.iter().map(|step| step.plugin_name.to_string()).collect::<Vec<_>>().join(" ");
    groups(&plan.steps).map(names).collect()
}

#[test]
fn adjacent_readers_without_side_effects_form_a_group() {
    assert_eq!(grouped(&["r1", "r2", "m", "r3", "r4", "r5"]), ["r1 r2", "m", "r3 r4 r5"]);
    assert_eq!(grouped(&["m1", "m2"]), ["m1", "m2"]);
    assert_eq!(grouped(&[]), [""; 0]);
}

#[test]
fn a_step_with_side_effects_or_without_a_manifest_runs_alone() {
    assert_eq!(grouped(&["r1", "s", "r2", "x", "r3"]), ["r1", "s", "r2", "x", "r3"]);
}

#[test]
fn a_plugin_is_in_a_group_once() {
    assert_eq!(grouped(&["r1", "r2", "r1", "r3", "r2"]), ["r1 r2", "r1 r3 r2"]);
}

#[test]
fn an_observer_belongs_to_a_group_only_between_its_steps() {
    assert_eq!(grouped(&["o1", "r1", "o2", "o3", "r2", "o4"]), ["o1", "r1 o2 o3 r2", "o4"]);
    assert_eq!(grouped(&["r1", "o1", "m"]), ["r1", "o1", "m"]);
    assert_eq!(grouped(&["r1", "o1", "o1", "r2"]), ["r1 o1 o1 r2"]);
}

#[test]
fn a_group_has_at_most_eight_calls() {
    let names: Vec<_> = (0..18).map(|number| format!("r{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let plan = plan_of(&names);
    assert_eq!(groups(&plan.steps).map(<[_]>::len).collect::<Vec<_>>(), [8, 8, 2]);
}

#[test]
fn a_step_with_a_refused_config_runs_alone() {
    let mut steps = plan_of(&["r1", "r2", "r3"]).steps;
    Arc::make_mut(&mut steps[1].template).config_refused = Some("`x` is unknown".into());
    form_groups(&mut steps);
    assert_eq!(groups(&steps).map(<[_]>::len).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_step_takes_no_more_memory_for_its_group() {
    // There may be hundreds of thousands of steps.
    assert_eq!(size_of::<Step>(), 32);
}
