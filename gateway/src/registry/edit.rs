//! Edits to objects, and the changes that they require. Pure: authorization and validation of the whole
//! contents are done elsewhere.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    config::{self, BINDINGS, Consent, MODELS, PLUGINS, Problem, TENANTS, UPSTREAMS},
    core::object::{ObjectKind, Owner},
    registry::{Contents, Entry, TypedObject, consent, masking},
    store::{Change, Object, ObjectContent},
};

/// The maximum length of a write's reason, in bytes.
pub const MAX_REASON: usize = 500;
/// The maximum length of an object's name, in bytes.
const MAX_NAME: usize = 256;

/// Whether an object may have this name. Other names need not be looked up.
pub fn can_be_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Describes the valid names in words.
pub fn right_name(kind: ObjectKind) -> String {
    let name = if kind == ObjectKind::Tenant { "id" } else { "name" };
    format!("The {name} of a {kind} must have 1 to {MAX_NAME} bytes, and no control characters")
}

pub fn can_be_reason(text: &str) -> bool {
    text.len() <= MAX_REASON && !text.chars().any(char::is_control)
}

/// An edit of one object.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The object's kind.
    pub kind: ObjectKind,
    /// The object's name.
    pub name: String,
    /// A precondition: the object's current version, where 0 means that it must not exist. `None` accepts
    /// any.
    pub expected: Option<u64>,
    pub wish: EditAction,
}

/// The action of an edit.
#[derive(Debug, Clone)]
pub enum EditAction {
    /// Create the object, or replace it as a whole, with an entry as in the file. A plugin's consent stays
    /// unless the entry sets it.
    Be(Value),
    /// Replace these members and remove those that are null (RFC 7396). The object must exist.
    Merge(Value),
    /// Consent to this manifest of a plugin and grant what it asks for. The plugin must exist.
    Accept(Consent),
    /// Delete the object. It must exist.
    Gone {
        /// Delete a plugin together with its bindings. If false, a plugin with bindings is not deleted.
        with_bindings: bool,
    },
}

/// Why an edit is not possible.
#[derive(Debug, Clone, PartialEq)]
pub enum EditError {
    Missing {
        kind: ObjectKind,
        name: String,
    },
    /// The object's version is not the expected one.
    Version {
        kind: ObjectKind,
        name: String,
        /// Its version; 0 if it doesn't exist.
        current: u64,
        expected: u64,
    },
    /// The registry is not at the expected revision.
    Revision {
        current: u64,
        expected: u64,
    },
    /// The file owns the object.
    OfFile {
        kind: ObjectKind,
        name: String,
    },
    /// The plugin can't be deleted because bindings name it.
    InUse {
        name: String,
        /// At least one.
        bindings: Vec<String>,
    },
    /// The object is invalid in itself. Pointers begin at the object.
    Wrong {
        kind: ObjectKind,
        name: String,
        /// At least one.
        problems: Vec<Problem>,
    },
}

/// The configuration's list for objects of a kind, and the member with their name. Returns `None` for
/// bypasses, which can't be edited.
const fn list(kind: ObjectKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ObjectKind::Plugin => Some((PLUGINS, "name")),
        ObjectKind::Tenant => Some((TENANTS, "id")),
        ObjectKind::Binding => Some((BINDINGS, "name")),
        ObjectKind::Upstream => Some((UPSTREAMS, "name")),
        ObjectKind::Model => Some((MODELS, "name")),
        ObjectKind::Bypass => None,
    }
}

/// The changes in `contents` that `edits` require; empty if there are none.
///
/// # Errors
/// The first edit that is not possible.
pub fn changes(contents: &Contents, edits: &[Edit]) -> Result<Vec<Change>, EditError> {
    let mut changes = BTreeMap::new();
    for edit in edits {
        let before = contents.get(edit.kind, &edit.name).map(|entry| &entry.object);
        if let Some(change) = change(edit, before)? {
            changes.insert((edit.kind, Arc::clone(&change.name)), change);
        }
    }
    for edit in edits {
        if let (ObjectKind::Plugin, EditAction::Gone { with_bindings }) = (edit.kind, &edit.wish) {
            release(contents, &edit.name, *with_bindings, &mut changes)?;
        }
    }
    Ok(changes.into_values().collect())
}

type Changes = BTreeMap<(ObjectKind, Arc<str>), Change>;

