//! A simple model of the registry, derived from the stored objects. It shares no code with what it tests.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{Built, STRANGER, World};
use crate::{
    config::UnknownTenant,
    core::{
        manifest::Manifest,
        object::{ObjectKind, Owner},
        point::Point,
    },
    registry::Change,
    routing::TenantRoute,
    store::{ObjectContent, Snapshot},
};

/// A binding in a plan, with the tenant's config for it.
type ModelBinding = (String, Map<String, Value>);

/// Objects by kind and name.
type ModelObjects = BTreeMap<(ObjectKind, Arc<str>), ObjectContent>;

fn specs(objects: &Snapshot, kind: ObjectKind) -> impl Iterator<Item = Value> {
    objects.objects.iter().filter(move |object| object.kind == kind).map(|object| object.content.spec.value())
}

fn is_on(spec: &Value) -> bool {
    spec.get("enabled") != Some(&Value::Bool(false))
}

/// The steps of the tenant `id` at `point`, in order; `None` if the tenant isn't served.
fn expected(
    there: &Snapshot,
    manifests: &BTreeMap<String, Arc<Manifest>>,
    accepts: bool,
    (id, point): (&str, Point),
) -> Option<Vec<ModelBinding>> {
    let tenant = specs(there, ObjectKind::Tenant).find(|tenant| tenant["id"] == id);
    if tenant.as_ref().map_or(!accepts, |tenant| !is_on(tenant)) {
        return None;
    }
    let tenant = tenant.unwrap_or_default();
    let plugins: Vec<_> = specs(there, ObjectKind::Plugin).collect();
    let stands = |binding: &Value| {
        let plugin = plugins.iter().find(|plugin| plugin["name"] == binding["plugin"]);
        let is_for = match (binding.get("tenant"), binding.get("selector")) {
            (Some(Value::String(whose)), _) => whose == "*" || whose == id,
            (_, Some(Value::Object(labels))) => {
                labels.iter().all(|(key, value)| tenant["labels"].get(key) == Some(value))
            }
            other => panic!("for no tenant: {other:?}"),
        };
        let disabled = tenant["disable"].as_array().is_some_and(|list| list.contains(&binding["name"]));
        let is_at = match (
            binding.get("points").and_then(Value::as_array),
            manifests.get(binding["plugin"].as_str().expect("a name")),
        ) {
            (Some(points), _) => points.iter().any(|listed| listed == point.as_str()),
            (None, Some(manifest)) => manifest.offers[point.index()].is_some(),
            (None, None) => {
                let consent = plugin.map(|plugin| &plugin["accepted"]["points"]);
                consent.is_none_or(|points| points.is_null() || points[point.as_str()].is_object())
            }
        };
        let may_be_disabled = binding.get("overridable") == Some(&Value::Bool(true));
        is_on(binding) && plugin.is_some_and(is_on) && is_for && is_at && !(disabled && may_be_disabled)
    };
    let mut standing: Vec<_> = specs(there, ObjectKind::Binding).filter(stands).collect();
    standing.sort_by_key(|binding| binding["priority"].as_i64());
    let one = |binding: Value| {
        let mut config = binding.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
        let own = tenant["config"].get(binding["plugin"].as_str().expect("a name"));
        config.extend(own.and_then(Value::as_object).cloned().unwrap_or_default());
        (binding["name"].as_str().expect("a name").to_owned(), config)
    };
    Some(standing.into_iter().map(one).collect())
}

/// Checks that every tenant's plans are what its entries say.
pub(super) fn check_plans(world: &World, built: &Built, there: &Snapshot) -> Result<(), TestCaseError> {
    let accepts = built.config.tenants.unknown == UnknownTenant::Accept;
    let listed =
        specs(there, ObjectKind::Tenant).map(|tenant| tenant["id"].as_str().expect("an id").to_owned());
    for id in listed.chain([STRANGER.to_owned()]) {
        let id = id.as_str();
        for point in Point::ALL {
            let found = match built.table.tenant(id) {
                TenantRoute::Known(plans) => Some(&plans.plan(point).steps),
                TenantRoute::Disabled | TenantRoute::Unknown => None,
            };
            let one = |step: &crate::routing::Step| -> ModelBinding {
                let config = serde_json::from_slice(&step.tenant_config).expect("an object");
                (step.binding.to_string(), config)
            };
            let found = found.map(|steps| steps.iter().map(one).collect());
            let expected = expected(there, &world.process.manifests, accepts, (id, point));
            prop_assert_eq!(found, expected, "{} {}", id, point);
        }
    }
    Ok(())
}

fn state(snapshot: &Snapshot) -> ModelObjects {
    let one =
        |object: &crate::store::Object| ((object.kind, Arc::clone(&object.name)), object.content.clone());
    snapshot.objects.iter().map(one).collect()
}

/// Checks a rollback from `before` to `then`: the API's objects are as they were, and the file's are
/// unchanged.
pub(super) fn check_back(then: &Snapshot, before: &Snapshot, after: &Snapshot) -> Result<(), TestCaseError> {
    let of = |snapshot: &Snapshot, owner: Owner| -> ModelObjects {
        let mut state = state(snapshot);
        state.retain(|_, content| content.owner == owner);
        state
    };
    let mut expected = of(then, Owner::Api);
    expected.extend(of(before, Owner::File));
    prop_assert_eq!(state(after), expected, "back to {}", then.revision);
    Ok(())
}

/// Checks that the reported difference between `then` and `now` is the real one.
pub(super) fn check_difference(
    then: &Snapshot,
    now: &Snapshot,
    said: &[Change],
) -> Result<(), TestCaseError> {
    let (mut state, now) = (state(then), state(now));
    for change in said {
        let key = (change.kind, Arc::clone(&change.name));
        prop_assert_ne!(&change.before, &change.after, "nothing changes");
        prop_assert_eq!(state.get(&key), change.before.as_ref(), "it was something else");
        match &change.after {
            Some(after) => drop(state.insert(key, after.clone())),
            None => drop(state.remove(&key)),
        }
    }
    prop_assert_eq!(state, now, "from {}", then.revision);
    Ok(())
}
