//! Tests of beginning and ending a bypass, and of its errors.

use serde_json::{Value, json};

use super::*;
use crate::store::{Object, Snapshot};

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn contents(more: Vec<(ObjectKind, &str, Value)>) -> Contents {
    let mut objects = vec![
        (ObjectKind::Plugin, "p", json!({ "name": "p", "builtin": "content-policy" })),
        (ObjectKind::Plugin, "q", json!({ "name": "q", "builtin": "content-policy", "enabled": false })),
        (ObjectKind::Tenant, "acme", json!({ "id": "acme", "disable": ["soft"] })),
        (ObjectKind::Tenant, "gone", json!({ "id": "gone", "enabled": false })),
        (
            ObjectKind::Binding,
            "floor",
            json!({ "name": "floor", "plugin": "p", "tenant": "*", "priority": 1 }),
        ),
        (
            ObjectKind::Binding,
            "off",
            json!({ "plugin": "p", "tenant": "*", "priority": 2, "enabled": false }),
        ),
        (ObjectKind::Binding, "of-q", json!({ "plugin": "q", "tenant": "*", "priority": 3 })),
        (
            ObjectKind::Binding,
            "gold",
            json!({ "plugin": "p", "selector": { "plan": "gold" }, "priority": 4 }),
        ),
        (
            ObjectKind::Binding,
            "soft",
            json!({ "name": "soft", "plugin": "p", "tenant": "*", "priority": 5, "overridable": true }),
        ),
        (ObjectKind::Binding, "p@gone", json!({ "plugin": "p", "tenant": "gone", "priority": 6 })),
    ];
    objects.extend(more);
    objects.sort_by_key(|(kind, name, _)| (*kind, name.to_string()));
    let object = |(kind, name, spec): (ObjectKind, &str, Value)| {
        let owner = if kind == ObjectKind::Bypass { Owner::Api } else { Owner::File };
        Object { kind, name: name.into(), version: 1, content: ObjectContent { owner, spec: spec.into() } }
    };
    let objects = objects.into_iter().map(object).collect();
    Contents::read(Snapshot { revision: 1, objects }).expect("right")
}

fn bypass(binding: &str, until: &str) -> Value {
    json!({ "binding": binding, "tenant": "acme", "until": until, "reason": "x" })
}

fn glass(binding: &str, tenant: &str, seconds: Option<u64>) -> BypassRequest {
    BypassRequest { binding: binding.into(), tenant: tenant.into(), lasts: seconds.map(Duration::from_secs) }
}

fn asked(
    contents: &Contents,
    glass: &BypassRequest,
    serves_others: bool,
) -> Result<Vec<Change>, OperationError> {
    changes(contents, glass, "INC-7", LocalView { serves_others, stands: false }, NOW)
}

#[test]
fn a_bypass_is_always_of_the_api_and_removes_expired_ones() {
    let contents = contents(vec![
        (ObjectKind::Bypass, "floor@acme", bypass("floor", "1969-12-31T23:59:00Z")),
        (ObjectKind::Bypass, "soft@acme", bypass("soft", "1970-01-01T00:00:00Z")),
        (ObjectKind::Bypass, "z@acme", bypass("z", "1970-01-01T00:00:01Z")),
    ]);
    let changes = asked(&contents, &glass("floor", "acme", Some(900)), false).expect("granted");
    let [again, ended] = changes.as_slice() else { panic!("two changes: {changes:?}") };
    assert_eq!((&*again.name, again.before.is_some()), ("floor@acme", true));
    let after = again.after.as_ref().expect("it is there");
    assert_eq!(after.owner, Owner::Api);
    let spec =
        json!({ "binding": "floor", "tenant": "acme", "until": "1970-01-01T00:15:00Z", "reason": "INC-7" });
    assert_eq!(after.spec.value(), spec);
    assert_eq!((&*ended.name, ended.before.is_some(), ended.after.is_none()), ("soft@acme", true, true));
    // Ending a bypass doesn't require that its binding or tenant exists.
    let mended = asked(&contents, &glass("z", "acme", None), false).expect("granted");
    assert_eq!(
        mended.iter().map(|change| &*change.name).collect::<Vec<_>>(),
        ["floor@acme", "soft@acme", "z@acme"]
    );
    assert!(mended.iter().all(|change| change.after.is_none()));
    for none in ["floor", "off"] {
        let undone =
            asked(&contents, &glass(none, "acme", None), false).expect_err("it has ended, or never was");
        assert!(
            matches!(undone, OperationError::Refused(EditError::Missing { kind: ObjectKind::Bypass, .. })),
            "{undone:?}"
        );
    }
}

