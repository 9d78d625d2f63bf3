//! The typed parts of a file that may hold mistakes, so that checks find the rest of them in the same go. What
//! doesn't fit the schema is left out, and what it stood in is marked, so that no check reports its consequences.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{
    auth::Issuer,
    egress_policy::{Egress, Secrets},
    model::{Drain, Limits, Observers, Server, Startup, Store, Telemetry, Tenant, Tenants, UnknownTenant},
    plugin::{Binding, Plugin},
    problem::item,
    schema::{self, Schema},
    tree::{child, pointer_segments},
};

/// One entry of a list.
pub(super) struct PartialEntry<T> {
    /// Where it stands.
    pub(super) pointer: String,
    /// Absent where it isn't even a mapping.
    pub(super) value: Option<T>,
    /// What the others call it, whatever else is wrong with it.
    pub(super) id: Option<String>,
    /// Whether anything in it was left out.
    pub(super) tainted: bool,
}

/// A configuration as far as it can be read.
pub(super) struct PartialConfig {
    pub(super) server: Option<Server>,
    pub(super) issuers: Vec<PartialEntry<Issuer>>,
    pub(super) tenants: Vec<PartialEntry<Tenant>>,
    /// Whether no tenant is listed and the others are refused; false where that can't be read.
    pub(super) refuses_everybody: bool,
    pub(super) plugins: Vec<PartialEntry<Plugin>>,
    pub(super) bindings: Vec<PartialEntry<Binding>>,
    pub(super) limits: Option<Limits>,
    pub(super) drain: Option<Drain>,
    pub(super) observers: Option<Observers>,
    pub(super) startup: Option<Startup>,
    pub(super) telemetry: Option<Telemetry>,
    pub(super) store: Option<Store>,
    pub(super) egress: Option<Egress>,
    pub(super) secrets: Option<Secrets>,
    pub(super) block_status: BTreeMap<String, u16>,
    /// Where something stands in for a value that is missing or wrong; nothing is to be said of it.
    pub(super) placeholders: BTreeSet<String>,
}

impl PartialConfig {
    /// Reads what can be read of `root`, the values at `misfits` left out.
    pub(super) fn new(root: &Value, misfits: &BTreeSet<String>, schema: &Schema) -> Self {
        let mut placeholders = BTreeSet::new();
        PartialConfig {
            server: section(root, "/server", misfits),
            issuers: list(root, "/auth/issuers", "issuer", misfits, schema, &mut placeholders),
            tenants: list(root, "/tenants/list", "id", misfits, schema, &mut placeholders),
            // With a store tenants may come from elsewhere.
            refuses_everybody: root.get("store").is_none()
                && !misfits.iter().any(|misfit| misfit.starts_with("/tenants"))
                && section::<Tenants>(root, "/tenants", misfits).is_some_and(|tenants| {
                    tenants.list.is_empty() && tenants.unknown == UnknownTenant::Refuse
                }),
            plugins: list(root, "/plugins", "name", misfits, schema, &mut placeholders),
            bindings: list(root, "/bindings", "name", misfits, schema, &mut placeholders),
            limits: section(root, "/limits", misfits),
            drain: section(root, "/drain", misfits),
            observers: section(root, "/observers", misfits),
            startup: section(root, "/startup", misfits),
            telemetry: section(root, "/telemetry", misfits),
            store: root.get("store").and_then(|_| section(root, "/store", misfits)),
            egress: section(root, "/egress", misfits),
            secrets: section(root, "/secrets", misfits),
            block_status: section(root, "/block_status", misfits).unwrap_or_default(),
            placeholders,
        }
    }
}

/// The settings at `pointer`, defaults where there are none; `None` where they can't be read.
fn section<T: DeserializeOwned + Default>(
    root: &Value,
    pointer: &str,
    misfits: &BTreeSet<String>,
) -> Option<T> {
    match root.pointer(pointer) {
        None => Some(T::default()),
        Some(value) => serde_json::from_value(without(value, pointer, misfits).0).ok(),
    }
}

fn list<T: DeserializeOwned>(
    root: &Value,
    pointer: &str,
    id: &str,
    misfits: &BTreeSet<String>,
    schema: &Schema,
    placeholders: &mut BTreeSet<String>,
) -> Vec<PartialEntry<T>> {
    let entries = root.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let read = |(index, value): (usize, &Value)| {
        let pointer = item(pointer, index);
        let (mut value, tainted) = without(value, &pointer, misfits);
        let id = value.get(id).and_then(Value::as_str).map(str::to_owned);
        placeholders.extend(complete(&mut value, &pointer, schema));
        PartialEntry { pointer, id, value: serde_json::from_value(value).ok(), tainted }
    };
    entries.iter().enumerate().map(read).collect()
}

/// Puts a value of the right type where a mapping lacks one that it must have, and says where.
fn complete(value: &mut Value, pointer: &str, schema: &Schema) -> Vec<String> {
    let place = schema.at(pointer).unwrap_or(&Value::Null);
    let (Some(members), Some(required)) = (value.as_object_mut(), place["required"].as_array()) else {
        return Vec::new();
    };
    let mut added = Vec::new();
    for key in required.iter().filter_map(Value::as_str) {
        if !members.contains_key(key) {
            let number = schema::types(&place["properties"][key]).contains(&"integer");
            members.insert(key.to_owned(), if number { Value::from(0) } else { Value::from("") });
            added.push(child(pointer, key));
        }
    }
    added
}

/// `value`, which stands at `pointer`, less what stands at `misfits`; and whether there was any.
fn without(value: &Value, pointer: &str, misfits: &BTreeSet<String>) -> (Value, bool) {
    let inside = child(pointer, "");
    let mut value = value.clone();
    let mut tainted = misfits.contains(pointer);
    for misfit in misfits.range(inside.clone()..).take_while(|misfit| misfit.starts_with(&inside)) {
        tainted = true;
        remove(&mut value, &misfit[pointer.len()..]);
    }
    (value, tainted)
}

/// Removes what stands at `pointer`: the key of the innermost mapping on the way there, so that the indices of
/// lists stay what they are.
fn remove(value: &mut Value, pointer: &str) {
    let segments: Vec<String> = pointer_segments(pointer).collect();
    for depth in (0..segments.len()).rev() {
        let above = segments[..depth].iter().fold(String::new(), |above, segment| child(&above, segment));
        if let Some(Value::Object(members)) = value.pointer_mut(&above) {
            members.remove(&segments[depth]);
            return;
        }
    }
}
