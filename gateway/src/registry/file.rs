//! Applies the file to the registry: computes the changes to the objects that the file owns, for one
//! revision (docs/protocol.md, section 7). Pure.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    config::{BINDINGS, LoadedConfig, PLUGINS, Problem, TENANTS},
    core::object::{ObjectKind, Owner},
    registry::{
        bypass,
        snapshot::{self, Contents, TypedObject},
    },
    store::{Change, Object, ObjectContent, Spec},
};

/// The objects of a file.
#[derive(Debug)]
pub(super) struct OfFile(BTreeMap<(ObjectKind, Arc<str>), FileEntry>);

#[derive(Debug)]
struct FileEntry {
    /// To the object's name in the file.
    pointer: String,
    spec: Spec,
}

impl Contents {
    /// The contents of a file when there is no registry. Objects have no versions.
    pub fn from_file(loaded: &LoadedConfig) -> Self {
        let config = &loaded.config;
        let (plugins, tenants, bindings) = (&config.plugins, &config.tenants.list, &config.bindings);
        let plugins =
            plugins.iter().map(|plugin| (plugin.name.clone(), TypedObject::Plugin(Arc::clone(plugin))));
        let tenants =
            tenants.iter().map(|tenant| (tenant.id.clone(), TypedObject::Tenant(Arc::clone(tenant))));
        let bindings = bindings.iter().map(|binding| {
            (binding.effective_name().into_owned(), TypedObject::Binding(Arc::clone(binding)))
        });
        let lists: [(_, _, Vec<(String, TypedObject)>); 3] = [
            (ObjectKind::Plugin, PLUGINS, plugins.collect()),
            (ObjectKind::Tenant, TENANTS, tenants.collect()),
            (ObjectKind::Binding, BINDINGS, bindings.collect()),
        ];
        let entries = lists.into_iter().flat_map(|(kind, list, named)| {
            let specs = loaded.written_values(list).into_iter();
            named.into_iter().zip(specs).map(move |((name, typed), spec)| {
                let content = ObjectContent { owner: Owner::File, spec: spec.into() };
                let object = Object { kind, name: name.into(), version: 0, content };
                snapshot::Entry { object, typed, met: 0 }
            })
        });
        Contents::whole(0, entries.collect())
    }
}

impl OfFile {
    /// The objects of `loaded`, which is a file's configuration.
    pub(super) fn new(loaded: &LoadedConfig) -> Self {
        let config = &loaded.config;
        let plugins = config.plugins.iter().map(|plugin| plugin.name.as_str().into()).collect();
        let tenants = config.tenants.list.iter().map(|tenant| tenant.id.as_str().into()).collect();
        let bindings = config.bindings.iter().map(|binding| (*binding.effective_name()).into()).collect();
        let lists: [(ObjectKind, &str, Vec<Arc<str>>); 3] = [
            (ObjectKind::Plugin, PLUGINS, plugins),
            (ObjectKind::Tenant, TENANTS, tenants),
            (ObjectKind::Binding, BINDINGS, bindings),
        ];
        let entries = lists.into_iter().flat_map(|(kind, list, names)| {
            let specs = loaded.written_values(list).into_iter();
            names.into_iter().zip(specs).enumerate().map(move |(at, (name, spec))| {
                ((kind, name), FileEntry { pointer: format!("{list}/{at}"), spec: spec.into() })
            })
        });
        OfFile(entries.collect())
    }

    /// The changes that make `contents` equal to the file; empty if they are.
    ///
    /// # Errors
    /// One problem for each object that is in the file but owned by the API.
    pub(super) fn changes(&self, contents: &Contents) -> Result<Vec<Change>, Vec<Problem>> {
        let (mut changes, mut conflicts) = (Vec::new(), Vec::new());
        for ((kind, name), entry) in &self.0 {
            let before = contents.get(*kind, name).map(|entry| &entry.object);
            match before {
                Some(object) if object.content.owner == Owner::Api && !registered_itself(object) => {
                    conflicts.push(conflict(*kind, name, object.version, &entry.pointer));
                }
                Some(object) if object.content.owner == Owner::File && object.content.spec == entry.spec => {}
                _ => changes.push(Change {
                    kind: *kind,
                    name: Arc::clone(name),
                    before: before.map(|object| object.content.clone()),
                    after: Some(ObjectContent { owner: Owner::File, spec: entry.spec.clone() }),
                }),
            }
        }
        let left_over = contents.entries().iter().map(|entry| &entry.object).filter(|object| {
            object.content.owner == Owner::File
                && !self.0.contains_key(&(object.kind, Arc::clone(&object.name)))
        });
        changes.extend(left_over.map(|object| Change {
            kind: object.kind,
            name: Arc::clone(&object.name),
            before: Some(object.content.clone()),
            after: None,
        }));
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        changes.extend(bypass::outlived(contents, &changes));
        changes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Ok(changes)
    }
}

/// Whether a process added this plugin by registering it, and no operator has changed the entry since. The file may take
/// it over: a plugin may start before the file that names it is applied.
fn registered_itself(object: &Object) -> bool {
    let spec = serde_json::from_str::<Value>(object.content.spec.as_str()).unwrap_or_default();
    object.kind == ObjectKind::Plugin && spec == json!({ "name": &*object.name, "self_registration": true })
}

fn conflict(kind: ObjectKind, name: &str, version: u64, pointer: &str) -> Problem {
    let message = format!(
        "{kind} `{name}` of the file already exists in the registry, written through the API (revision {version}); \
         an object has one owner"
    );
    Problem::new(pointer, message).remedy("remove it from the file, or from the registry")
}
