//! Compares incrementally built tables with fully built ones.

use std::collections::HashSet;

use proptest::{prelude::*, sample::Index};
use serde_json::json;

use super::*;
use crate::config::{Binding, Bypass, Detail, Plugin, Tenant, UnknownTenant};

const TENANTS: [&str; 5] = ["t0", "t1", "t2", "t3", "t4"];

/// One change of a registry. What it names may not exist, and its result may be invalid.
#[derive(Debug, Clone)]
enum Change {
    PutTenant(Index, Value),
    DropTenant(Index),
    /// Inserted by name, which orders the bindings.
    PutBinding(Value),
    DropBinding(Index),
    /// Inserts the same object again elsewhere.
    RepeatBinding(Index, Index),
    SwapBindings(Index, Index),
    SwapTenants(Index, Index),
    PutPlugin(Index, Value),
    AddPlugin,
    Default(usize),
    Require(Vec<Point>),
    Accept(bool),
    Manifests(Vec<Option<Arc<Manifest>>>),
    /// For a binding that may not exist, and a tenant that may be unlisted.
    PutBypass(&'static str, &'static str),
    DropBypass(Index),
    /// Only appears to be a change: another object with equal contents.
    Again(Index),
}

fn value<T: serde::de::DeserializeOwned>(value: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value.clone()).expect("the test writes the right types"))
}

fn at<'l, T>(list: &'l mut [T], index: &Index) -> Option<&'l mut T> {
    (!list.is_empty()).then(|| index.get_mut(list))
}

fn bypass(binding: &str, tenant: &str) -> Arc<Bypass> {
    value(&json!({ "binding": binding, "tenant": tenant, "until": "2026-11-22T10:00:00Z", "reason": "x" }))
}

fn put_bypass(bypasses: &mut Vec<Arc<Bypass>>, binding: &str, tenant: &str) {
    bypasses.retain(|of| (&*of.binding, &*of.tenant) != (binding, tenant));
    bypasses.push(bypass(binding, tenant));
}

fn name(binding: &Arc<Binding>) -> String {
    binding.effective_name().into_owned()
}

fn put_tenant(tenants: &mut Vec<Arc<Tenant>>, id: &str, entry: &Value) {
    let mut entry = entry.clone();
    extend(&mut entry, json!({ "id": id }));
    match tenants.binary_search_by(|tenant| tenant.id.as_str().cmp(id)) {
        Ok(at) => tenants[at] = value(&entry),
        Err(at) => tenants.insert(at, value(&entry)),
    }
}

fn put_binding(bindings: &mut Vec<Arc<Binding>>, entry: Arc<Binding>) {
    match bindings.iter().position(|binding| name(binding) >= name(&entry)) {
        Some(at) if name(&bindings[at]) == name(&entry) => bindings[at] = entry,
        Some(at) => bindings.insert(at, entry),
        None => bindings.push(entry),
    }
}

impl Change {
    fn apply(&self, config: &mut Config, manifests: &mut Vec<Option<Arc<Manifest>>>) {
        let (bindings, tenants) = (&mut config.bindings, &mut config.tenants.list);
        match self {
            Change::PutTenant(which, entry) => {
                put_tenant(tenants, TENANTS[which.index(TENANTS.len())], entry)
            }
            Change::DropTenant(which) if !tenants.is_empty() => {
                _ = tenants.remove(which.index(tenants.len()))
            }
            Change::PutBinding(entry) => put_binding(bindings, value(entry)),
            Change::DropBinding(which) if !bindings.is_empty() => {
                bindings.remove(which.index(bindings.len()));
            }
            Change::RepeatBinding(from, to) if !bindings.is_empty() => {
                let (from, to) = (from.index(bindings.len()), to.index(bindings.len()));
                bindings[to] = Arc::clone(&bindings[from]);
            }
            Change::SwapBindings(a, b) if !bindings.is_empty() => {
                let (a, b) = (a.index(bindings.len()), b.index(bindings.len()));
                bindings.swap(a, b);
            }
            Change::SwapTenants(a, b) if !tenants.is_empty() => {
                let (a, b) = (a.index(tenants.len()), b.index(tenants.len()));
                tenants.swap(a, b);
            }
            Change::PutPlugin(which, entry) => {
                if let Some(plugin) = at(&mut config.plugins, which) {
                    let mut entry = entry.clone();
                    extend(&mut entry, json!({ "name": plugin.name, "builtin": "x" }));
                    *plugin = value::<Plugin>(&entry);
                }
            }
            Change::AddPlugin => {
                config.plugins.insert(0, value(&json!({ "name": "new", "builtin": "x" })));
            }
            Change::Default(number) => config.limits.tenant_in_flight = *number,
            Change::Require(points) => config.tenants.require_steps.clone_from(points),
            Change::Accept(accept) => {
                let answer = if *accept { UnknownTenant::Accept } else { UnknownTenant::Refuse };
                config.tenants.unknown = answer;
                config.answer.detail = if *accept { Detail::Full } else { Detail::Minimal };
            }
            Change::Manifests(now) => manifests.clone_from(now),
            Change::PutBypass(binding, tenant) => put_bypass(&mut config.bypasses, binding, tenant),
            Change::DropBypass(which) if !config.bypasses.is_empty() => {
                _ = config.bypasses.remove(which.index(config.bypasses.len()));
            }
            Change::Again(which) => {
                if let Some(binding) = at(bindings, which) {
                    *binding = Arc::new(Binding::clone(binding));
                }
                if let Some(bypass) = at(&mut config.bypasses, which) {
                    *bypass = Arc::new(Bypass::clone(bypass));
                }
                if let Some(tenant) = at(tenants, which) {
                    *tenant = Arc::new(Tenant::clone(tenant));
                }
            }
            Change::DropTenant(_) | Change::DropBinding(_) | Change::DropBypass(_) => {}
            Change::RepeatBinding(..) | Change::SwapBindings(..) | Change::SwapTenants(..) => {}
        }
    }
}

fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(values)
}

fn rarely<T: std::fmt::Debug + Clone + 'static>(value: T, usual: T) -> impl Strategy<Value = T> {
    prop_oneof![1 => Just(value), 12 => Just(usual)]
}

fn tenant_entries() -> impl Strategy<Value = Value> {
    let disable = prop_oneof![
        6 => Just(json!([])),
        2 => Just(json!(["off"])),
        1 => one_of(&["own-0", "own-1", "floor-0", "nobody"]).prop_map(|name| json!([name])),
    ];
    let config = prop_oneof![
        4 => Just(json!({})),
        3 => (0..3).prop_map(|n| json!({ "p0": { "limit": n } })),
        1 => Just(json!({ "p0": { "limit": "no number" }, "p1": {} })),
        1 => rarely(json!({ "nobody": {} }), json!({ "p1": { "x": 1 } })),
    ];
    let answer = prop::option::of(one_of(&["full", "minimal"]));
    (rarely(false, true), prop::option::of(one_of(&["x", "y"])), disable, config, answer, 1..3_usize)
        .prop_map(|(enabled, label, disable, config, answer, in_flight)| {
            let labels = label.map_or(json!({}), |label| json!({ "plan": label }));
            json!({ "enabled": enabled, "labels": labels, "disable": disable, "config": config,
                    "answer": { "detail": answer }, "limits": { "in_flight": in_flight },
                    "require_steps": &Point::ALL[..in_flight],
                    "llm": { "models": (in_flight > 1).then_some(["gpt-*", "fast"]) } })
        })
}

/// Mostly tenants' own bindings, whose priorities clash occasionally.
fn bindings() -> impl Strategy<Value = Value> {
    let own = (0..8_i64, 0..TENANTS.len()).prop_map(
        |(n, tenant)| json!({ "name": format!("own-{n}"), "tenant": TENANTS[tenant], "priority": 10 + n }),
    );
    let unnamed = (0..TENANTS.len()).prop_map(|n| json!({ "tenant": TENANTS[n], "priority": 30 }));
    let clashing = (0..8, 0..TENANTS.len(), 0..3_i64).prop_map(|(n, tenant, priority)| {
        json!({ "name": format!("own-{n}"), "tenant": TENANTS[tenant], "priority": priority })
    });
    let floor = (0..3_i64, prop::option::of(one_of(&["x", "y"]))).prop_map(|(n, label)| match label {
        None => json!({ "name": format!("floor-{n}"), "tenant": "*", "priority": n }),
        Some(label) => {
            json!({ "name": format!("floor-{n}"), "selector": { "plan": label }, "priority": n })
        }
    });
    let off = Just(json!({ "name": "off", "tenant": "*", "priority": 7, "overridable": true }));
    let wrong = prop_oneof![
        Just(json!({ "name": "own-0", "tenant": "nobody", "priority": 90 })),
        Just(json!({ "name": "own-1", "tenant": "t1", "priority": 91, "match": { "tools": [""] } })),
        Just(json!({ "name": "own-2", "tenant": "t1", "priority": 92, "points": [] })),
        Just(json!({ "name": "own-2", "tenant": "t1", "priority": 92, "plugin": "nobody" })),
        Just(json!({ "name": "own-3", "tenant": "t2", "selector": { "plan": "x" }, "priority": 93 })),
        Just(json!({ "name": "own-4", "priority": 94 })),
    ];
    let whose = prop_oneof![12 => own, 3 => unnamed, 2 => clashing, 2 => floor, 1 => off, 1 => wrong];
    let more = prop_oneof![
        9 => Just(json!({})),
        2 => Just(json!({ "mode": "observe" })),
        2 => Just(json!({ "on_error": "skip", "timeout": "20ms" })),
        2 => Just(json!({ "mode": "advise" })),
        2 => Just(json!({ "points": ["before_tool_call"], "writable": ["args"] })),
        2 => Just(json!({ "overridable": true })),
        1 => Just(json!({ "match": { "tools": ["fs.*"] } })),
        1 => Just(json!({ "match": { "tools": ["fs.*"], "labels": { "env": ["prod"] } } })),
    ];
    let config = prop_oneof![3 => Just(json!({ "limit": 1 })), 1 => Just(json!({ "limit": "no number" }))];
    (whose, 0..3, rarely(false, true), more, config).prop_map(|(mut entry, plugin, enabled, more, config)| {
        extend(&mut entry, json!({ "enabled": enabled, "config": config }));
        if entry.get("plugin").is_none() {
            extend(&mut entry, json!({ "plugin": format!("p{plugin}") }));
        }
        extend(&mut entry, more);
        entry
    })
}

