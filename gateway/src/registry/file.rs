//! Applies the file to the registry: computes the changes to the objects that the file owns, for one
//! revision (docs/protocol.md, section 7). Pure.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    config::{BINDINGS, LoadedConfig, MODELS, PLUGINS, Problem, TENANTS, UPSTREAMS},
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

/// The objects of one list, by name, in the order of the list.
type NamedObjects = Vec<(Arc<str>, TypedObject)>;

/// The lists of a file's configuration: kind, pointer and objects.
fn lists(loaded: &LoadedConfig) -> [(ObjectKind, &'static str, NamedObjects); ObjectKind::LISTED.len()] {
    fn named<T>(
        list: &[Arc<T>],
        name: impl Fn(&T) -> Arc<str>,
        typed: impl Fn(Arc<T>) -> TypedObject,
    ) -> NamedObjects {
        list.iter().map(|object| (name(object), typed(Arc::clone(object)))).collect()
    }
    let config = &loaded.config;
    let llm = config.llm.as_ref();
    let upstreams = llm.map_or_else(Default::default, |llm| llm.upstreams.as_slice());
    let models = llm.map_or_else(Default::default, |llm| llm.models.as_slice());
    let plugins = named(&config.plugins, |plugin| plugin.name.as_str().into(), TypedObject::Plugin);
    let tenants = named(&config.tenants.list, |tenant| tenant.id.as_str().into(), TypedObject::Tenant);
    let bindings =
        named(&config.bindings, |binding| (*binding.effective_name()).into(), TypedObject::Binding);
    let upstreams = named(upstreams, |upstream| upstream.name.as_str().into(), TypedObject::Upstream);
    let models = named(models, |rule| (*rule.effective_name()).into(), TypedObject::Model);
    [
        (ObjectKind::Plugin, PLUGINS, plugins),
        (ObjectKind::Tenant, TENANTS, tenants),
        (ObjectKind::Binding, BINDINGS, bindings),
        (ObjectKind::Upstream, UPSTREAMS, upstreams),
        (ObjectKind::Model, MODELS, models),
    ]
}

impl Contents {
    /// The contents of a file when there is no registry. Objects have no versions.
    pub fn from_file(loaded: &LoadedConfig) -> Self {
        let entries = lists(loaded).into_iter().flat_map(|(kind, list, named)| {
            let specs = loaded.written_values(list).into_iter();
            named.into_iter().zip(specs).map(move |((name, typed), spec)| {
                let content = ObjectContent { owner: Owner::File, spec: spec.into() };
                let object = Object { kind, name, version: 0, content };
                snapshot::Entry { object, typed, met: 0 }
            })
        });
        Contents::whole(0, entries.collect())
    }
}

impl OfFile {
    /// The objects of `loaded`, which is a file's configuration.
    pub(super) fn new(loaded: &LoadedConfig) -> Self {
        let entries = lists(loaded).into_iter().flat_map(|(kind, list, named)| {
            let specs = loaded.written_values(list).into_iter();
            named.into_iter().zip(specs).enumerate().map(move |(at, ((name, _), spec))| {
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