#[test]
fn what_does_not_stand_anyway_is_not_bypassed() {
    let contents = contents(Vec::new());
    for (binding, tenant, why) in [
        ("off", "acme", "it is disabled"),
        ("of-q", "acme", "its plugin is disabled"),
        ("gold", "acme", "lacks a label"),
        ("soft", "acme", "`disable`"),
        ("p@gone", "acme", "another tenant"),
        ("floor", "gone", "the tenant is disabled"),
    ] {
        let undone = asked(&contents, &glass(binding, tenant, Some(60)), true).expect_err(binding);
        let OperationError::Invalid(wrong) = undone else { panic!("{binding}: {undone:?}") };
        assert!(wrong[0].message.contains(why), "{binding}: {}", wrong[0].message);
        assert_eq!(wrong[0].object, Some((ObjectKind::Binding, binding.to_owned())));
    }
    let missing = |binding, tenant| match asked(&contents, &glass(binding, tenant, Some(60)), false) {
        Err(OperationError::Refused(EditError::Missing { kind, .. })) => kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing("nobody", "acme"), ObjectKind::Binding);
    assert_eq!(missing("floor", "stranger"), ObjectKind::Tenant);
    // A tenant that is served needn't be listed.
    let changes = asked(&contents, &glass("floor", "stranger", Some(60)), true).expect("granted");
    assert_eq!(&*changes[0].name, "floor@stranger");
}

#[test]
fn a_bypass_ends_with_its_binding_or_its_tenant_and_never_begins_with_another_of_that_name() {
    let later = "1970-01-01T00:10:00Z";
    let of = |binding: &str, tenant: &str| json!({ "binding": binding, "tenant": tenant, "until": later, "reason": "x" });
    let contents = contents(vec![
        (ObjectKind::Bypass, "floor@acme", of("floor", "acme")),
        (ObjectKind::Bypass, "floor@gone", of("floor", "gone")),
        (ObjectKind::Bypass, "left@acme", of("left", "acme")),
        (ObjectKind::Bypass, "soft@acme", of("soft", "acme")),
        (ObjectKind::Bypass, "soft@stranger", of("soft", "stranger")),
    ]);
    let change = |kind, name: &str, was_there: bool, is_there: bool| {
        let some =
            |is: bool| is.then(|| ObjectContent { owner: Owner::Api, spec: json!({ "name": name }).into() });
        Change { kind, name: name.into(), before: some(was_there), after: some(is_there) }
    };
    let ended = |changes: &[Change]| -> Vec<String> {
        let ended = outlived(&contents, changes);
        assert!(ended.iter().all(|change| change.kind == ObjectKind::Bypass && change.after.is_none()));
        assert!(ended.iter().all(|change| change.before.is_some()));
        ended.iter().map(|change| change.name.to_string()).collect()
    };
    assert_eq!(ended(&[change(ObjectKind::Binding, "floor", true, false)]), ["floor@acme", "floor@gone"]);
    assert_eq!(
        ended(&[change(ObjectKind::Tenant, "acme", true, false)]),
        ["floor@acme", "left@acme", "soft@acme"]
    );
    let both =
        [change(ObjectKind::Binding, "floor", true, false), change(ObjectKind::Tenant, "gone", true, false)];
    assert_eq!(ended(&both), ["floor@acme", "floor@gone"], "each once");
    assert_eq!(ended(&[change(ObjectKind::Binding, "left", false, true)]), ["left@acme"]);
    for other in [
        change(ObjectKind::Binding, "floor", true, true),
        change(ObjectKind::Tenant, "stranger", false, true),
        change(ObjectKind::Plugin, "floor", true, false),
    ] {
        assert!(ended(std::slice::from_ref(&other)).is_empty(), "{other:?}");
    }
}