fn accepted() -> impl Strategy<Value = Vec<Option<Arc<Manifest>>>> {
    let one =
        (one_of(&["1.0.0", "1.0.1"]), 1..=4_usize, any::<bool>()).prop_map(|(version, points, strict)| {
            let schema = strict.then(|| json!({ "properties": { "limit": { "type": "integer" } } }));
            manifest(version, &Point::ALL[..points], schema)
        });
    prop::collection::vec(prop_oneof![Just(None), one], 0..4)
}

fn changes() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    let plugin = prop_oneof![
        Just(json!({ "enabled": false })),
        Just(json!({ "config": { "x": 1 } })),
        Just(json!({ "limits": { "timeout": "40ms" } })),
        Just(
            json!({ "accepted": { "points": { "before_response": { "access": "read", "side_effects": "none" } } } })
        ),
    ];
    prop_oneof![
        24 => bindings().prop_map(Change::PutBinding),
        14 => (index(), tenant_entries()).prop_map(|(which, entry)| Change::PutTenant(which, entry)),
        8 => index().prop_map(Change::DropBinding),
        3 => index().prop_map(Change::DropTenant),
        3 => index().prop_map(Change::Again),
        2 => (index(), index()).prop_map(|(a, b)| Change::SwapBindings(a, b)),
        1 => (index(), index()).prop_map(|(a, b)| Change::SwapTenants(a, b)),
        1 => (index(), index()).prop_map(|(from, to)| Change::RepeatBinding(from, to)),
        1 => (index(), plugin).prop_map(|(which, entry)| Change::PutPlugin(which, entry)),
        8 => (one_of(&["floor-0", "floor-1", "off", "own-0", "own-7", "p1@t1"]),
              one_of(&["t0", "t1", "t2", "t4", "stranger"]))
            .prop_map(|(binding, tenant)| Change::PutBypass(binding, tenant)),
        4 => index().prop_map(Change::DropBypass),
        1 => Just(Change::AddPlugin),
        1 => (1..3_usize).prop_map(Change::Default),
        1 => (0..=4_usize).prop_map(|to| Change::Require(Point::ALL[..to].to_vec())),
        1 => any::<bool>().prop_map(Change::Accept),
        2 => accepted().prop_map(Change::Manifests),
    ]
}

fn start() -> Config {
    config(json!({
        "tenants": { "unknown": "accept", "list": TENANTS[..4].iter().map(|id| json!({ "id": id })).collect::<Vec<_>>() },
        "plugins": (0..3).map(|n| json!({ "name": format!("p{n}"), "builtin": "x" })).collect::<Vec<_>>(),
        "bindings": [
            { "name": "floor-0", "plugin": "p0", "tenant": "*", "priority": 0, "config": { "limit": 1 } },
            { "name": "floor-1", "plugin": "p1", "selector": { "plan": "x" }, "priority": 1 },
            { "name": "off", "plugin": "p2", "tenant": "*", "priority": 7, "overridable": true },
            { "name": "own-7", "plugin": "p2", "tenant": "t0", "priority": 17 },
        ],
    }))
}

