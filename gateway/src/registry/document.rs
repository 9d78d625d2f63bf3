//! Documents: several objects that are applied together or not at all. An object that is missing from the
//! document stays, because a truncated document must not delete anything. What is to be deleted is named.
//! Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    Contents, Entry,
    edit::{self, Edit, EditAction},
    operations::Invalid,
};
use crate::{
    core::{
        error::Violation,
        object::{ObjectKind, Owner},
    },
    store::{Change, Object},
};

/// A document to apply.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApplyDocument {
    /// Plugins, as in the file.
    pub plugins: Vec<Value>,
    /// Tenants, as in the file.
    pub tenants: Vec<Value>,
    /// Bindings, as in the file.
    pub bindings: Vec<Value>,
    /// Providers of models, as in `llm.upstreams` of the file.
    pub upstreams: Vec<Value>,
    /// Rules for models, as in `llm.models` of the file.
    pub models: Vec<Value>,
    /// Objects to delete.
    pub remove: Vec<NamedObject>,
    /// Deletes further objects; see [`Prune`].
    pub prune: Option<LabelSet>,
    /// The versions that objects must have now; 0 means that they must not exist. Unlisted objects may have
    /// any.
    pub versions: ExpectedVersions,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedObject {
    pub kind: ObjectKind,
    pub name: String,
}

/// Selects the objects that have all of these labels.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `labels`")]
pub struct LabelSet {
    /// At least one.
    pub labels: BTreeMap<String, String>,
}

/// Deletes the objects with these labels that the API owns and the document doesn't contain.
#[derive(Debug, Clone)]
pub struct Prune {
    labels: BTreeMap<String, String>,
    with_bindings: bool,
}

impl Prune {
    /// The edits that the prune requires in `contents`, besides `edits`.
    pub(super) fn edits(&self, contents: &Contents, edits: &[Edit]) -> Vec<Edit> {
        let named: BTreeSet<_> = edits.iter().map(|edit| (edit.kind, edit.name.as_str())).collect();
        let is_left_over = |entry: &&Arc<Entry>| {
            let Object { kind, name, .. } = &entry.object;
            self.is_about(entry) && !named.contains(&(*kind, &**name))
        };
        let gone = |entry: &Arc<Entry>| Edit {
            kind: entry.object.kind,
            name: entry.object.name.to_string(),
            expected: None,
            wish: EditAction::Gone { with_bindings: self.with_bindings },
        };
        contents.entries().iter().filter(is_left_over).map(gone).collect()
    }

    /// Whether the API owns the object and it has the labels.
    fn is_about(&self, entry: &Entry) -> bool {
        let is_labelled = || self.labels.iter().all(|(key, value)| entry.is_labelled(key, value));
        entry.object.content.owner == Owner::Api && is_labelled()
    }

    /// The labels in words.
    fn words(&self) -> String {
        let labels: Vec<_> = self.labels.iter().map(|(key, value)| format!("`{key}={value}`")).collect();
        format!("label{} {}", if labels.len() == 1 { "" } else { "s" }, labels.join(", "))
    }

    /// The first of the labels that `spec` lacks.
    fn missing(&self, spec: &Value) -> Option<String> {
        let is_there = |(key, value): &(&String, &String)| spec["labels"][key.as_str()] == value.as_str();
        let missing = self.labels.iter().find(|label| !is_there(label));
        missing.map(|(key, value)| format!("{key}={value}"))
    }
}

/// Improves the errors about objects that name a deleted one: says which of `changes` deletes it, and why.
pub(super) fn explain(wrong: &mut [Invalid], contents: &Contents, changes: &[Change], prune: Option<&Prune>) {
    let change =
        |kind, name: &str| changes.iter().find(|change| change.kind == kind && *change.name == *name);
    for Invalid { object, pointer, message } in wrong {
        let Some((kind, name)) = object else { continue };
        let deleted_kind = match (&*kind, pointer.as_str()) {
            (ObjectKind::Binding, "/tenant") => ObjectKind::Tenant,
            (ObjectKind::Model, "/upstream") => ObjectKind::Upstream,
            _ => continue,
        };
        let now = || contents.get(*kind, name).map(|entry| &entry.object.content);
        let content = change(*kind, name).map_or_else(now, |change| change.after.as_ref());
        let spec = content.map(|content| content.spec.value());
        let Some(deleted) = spec.as_ref().and_then(|spec| spec.pointer(pointer)?.as_str()) else { continue };
        if change(deleted_kind, deleted).is_none_or(|change| change.after.is_some()) {
            continue;
        }
        let pruned = prune
            .filter(|prune| contents.get(deleted_kind, deleted).is_some_and(|entry| prune.is_about(entry)));
        let goes = match pruned {
            Some(prune) => {
                format!("pruned, because it has the {} and isn't listed here", prune.words())
            }
            None => "removed".to_owned(),
        };
        *message = format!(
            "{deleted_kind} `{deleted}` would be {goes}, but {kind} `{name}` names it: keep the {deleted_kind}, or also \
             remove or change the {kind}"
        );
    }
}