/// Deletes the bindings of the plugin `name` along with it, if that is allowed.
fn release(
    contents: &Contents,
    name: &str,
    with_bindings: bool,
    changes: &mut Changes,
) -> Result<(), EditError> {
    let mut bindings: BTreeMap<Arc<str>, Option<&ObjectContent>> = BTreeMap::new();
    for Entry { object, typed, .. } in contents.entries().iter().map(|entry| &**entry) {
        let names_it = matches!(typed, TypedObject::Binding(binding) if binding.plugin == name);
        if names_it && !changes.contains_key(&(ObjectKind::Binding, Arc::clone(&object.name))) {
            bindings.insert(Arc::clone(&object.name), Some(&object.content));
        }
    }
    // A binding that the same write creates or changes would name a missing plugin, so delete it too.
    let names_it = |content: &ObjectContent| content.spec.value()["plugin"] == *name;
    let written = changes.values().filter(|change| change.kind == ObjectKind::Binding);
    for change in written.filter(|change| change.after.as_ref().is_some_and(names_it)) {
        bindings.insert(Arc::clone(&change.name), None);
    }
    if bindings.is_empty() {
        return Ok(());
    }
    if !with_bindings || bindings.values().any(Option::is_none) {
        let bindings = bindings.into_keys().map(|name| name.to_string()).collect();
        return Err(EditError::InUse { name: name.to_owned(), bindings });
    }
    for (name, before) in bindings {
        if before.is_some_and(|before| before.owner == Owner::File) {
            return Err(EditError::OfFile { kind: ObjectKind::Binding, name: name.to_string() });
        }
        let key = (ObjectKind::Binding, Arc::clone(&name));
        changes.insert(key, Change { kind: ObjectKind::Binding, name, before: before.cloned(), after: None });
    }
    Ok(())
}

fn change(edit: &Edit, before: Option<&Object>) -> Result<Option<Change>, EditError> {
    let (kind, name) = (edit.kind, &edit.name);
    let missing = || EditError::Missing { kind, name: name.clone() };
    let current = before.map_or(0, |object| object.version);
    if let Some(expected) = edit.expected.filter(|expected| *expected != current) {
        // An object that never existed has no version to compare.
        return Err(if current == 0 && !matches!(edit.wish, EditAction::Be(_)) {
            missing()
        } else {
            EditError::Version { kind, name: name.clone(), current, expected }
        });
    }
    if before.is_some_and(|object| object.content.owner == Owner::File) {
        return Err(EditError::OfFile { kind, name: name.clone() });
    }
    let before = before.map(|object| object.content.clone());
    let after = match &edit.wish {
        EditAction::Gone { .. } => {
            before.as_ref().ok_or_else(missing)?;
            None
        }
        EditAction::Be(spec) => {
            let mut spec = spec.clone();
            if kind == ObjectKind::Plugin {
                consent::keep(&mut spec, before.as_ref().map(|before| before.spec.value()).as_ref());
            }
            Some(spec)
        }
        EditAction::Accept(accepted) => {
            let mut spec = before.as_ref().ok_or_else(missing)?.spec.value();
            consent::give(&mut spec, accepted);
            Some(spec)
        }
        EditAction::Merge(patch) => {
            let mut spec = before.as_ref().ok_or_else(missing)?.spec.value();
            merge(&mut spec, patch);
            Some(spec)
        }
    };
    let after = after.map(|spec| right(edit, spec, before.as_ref())).transpose()?;
    if before == after {
        return Ok(None);
    }
    Ok(Some(Change { kind, name: name.as_str().into(), before, after }))
}

/// Validates an object by itself and returns it as it is stored.
fn right(edit: &Edit, mut spec: Value, before: Option<&ObjectContent>) -> Result<ObjectContent, EditError> {
    let (kind, name) = (edit.kind, edit.name.as_str());
    let Some((list, member)) = list(kind) else {
        return Err(EditError::Missing { kind, name: name.to_owned() });
    };
    let mut problems = Vec::new();
    if let Some(members) = spec.as_object_mut() {
        match members.get(member) {
            // The default name need not be written.
            None if default_name(kind, members).is_some_and(|default| default == name) => {}
            None => drop(members.insert(member.to_owned(), name.into())),
            Some(written) if *written == name => {}
            Some(_) => problems.push(
                Problem::new(
                    format!("/{member}"),
                    format!("`{member}` is not the name of the written {kind}"),
                )
                .remedy(format!("write `{name}`, or leave it out")),
            ),
        }
    }
    if kind == ObjectKind::Plugin {
        let was = before.map(|content| content.spec.value());
        problems.extend(masking::restore(&mut spec, was.as_ref()));
    }
    problems.extend(masking::misplaced_references(kind, &spec));
    if problems.is_empty() {
        problems = config::check_object(list, &spec);
    }
    if problems.is_empty() {
        return Ok(ObjectContent { owner: Owner::Api, spec: spec.into() });
    }
    Err(EditError::Wrong { kind, name: name.to_owned(), problems })
}

/// The name in an object's spec, or the default name of its kind.
pub fn name(kind: ObjectKind, spec: &Value) -> Option<String> {
    let (members, (_, member)) = (spec.as_object()?, list(kind)?);
    match members.get(member) {
        Some(name) => name.as_str().map(str::to_owned),
        None => default_name(kind, members),
    }
}

/// The name of a binding or a rule for models that doesn't say one. Other kinds always do.
fn default_name(kind: ObjectKind, spec: &serde_json::Map<String, Value>) -> Option<String> {
    let text = |member: &str| spec.get(member).and_then(Value::as_str);
    match kind {
        ObjectKind::Binding => Some(config::default_binding_name(text("plugin")?, text("tenant"))),
        ObjectKind::Model => Some(config::default_model_name(text("match")?, text("upstream")?)),
        ObjectKind::Plugin | ObjectKind::Tenant | ObjectKind::Upstream | ObjectKind::Bypass => None,
    }
}

/// Applies a merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(members) = target {
        for (key, value) in patch {
            if value.is_null() {
                members.remove(key);
            } else {
                merge(members.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
