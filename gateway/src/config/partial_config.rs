//! The typed parts of a file with mistakes, so that the checks can find further mistakes in the rest. Values
//! that don't fit the schema are left out, and the entries that contained them are marked, so that no check
//! reports consequences.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    config::{
        auth::Issuer,
        egress_policy::{Egress, Secrets},
        llm::{LlmLimits, ModelRule, ModelUpstream},
        model::{Drain, Limits, Observers, Startup, Store, Telemetry, Tenant, Tenants, UnknownTenant},
        plugin::{Binding, Plugin},
        problem::item,
        schema::{self, Schema},
        server::Server,
    },
    json::pointer::{self, child},
};

/// One entry of a list.
pub(super) struct PartialEntry<T> {
    /// The pointer to the entry.
    pub(super) pointer: String,
    /// `None` if the entry isn't even a mapping.
    pub(super) value: Option<T>,
    /// The name that other entries use for it, known even if the entry has other mistakes.
    pub(super) id: Option<String>,
    /// Whether anything in the entry was left out.
    pub(super) tainted: bool,
}

/// The readable part of `llm`.
pub(super) struct PartialLlm {
    /// Whether models can't be named: nothing is listed, and there is no registry. False if that can't be read.
    pub(super) lists_nothing: bool,
    pub(super) upstreams: Vec<PartialEntry<ModelUpstream>>,
    pub(super) models: Vec<PartialEntry<ModelRule>>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) limits: Option<LlmLimits>,
}

/// The readable part of a configuration.
pub(super) struct PartialConfig {
    pub(super) server: Option<Server>,
    pub(super) issuers: Vec<PartialEntry<Issuer>>,
    pub(super) tenants: Vec<PartialEntry<Tenant>>,
    /// Whether no tenant is listed and unlisted ones are refused. False if that can't be read.
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
    pub(super) llm: PartialLlm,
    pub(super) block_status: BTreeMap<String, u16>,
    /// Pointers to placeholders for missing or wrong values. Nothing is reported about them.
    pub(super) placeholders: BTreeSet<String>,
}

impl PartialConfig {
    /// Reads `root` without the values at `misfits`.
    pub(super) fn new(root: &Value, misfits: &BTreeSet<String>, schema: &Schema) -> Self {
        let mut placeholders = BTreeSet::new();
        PartialConfig {
            server: section(root, "/server", misfits),
            issuers: list(root, "/auth/issuers", "issuer", misfits, schema, &mut placeholders),
            tenants: list(root, "/tenants/list", "id", misfits, schema, &mut placeholders),
            // With a store, tenants may come from elsewhere.
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
            llm: PartialLlm {
                lists_nothing: lists_no_models(root, misfits),
                upstreams: list(root, "/llm/upstreams", "name", misfits, schema, &mut placeholders),
                models: list(root, "/llm/models", "match", misfits, schema, &mut placeholders),
                allow: section(root, "/llm/allow", misfits),
                limits: section(root, "/llm/limits", misfits),
            },
            block_status: section(root, "/block_status", misfits).unwrap_or_default(),
            placeholders,
        }
    }
}

fn lists_no_models(root: &Value, misfits: &BTreeSet<String>) -> bool {
    let Some(llm) = root.get("llm") else { return false };
    let is_empty = |key| llm.get(key).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty));
    root.get("store").is_none()
        && !misfits.iter().any(|misfit| misfit.starts_with("/llm"))
        && (is_empty("upstreams") || is_empty("models"))
}

/// The settings at `pointer`, with defaults if they are absent. Returns `None` if they can't be read.
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

/// Adds placeholders of the right type for a mapping's missing mandatory keys, and returns their pointers.
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

/// `value`, which is at `pointer`, without the values at `misfits`. Also returns whether there were any.
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

/// Removes the value at `pointer` by removing the key of the innermost mapping on the way there, so that list
/// indices don't change.
fn remove(value: &mut Value, pointer: &str) {
    let keys: Vec<_> = pointer::keys(pointer).collect();
    for depth in (0..keys.len()).rev() {
        let above = keys[..depth].iter().fold(String::new(), |above, key| child(&above, key));
        if let Some(Value::Object(members)) = value.pointer_mut(&above) {
            members.remove(&*keys[depth]);
            return;
        }
    }
}
