//! What an operator wants of the registry, and what has to change for it. Pure: who may ask, and whether the whole is right
//! afterwards, is decided elsewhere.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    config::{self, BINDINGS, Consent, PLUGINS, Problem, TENANTS},
    core::object::{ObjectKind, Owner},
    registry::{Contents, Entry, TypedObject, consent, masking},
    store::{Change, Object, ObjectContent},
};

/// Longest reason of a write, in bytes.
pub const MAX_REASON: usize = 500;
/// Longest name of an object, in bytes.
const MAX_NAME: usize = 256;

/// Whether any object may be called so: what can't be a name is not looked for.
pub fn can_be_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The same in words.
pub fn right_name(kind: ObjectKind) -> String {
    let name = if kind == ObjectKind::Tenant { "id" } else { "name" };
    format!("The {name} of a {kind} must have 1 to {MAX_NAME} bytes, and no control characters")
}

/// Whether a write may have this reason.
pub fn can_be_reason(text: &str) -> bool {
    text.len() <= MAX_REASON && !text.chars().any(char::is_control)
}

/// One wish.
#[derive(Debug, Clone)]
pub struct Edit {
    /// What it is about.
    pub kind: ObjectKind,
    /// The object's name.
    pub name: String,
    /// The version that it is to have now, 0: it must not be there. None: whatever it has.
    pub expected: Option<u64>,
    /// What it is to be.
    pub wish: EditAction,
}

/// What an object is to be.
#[derive(Debug, Clone)]
pub enum EditAction {
    /// As this says, as an entry of the file would: created, or replaced as a whole. What of a plugin's manifest was
    /// consented to stays, unless it says otherwise.
    Be(Value),
    /// With these members of it replaced, null: taken out (RFC 7396). It must be there.
    Merge(Value),
    /// A plugin with this manifest consented to, and granted what it asks for. It must be there.
    Accept(Consent),
    /// Gone. It must be there.
    Gone {
        /// The bindings of a plugin go with it; otherwise it stays as long as there are any.
        with_bindings: bool,
    },
}

/// Why a wish can't be granted.
#[derive(Debug, Clone, PartialEq)]
pub enum EditError {
    /// There is no such object.
    Missing {
        /// Of this kind.
        kind: ObjectKind,
        /// By this name.
        name: String,
    },
    /// It has another version than the writer knows.
    Version {
        /// What it is.
        kind: ObjectKind,
        /// Its name.
        name: String,
        /// Its version; 0: it isn't there.
        current: u64,
        /// What was expected.
        expected: u64,
    },
    /// The registry is at another revision than the writer knows.
    Revision {
        /// Its last one.
        current: u64,
        /// What was expected.
        expected: u64,
    },
    /// The file owns it.
    OfFile {
        /// What it is.
        kind: ObjectKind,
        /// Its name.
        name: String,
    },
    /// A plugin is to go that bindings name.
    InUse {
        /// Its name.
        name: String,
        /// Names of the bindings; at least one.
        bindings: Vec<String>,
    },
    /// It is not right by itself; pointers begin at the object.
    Wrong {
        /// What it is.
        kind: ObjectKind,
        /// Its name.
        name: String,
        /// What is wrong; at least one.
        problems: Vec<Problem>,
    },
}

/// Where objects of a kind stand in a configuration, and the member that is their name; none: in none, and no wish is
/// granted.
const fn list(kind: ObjectKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ObjectKind::Plugin => Some((PLUGINS, "name")),
        ObjectKind::Tenant => Some((TENANTS, "id")),
        ObjectKind::Binding => Some((BINDINGS, "name")),
        ObjectKind::Bypass => None,
    }
}

/// What has to change in `contents` for all of `edits`; nothing: it is so already.
///
/// # Errors
/// The first that can't be granted.
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

/// Takes the bindings of the plugin `name` away with it, if they may go.
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
    // One that is written along with it names what won't be there.
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
        // What was never there has no version to name.
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

/// The spec as it is stored, once nothing is wrong with it by itself.
fn right(edit: &Edit, mut spec: Value, before: Option<&ObjectContent>) -> Result<ObjectContent, EditError> {
    let (kind, name) = (edit.kind, edit.name.as_str());
    let Some((list, member)) = list(kind) else {
        return Err(EditError::Missing { kind, name: name.to_owned() });
    };
    let mut problems = Vec::new();
    if let Some(members) = spec.as_object_mut() {
        match members.get(member) {
            // A binding may go by the name that it has without one.
            None if kind == ObjectKind::Binding
                && default_name(members).is_some_and(|default| default == name) => {}
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

/// The name of an object that says it, or what a binding without one is called.
pub fn name(kind: ObjectKind, spec: &Value) -> Option<String> {
    let (members, (_, member)) = (spec.as_object()?, list(kind)?);
    match members.get(member) {
        Some(name) => name.as_str().map(str::to_owned),
        None if kind == ObjectKind::Binding => default_name(members),
        None => None,
    }
}

/// What a binding without a name is called.
fn default_name(spec: &serde_json::Map<String, Value>) -> Option<String> {
    let plugin = spec.get("plugin")?.as_str()?;
    Some(match spec.get("tenant").and_then(Value::as_str) {
        None | Some("*") => plugin.to_owned(),
        Some(tenant) => format!("{plugin}@{tenant}"),
    })
}

/// RFC 7396.
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
