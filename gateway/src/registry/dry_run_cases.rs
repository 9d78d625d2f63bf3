//! Generates random registries and writes.

use std::collections::BTreeSet;

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::{
    core::{object::ObjectKind, point::Point},
    invoke::explain::tests::{Case, cases},
    registry::edit::EditAction,
};

/// A write, before the contents that it applies to are known.
#[derive(Debug, Clone)]
pub(super) enum WriteCase {
    Edits(Vec<(ObjectKind, String, Version, EditAction)>),
    /// Roll back by this many revisions; the target may not exist.
    Back(u64),
}

/// A write's precondition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Version {
    Any,
    Right,
    /// The object must not exist.
    None,
    Other,
}

/// The objects of `case`. One plugin is built in; the others can't be reached.
pub(super) fn objects(case: &Case) -> Vec<(ObjectKind, String, Value)> {
    let members = &case.members;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let named = |kind, member: &'static str| {
        move |mut spec: Value| {
            // Leave out defaults, as people do.
            if let Some(Value::Object(conditions)) = spec.get_mut("match") {
                conditions.retain(|_, condition| !condition.is_null());
            }
            (kind, spec[member].as_str().unwrap_or_default().to_owned(), spec)
        }
    };
    let plugin = |(at, mut plugin): (usize, Value)| {
        if at == 0 {
            plugin["builtin"] = json!("content-policy");
        } else {
            plugin.as_object_mut().expect("an object").remove("builtin");
            plugin["endpoint"] = json!(format!("http://127.0.0.1:{at}"));
        }
        plugin
    };
    let plugins = list(&members["plugins"]).into_iter().enumerate().map(plugin);
    let plugins = plugins.map(named(ObjectKind::Plugin, "name"));
    let tenants = list(&members["tenants"]["list"]).into_iter().map(named(ObjectKind::Tenant, "id"));
    let bindings = list(&members["bindings"]).into_iter().map(named(ObjectKind::Binding, "name"));
    let mut objects: Vec<_> = plugins.chain(tenants).chain(bindings).collect();
    objects.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    objects
}

/// An object as operators write it in a file.
const WRITTEN: [ObjectKind; 3] = [ObjectKind::Plugin, ObjectKind::Tenant, ObjectKind::Binding];

/// Bind to this point only.
fn consent(point: Point) -> Value {
    json!({ "accepted": { "points": { point.as_str(): { "access": "modify", "side_effects": "none" } } } })
}

/// Merge patches: most are valid for some object, some for none.
fn patches(kind: ObjectKind) -> Vec<Value> {
    match kind {
        ObjectKind::Plugin => vec![
            json!({ "enabled": false }),
            json!({ "enabled": true }),
            json!({ "limits": { "timeout": "2s" } }),
            json!({ "config": { "good": 1 } }),
            json!({ "config": { "bad": 1 } }),
            json!({ "colour": "blue" }),
            json!({ "builtin": "nobody" }),
            json!({ "endpoint": "http://10.0.0.1:1" }),
            json!({ "name": "else" }),
            consent(Point::BeforeToolCall),
            consent(Point::BeforeResponse),
            json!({ "accepted": null }),
        ],
        ObjectKind::Tenant => vec![
            json!({ "enabled": false }),
            json!({ "enabled": true }),
            json!({ "labels": { "plan": "x" } }),
            json!({ "labels": null }),
            json!({ "config": { "p1": { "good": 2 } } }),
            json!({ "config": { "p1": { "bad": 2 } } }),
            json!({ "config": { "nobody": {} } }),
            json!({ "disable": null }),
            json!({ "disable": ["nobody"] }),
            json!({ "limits": { "in_flight": 3 } }),
            json!({ "limits": { "rate": "0/s" } }),
        ],
        ObjectKind::Binding => vec![
            json!({ "priority": 101 }),
            json!({ "priority": 102 }),
            json!({ "priority": 200 }),
            json!({ "enabled": false }),
            json!({ "enabled": true }),
            json!({ "tenant": "t1", "selector": null }),
            json!({ "tenant": null, "selector": { "plan": "y" } }),
            json!({ "plugin": "p2" }),
            json!({ "plugin": "nobody" }),
            json!({ "match": { "agents": ["c*"] } }),
            json!({ "points": [Point::BeforeToolCall] }),
            json!({ "timeout": "2s" }),
            json!({ "timeout": "soon" }),
            json!({ "config": { "good": 3 } }),
            json!({ "overridable": false }),
            json!({ "writable": ["args"] }),
            json!({ "mode": "observe", "on_error": null, "blocking": null }),
        ],
        // Models change no plan. Bypasses are written separately, because they depend on the clock.
        ObjectKind::Upstream | ObjectKind::Model | ObjectKind::Bypass => Vec::new(),
    }
}

fn wishes(other: &Case) -> impl Strategy<Value = (ObjectKind, String, Version, EditAction)> + use<> {
    // Some names exist in no registry.
    let name = |kind: ObjectKind, at: usize| match kind {
        ObjectKind::Plugin => format!("p{}", at % 4),
        ObjectKind::Tenant => format!("t{}", at % 4),
        _ => format!("b{at}"),
    };
    let be = select(objects(other)).prop_map(|(kind, name, spec)| (kind, name, EditAction::Be(spec)));
    let merge = (select(&WRITTEN[..]), 0..8_usize, 0..64_usize).prop_map(move |(kind, at, patch)| {
        let patches = patches(kind);
        (kind, name(kind, at), EditAction::Merge(patches[patch % patches.len()].clone()))
    });
    let gone =
        (select(&WRITTEN[..]), 0..8_usize, any::<bool>()).prop_map(move |(kind, at, with_bindings)| {
            (kind, name(kind, at), EditAction::Gone { with_bindings })
        });
    let version = prop_oneof![
        6 => Just(Version::Any), 6 => Just(Version::Right), 1 => Just(Version::None), 1 => Just(Version::Other)
    ];
    (prop_oneof![3 => be, 5 => merge, 2 => gone], version)
        .prop_map(|((kind, name, wish), version)| (kind, name, version, wish))
}

fn writes(other: &Case) -> impl Strategy<Value = Vec<WriteCase>> + use<> {
    let one = prop::collection::vec(wishes(other), 1..2).prop_map(WriteCase::Edits);
    let several = prop::collection::vec(wishes(other), 2..5).prop_map(|mut edits| {
        // A document may contain each object once.
        let mut seen = BTreeSet::new();
        edits.retain(|(kind, name, ..)| seen.insert((*kind, name.clone())));
        WriteCase::Edits(edits)
    });
    let write = prop_oneof![5 => one, 3 => several, 3 => (0..4_u64).prop_map(WriteCase::Back)];
    prop::collection::vec(write, 1..5)
}

/// A registry, its owners, the writes, and the final questions.
pub(super) fn registries() -> impl Strategy<Value = (Case, u64, Vec<WriteCase>)> {
    let owners = prop_oneof![Just(0), any::<u64>().prop_map(|bits| bits & bits.rotate_left(9))];
    (cases(), cases(), owners)
        .prop_flat_map(|(case, other, owners)| (Just(case), Just(owners), writes(&other)))
}