/// Expected versions by name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedVersions {
    pub plugins: BTreeMap<String, u64>,
    pub tenants: BTreeMap<String, u64>,
    pub bindings: BTreeMap<String, u64>,
    pub upstreams: BTreeMap<String, u64>,
    pub models: BTreeMap<String, u64>,
}

/// The place of each object in the document, as a JSON pointer.
pub type DocumentPointers = BTreeMap<(ObjectKind, String), String>;

/// The name of the member that lists objects of a kind.
pub const fn plural(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Plugin => "plugins",
        ObjectKind::Tenant => "tenants",
        ObjectKind::Binding => "bindings",
        ObjectKind::Upstream => "upstreams",
        ObjectKind::Model => "models",
        ObjectKind::Bypass => "bypasses",
    }
}

/// The edits that a document requires.
#[derive(Debug)]
pub struct DocumentEdits {
    /// One edit for each object.
    pub edits: Vec<Edit>,
    /// See [`Prune`].
    pub prune: Option<Prune>,
    pub places: DocumentPointers,
}

impl ApplyDocument {
    /// Converts the document to edits. `with_bindings`: see [`EditAction::Gone`].
    ///
    /// # Errors
    /// An object without a name, a duplicate, an object without the labels of `prune`, or a version of an
    /// object that isn't in the document.
    pub fn wishes(self, with_bindings: bool) -> Result<DocumentEdits, Vec<Violation>> {
        let ApplyDocument { plugins, tenants, bindings, upstreams, models, remove, prune, versions } = self;
        let prune = prune.map(|LabelSet { labels }| Prune { labels, with_bindings });
        let lists = [
            (ObjectKind::Plugin, plugins, versions.plugins),
            (ObjectKind::Tenant, tenants, versions.tenants),
            (ObjectKind::Binding, bindings, versions.bindings),
            (ObjectKind::Upstream, upstreams, versions.upstreams),
            (ObjectKind::Model, models, versions.models),
        ];
        let (mut wishes, mut versions, mut wrong) = (Vec::new(), BTreeMap::new(), Vec::new());
        if prune.as_ref().is_some_and(|prune| prune.labels.is_empty()) {
            let why = "`prune` needs at least one label; list single objects in `remove`";
            wrong.push(Violation::new("/prune/labels", why.to_owned()));
        }
        for (kind, specs, expected) in lists {
            versions.extend(expected.into_iter().map(|(name, version)| ((kind, name), version)));
            for (at, spec) in specs.into_iter().enumerate() {
                let place = format!("/{}/{at}", plural(kind));
                if let Some(label) = prune.as_ref().and_then(|prune| prune.missing(&spec)) {
                    let why = format!(
                        "The {kind} lacks the label `{label}`: without it the {kind} would not be pruned once it is \
                         no longer listed"
                    );
                    wrong.push(Violation::new(format!("{place}/labels"), why));
                }
                match edit::name(kind, &spec) {
                    Some(name) => wishes.push((kind, name, place, EditAction::Be(spec))),
                    None => wrong.push(Violation::new(place, format!("The {kind} has no name"))),
                }
            }
        }
        wishes.extend(remove.into_iter().enumerate().map(|(at, NamedObject { kind, name })| {
            (kind, name, format!("/remove/{at}"), EditAction::Gone { with_bindings })
        }));
        let (mut edits, mut places) = (Vec::new(), DocumentPointers::new());
        for (kind, name, place, wish) in wishes {
            if kind == ObjectKind::Bypass {
                let why = "A document can't end a bypass: delete the bypass of the binding and the tenant";
                wrong.push(Violation::new(place, why.to_owned()));
                continue;
            }
            if !edit::can_be_name(&name) {
                wrong.push(Violation::new(place, edit::right_name(kind)));
                continue;
            }
            if let Some(first) = places.insert((kind, name.clone()), place.clone()) {
                wrong.push(Violation::new(place, format!("The {kind} is already listed at {first}")));
                continue;
            }
            let expected = versions.remove(&(kind, name.clone()));
            edits.push(Edit { kind, name, expected, wish });
        }
        wrong.extend(versions.into_keys().map(|(kind, name)| {
            let mut pointer = format!("/versions/{}", plural(kind));
            crate::json::pointer::push_key(&mut pointer, &name);
            Violation::new(pointer, format!("The document does not list this {kind}"))
        }));
        if wrong.is_empty() { Ok(DocumentEdits { edits, prune, places }) } else { Err(wrong) }
    }
}