fn change(kind: ObjectKind, name: &str, after: Option<Value>) -> Change {
    let after = after.map(|spec| ObjectContent { owner: Owner::Api, spec: spec.into() });
    Change { kind, name: name.into(), before: None, after }
}

fn rule(priority: u64) -> Option<Value> {
    Some(json!({ "name": "floor", "plugin": "p", "tenant": "*", "priority": priority }))
}

fn broken(until: &str) -> Change {
    change(ObjectKind::Bypass, "floor@acme", Some(bypass("floor", until)))
}

const LATE: &str = "2970-01-01T00:00:00Z";

#[test]
fn active_contents_take_the_newest_bypasses_of_the_same_objects() {
    let current = Arc::new(contents(Vec::new()));
    let next = |at: &Contents, changes: &[Change]| at.after(at.revision() + 1, changes).expect("right");
    let said = |contents: &Arc<Contents>| -> Vec<String> {
        assert_eq!(contents.revision(), 1);
        contents.bypasses().map(|(bypass, version)| format!("{} {version}", bypass.name())).collect()
    };
    let changed = next(&current, &[change(ObjectKind::Binding, "floor", rule(7))]);
    let begun = next(&changed, &[broken(LATE)]);
    let during = as_in(&begun, &current);
    assert_eq!(said(&during), ["floor@acme 3"], "changed, it is the same binding");
    assert!(Arc::ptr_eq(&as_in(&begun, &during), &during));
    assert_eq!(said(&as_in(&next(&begun, &[broken(LATE)]), &during)), ["floor@acme 4"]);
    let ended = next(&begun, &[change(ObjectKind::Bypass, "floor@acme", None)]);
    let after = as_in(&ended, &during);
    assert_eq!(said(&after), [""; 0]);

    // The binding is deleted, but it is still active, and so is the bypass unless it was ended before.
    let gone = [change(ObjectKind::Binding, "floor", None), change(ObjectKind::Bypass, "floor@acme", None)];
    assert_eq!(said(&as_in(&next(&begun, &gone), &during)), ["floor@acme 3"]);
    assert_eq!(said(&as_in(&next(&ended, &gone[..1]), &after)), [""; 0]);
    // A new binding of the same name has its own bypass, which doesn't affect the active one.
    let another = next(&next(&begun, &gone), &[change(ObjectKind::Binding, "floor", rule(1))]);
    let another = next(&another, &[broken(LATE)]);
    assert_eq!(said(&as_in(&another, &during)), ["floor@acme 3"]);
    assert_eq!(said(&as_in(&another, &current)), [""; 0]);
    // The same for a tenant.
    let gone = [change(ObjectKind::Tenant, "acme", None), change(ObjectKind::Bypass, "floor@acme", None)];
    let tenant = change(ObjectKind::Tenant, "acme", Some(json!({ "id": "acme" })));
    let another = next(&next(&begun, &gone), &[tenant, broken(LATE)]);
    assert_eq!(said(&as_in(&another, &current)), [""; 0]);
    assert_eq!(said(&as_in(&another, &during)), ["floor@acme 3"]);
    // After a full read, objects with the same version are recognised.
    let whole = |at: &Contents| Contents::read(at.snapshot()).expect("right").recalling(&current);
    assert_eq!(said(&as_in(&whole(&next(&current, &[broken(LATE)])), &current)), ["floor@acme 2"]);
    assert_eq!(said(&as_in(&whole(&another), &current)), [""; 0]);
}
