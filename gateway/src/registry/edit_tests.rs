use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::store::Snapshot;

fn object(kind: ObjectKind, name: &str, version: u64, owner: Owner, spec: Value) -> Object {
    Object { kind, name: name.into(), version, content: ObjectContent { owner, spec: spec.into() } }
}

/// A plugin `p` and its binding `b`, both of the API, and if `of_file` a binding `f` of the file to `p`.
fn contents(of_file: bool) -> Contents {
    let bound = |name: &str| json!({ "name": name, "plugin": "p", "tenant": "*", "priority": 1 });
    let mut objects = vec![
        object(
            ObjectKind::Plugin,
            "p",
            3,
            Owner::Api,
            json!({ "name": "p", "endpoint": "http://127.0.0.1:1" }),
        ),
        object(ObjectKind::Binding, "b", 4, Owner::Api, bound("b")),
    ];
    if of_file {
        objects.push(object(ObjectKind::Binding, "f", 1, Owner::File, bound("f")));
    }
    Contents::read(Snapshot { revision: 4, objects }).expect("they can be read")
}

fn gone(kind: ObjectKind, name: &str, with_bindings: bool) -> Edit {
    Edit { kind, name: name.into(), expected: None, wish: EditAction::Gone { with_bindings } }
}

#[test]
fn a_plugin_goes_after_its_bindings_or_with_them_and_never_with_the_files() {
    let names =
        |changes: Vec<Change>| changes.iter().map(|change| change.name.to_string()).collect::<Vec<_>>();
    let plugin = |with_bindings| gone(ObjectKind::Plugin, "p", with_bindings);
    let in_use = |bindings: &[&str]| {
        let bindings = bindings.iter().map(|&name| name.to_owned()).collect();
        EditError::InUse { name: "p".into(), bindings }
    };
    let now = contents(false);
    assert_eq!(changes(&now, &[plugin(false)]), Err(in_use(&["b"])));
    assert_eq!(changes(&now, &[plugin(true)]).map(names), Ok(vec!["p".to_owned(), "b".into()]));
    let both = [plugin(false), gone(ObjectKind::Binding, "b", false)];
    assert_eq!(changes(&now, &both).map(names), Ok(vec!["p".to_owned(), "b".into()]));
    let of_file = EditError::OfFile { kind: ObjectKind::Binding, name: "f".into() };
    assert_eq!(changes(&contents(true), &[plugin(true)]), Err(of_file));
    // A binding in the same write would name a missing plugin.
    let spec = json!({ "plugin": "p", "tenant": "*", "priority": 9 });
    let new =
        Edit { kind: ObjectKind::Binding, name: "n".into(), expected: Some(0), wish: EditAction::Be(spec) };
    assert_eq!(changes(&now, &[plugin(true), new]), Err(in_use(&["b", "n"])));
}

#[test]
fn a_binding_may_go_by_the_name_that_it_has_without_one() {
    let spec = json!({ "plugin": "p", "tenant": "acme", "priority": 9 });
    let edit = Edit {
        kind: ObjectKind::Binding,
        name: "p@acme".into(),
        expected: Some(0),
        wish: EditAction::Be(spec.clone()),
    };
    let changes = changes(&contents(false), &[edit]).expect("it is right");
    assert_eq!(changes[0].after.as_ref().expect("it is there").spec.value(), spec);
    assert_eq!(name(ObjectKind::Binding, &spec).as_deref(), Some("p@acme"));
}

#[test]
fn a_merge_is_that_of_rfc_7396() {
    for (target, patch, result) in [
        (json!({ "a": "b" }), json!({ "a": "c" }), json!({ "a": "c" })),
        (json!({ "a": "b", "b": "c" }), json!({ "a": null }), json!({ "b": "c" })),
        (json!({ "a": ["b"] }), json!({ "a": "c" }), json!({ "a": "c" })),
        (json!({ "a": { "b": "c" } }), json!({ "a": { "b": "d", "c": null } }), json!({ "a": { "b": "d" } })),
        (json!({ "e": null }), json!({ "a": 1 }), json!({ "e": null, "a": 1 })),
        (json!({}), json!({ "a": { "bb": { "ccc": null } } }), json!({ "a": { "bb": {} } })),
    ] {
        let mut merged = target;
        merge(&mut merged, &patch);
        assert_eq!(merged, result);
    }
}

proptest! {
    #[test]
    fn a_write_succeeds_only_with_the_current_version(expected in 0_u64..8) {
        let spec = json!({ "plugin": "p", "tenant": "*", "priority": 2 });
        let edit = Edit { kind: ObjectKind::Binding, name: "b".into(), expected: Some(expected), wish: EditAction::Be(spec) };
        let granted = changes(&contents(false), &[edit]);
        let refused = EditError::Version { kind: ObjectKind::Binding, name: "b".into(), current: 4, expected };
        prop_assert_eq!(granted.map(|changes| changes.len()), if expected == 4 { Ok(1) } else { Err(refused) });
    }
}