/// Everything observable of a table, or its problems.
fn seen(built: &Result<RouteTable, Vec<Problem>>) -> String {
    let table = match built {
        Ok(table) => table,
        Err(problems) => return format!("{problems:?}"),
    };
    let ids = TENANTS.iter().copied().chain(["stranger"]);
    let tenants: Vec<_> = ids.map(|id| (id, table.tenant(id))).collect();
    let manifests: Vec<_> = (0..5).map(|at| table.manifest(at).map(|of| of.version.to_string())).collect();
    let (listed, others) = (table.listed(), table.serves_others());
    format!("{tenants:?}{:?}{listed:?}{others}{manifests:?}{}", table.config_problems(), table.revision())
}

/// How many different plans the listed tenants have. Unlisted tenants with bypasses keep their own.
fn distinct(config: &Config, table: &RouteTable) -> usize {
    let listed = config.tenants.list.iter().map(|tenant| tenant.id.as_str());
    let plans = listed.filter_map(|id| match table.tenant(id) {
        TenantRoute::Known(plans) => Some(std::ptr::from_ref(plans.plan(TOOL))),
        TenantRoute::Disabled | TenantRoute::Unknown => None,
    });
    plans.collect::<HashSet<_>>().len()
}

/// How many different conditions all steps have, as written and as compiled.
fn conditions(table: &RouteTable) -> [usize; 2] {
    let plans = TENANTS.iter().flat_map(|id| match table.tenant(id) {
        TenantRoute::Known(plans) => Point::ALL.map(|point| plans.plan(point)).to_vec(),
        TenantRoute::Disabled | TenantRoute::Unknown => Vec::new(),
    });
    let written: Vec<_> = plans
        .flat_map(|plan| &plan.steps)
        .map(|step| step.conditions.source())
        .filter(|of| !of.is_null())
        .collect();
    let said: HashSet<_> = written.iter().map(ToString::to_string).collect();
    [said.len(), written.into_iter().map(std::ptr::from_ref).collect::<HashSet<_>>().len()]
}

proptest! {
    #[test]
    fn after_a_change_the_table_is_the_one_that_would_be_built(changes in prop::collection::vec(changes(), 1..20)) {
        let (mut config, mut manifests) = (start(), Vec::new());
        let mut table = RouteTable::build(&config, &manifests, 1).expect("the start is valid");
        for (revision, change) in (2..).zip(&changes) {
            let (mut next, mut now) = (config.clone(), manifests.clone());
            change.apply(&mut next, &mut now);
            let built = RouteTable::build(&next, &now, revision);
            let after = table.after(&next, &now, revision);
            prop_assert_eq!(seen(&after), seen(&built), "after {:?}", change);
            // As in a registry, an invalid table is not published.
            if let (Ok(after), Ok(built)) = (after, built) {
                prop_assert_eq!(distinct(&next, &after), distinct(&next, &built), "tenants share plans as they would, {:?}", change);
                let [said, compiled] = conditions(&after);
                prop_assert_eq!(said, compiled, "equal conditions are one, {:?}", change);
                (config, manifests, table) = (next, now, after);
            }
        }
    }
}

/// Three tenants with one binding each, and a global one.
fn three() -> Config {
    let own =
        |n: usize| json!({ "name": format!("own-{n}"), "plugin": "b", "tenant": TENANTS[n], "priority": 2 });
    config(json!({
        "tenants": { "list": TENANTS[..3].iter().map(|id| json!({ "id": id })).collect::<Vec<_>>() },
        "plugins": two_plugins(),
        "bindings": [json!({ "plugin": "a", "tenant": "*", "priority": 1 }), own(0), own(1), own(2)],
    }))
}

/// The tenants whose plans are other objects.
fn remade(before: &RouteTable, after: &RouteTable) -> Vec<&'static str> {
    let is_other = |id: &&str| !std::ptr::eq(plan(before, id, TOOL), plan(after, id, TOOL));
    TENANTS[..3].iter().copied().filter(is_other).collect()
}

#[test]
fn a_tenants_change_remakes_that_tenants_plans_alone() {
    let before = three();
    let table = RouteTable::build(&before, &[], 1).expect("valid");
    let changed = |change: fn(&mut Config)| {
        let mut config = before.clone();
        change(&mut config);
        remade(&table, &table.after(&config, &[], 2).expect("valid"))
    };
    assert!(changed(|_| {}).is_empty());
    assert_eq!(
        changed(|config| config.bindings[2] =
            value(&json!({ "name": "own-1", "plugin": "a", "tenant": "t1", "priority": 9 }))),
        ["t1"]
    );
    assert_eq!(changed(|config| _ = config.bindings.remove(1)), ["t0"]);
    assert_eq!(
        changed(|config| config
            .bindings
            .insert(1, value(&json!({ "plugin": "b", "tenant": "t2", "priority": 5 })))),
        ["t2"]
    );
    assert_eq!(
        changed(|config| config.tenants.list[1] = value(&json!({ "id": "t1", "config": { "b": {} } }))),
        ["t1"]
    );
    // Changes that affect all tenants.
    assert_eq!(
        changed(|config| config.bindings[0] = value(&json!({ "plugin": "a", "tenant": "*", "priority": 0 }))),
        ["t0", "t1", "t2"]
    );
    assert_eq!(
        changed(|config| config.plugins[1] = value(&json!({ "name": "b", "builtin": "b" }))),
        ["t0", "t1", "t2"]
    );
}

#[test]
fn an_added_binding_with_a_priority_that_is_taken_is_refused_as_by_a_whole_build() {
    let mut config = three();
    let table = RouteTable::build(&config, &[], 1).expect("valid");
    config
        .bindings
        .insert(1, value(&json!({ "name": "late", "plugin": "b", "tenant": "t1", "priority": 2 })));
    let problems = table.after(&config, &[], 2).expect_err("own-1 has that priority");
    let [problem] = problems.as_slice() else { panic!("one problem: {problems:?}") };
    assert_eq!(problem.pointer, "/bindings/3/priority");
    assert!(
        problem.message.contains("`late` and `own-1` both have priority 2 for `t1`"),
        "{}",
        problem.message
    );
    // A disabled binding doesn't count.
    config.bindings[1] =
        value(&json!({ "name": "late", "plugin": "b", "tenant": "t1", "priority": 2, "enabled": false }));
    assert_eq!(chain(&table.after(&config, &[], 2).expect("valid"), "t1", TOOL), ["a", "own-1"]);
}

#[test]
fn a_bypass_takes_a_binding_out_of_one_tenants_plans_and_remakes_no_others() {
    let mut config = three();
    config.tenants.unknown = UnknownTenant::Accept;
    let table = RouteTable::build(&config, &[], 1).expect("valid");
    config.bypasses = vec![bypass("a", "t1"), bypass("own-0", "t1"), bypass("a", "stranger")];
    let after = table.after(&config, &[], 1).expect("valid");
    assert_eq!(remade(&table, &after), ["t1"]);
    assert_eq!(chain(&after, "t1", TOOL), ["own-1"]);
    assert_eq!(
        chain(&after, "t0", TOOL),
        ["a", "own-0"],
        "another tenant's binding is nothing that t1 lacks"
    );
    assert_eq!(chain(&after, "stranger", TOOL), [""; 0]);
    assert_eq!(chain(&after, "another", TOOL), ["a"]);
    let names =
        |id| known(&after, id).bypassed(&TOOL.into()).iter().map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names("t1"), ["a"]);
    assert_eq!(names("stranger"), ["a"]);
    assert!(names("t0").is_empty() && names("another").is_empty());
    assert_ne!(plan(&table, "t1", TOOL).digest, plan(&after, "t1", TOOL).digest);
    let why = absent(&config, |_| None, "t1", &TOOL.into());
    let why: Vec<_> = why.iter().map(|(binding, why)| (&*binding.plugin, *why)).collect();
    assert_eq!(why, [("a", AbsenceReason::Bypassed)]);
    // Ending the bypass restores the table without a trace.
    let ended = Config { bypasses: Vec::new(), ..config };
    let back = after.after(&ended, &[], 1).expect("valid");
    assert_eq!(seen(&Ok(back)), seen(&Ok(RouteTable::build(&ended, &[], 1).expect("valid"))));
}

#[test]
fn bypasses_make_no_configuration_right_or_wrong() {
    let mut config = three();
    config.bindings.push(value(&json!({ "name": "late", "plugin": "b", "tenant": "t1", "priority": 2 })));
    config.bypasses = vec![bypass("late", "t1")];
    RouteTable::build(&config, &[], 1).expect_err("two have the priority 2, once the bypass ends");
    config.bindings.pop();
    let table =
        RouteTable::build(&config, &[], 1).expect("a bypass of a binding that is gone takes nothing out");
    assert_eq!(chain(&table, "t1", TOOL), ["a", "own-1"]);
    config.bindings.push(value(&json!({ "name": "late", "plugin": "b", "tenant": "t1", "priority": 2 })));
    table.after(&config, &[], 2).expect_err("the same from the table before");
}
