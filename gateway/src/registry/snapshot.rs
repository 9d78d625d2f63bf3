//! The registry's contents at one revision: each object as stored and as parsed. Contents are immutable;
//! consecutive revisions share their unchanged objects.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    config::{self, Binding, Bypass, ModelRule, ModelUpstream, ObjectSet, Plugin, Tenant},
    core::object::ObjectKind,
    store::{Change, Object, Snapshot},
};

/// An object as parsed.
#[derive(Debug, Clone)]
pub enum TypedObject {
    /// A plugin.
    Plugin(Arc<Plugin>),
    /// A tenant.
    Tenant(Arc<Tenant>),
    /// A binding.
    Binding(Arc<Binding>),
    /// A provider of models.
    Upstream(Arc<ModelUpstream>),
    /// A rule for models.
    Model(Arc<ModelRule>),
    /// A binding that is temporarily left out for one tenant.
    Bypass(Arc<Bypass>),
}

/// An object in both forms.
#[derive(Debug, Clone)]
pub struct Entry {
    /// As stored.
    pub object: Object,
    /// As parsed.
    pub typed: TypedObject,
    /// Tells objects of the same name apart that were created one after the other: the version in which
    /// this process first read the object.
    pub met: u64,
}

/// All objects at one revision.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    revision: u64,
    /// Sorted by kind, then by name in byte order.
    entries: Vec<Arc<Entry>>,
}

/// An object that this version can't read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind} `{name}` in the registry {why}")]
pub struct Unreadable {
    /// The object's kind.
    pub kind: ObjectKind,
    pub name: Arc<str>,
    /// Why, in words that follow the name in a sentence.
    pub why: String,
}

impl Entry {
    fn read(object: Object) -> Result<Self, Unreadable> {
        let (spec, owner) = (object.content.spec.as_str(), object.content.owner);
        let typed = match object.kind {
            ObjectKind::Plugin => {
                config::read(spec).map(|plugin| TypedObject::Plugin(Arc::new(Plugin { owner, ..plugin })))
            }
            ObjectKind::Tenant => config::read(spec).map(|tenant| TypedObject::Tenant(Arc::new(tenant))),
            ObjectKind::Binding => {
                config::read(spec).map(|binding| TypedObject::Binding(Arc::new(Binding { owner, ..binding })))
            }
            ObjectKind::Upstream => config::read(spec)
                .map(|upstream| TypedObject::Upstream(Arc::new(ModelUpstream { owner, ..upstream }))),
            ObjectKind::Model => config::read(spec).map(|rule| TypedObject::Model(Arc::new(rule))),
            ObjectKind::Bypass => config::read(spec).map(|bypass| TypedObject::Bypass(Arc::new(bypass))),
        };
        match typed {
            Ok(typed) => Ok(Entry { met: object.version, object, typed }),
            Err(why) => Err(Unreadable { kind: object.kind, name: object.name, why }),
        }
    }

    pub fn is_labelled(&self, key: &str, value: &str) -> bool {
        let labels = match &self.typed {
            TypedObject::Plugin(plugin) => &plugin.labels,
            TypedObject::Tenant(tenant) => &tenant.labels,
            TypedObject::Binding(binding) => &binding.labels,
            TypedObject::Upstream(upstream) => &upstream.labels,
            TypedObject::Model(rule) => &rule.labels,
            TypedObject::Bypass(_) => return false,
        };
        labels.get(key).is_some_and(|own| own == value)
    }

    fn key(&self) -> (ObjectKind, &str) {
        (self.object.kind, &self.object.name)
    }
}

impl Contents {
    /// Parses `snapshot`.
    ///
    /// # Errors
    /// The first object that this version can't read.
    pub fn read(snapshot: Snapshot) -> Result<Self, Unreadable> {
        let entries = snapshot.objects.into_iter().map(|object| Entry::read(object).map(Arc::new));
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(Contents { revision: snapshot.revision, entries })
    }

    /// Contents at `revision` with `entries` in any order.
    pub(super) fn whole(revision: u64, mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| a.key().cmp(&b.key()));
        Contents { revision, entries: entries.into_iter().map(Arc::new).collect() }
    }

    /// The revision; 0 before the first one.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All objects, sorted by kind, then by name.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    pub fn get(&self, kind: ObjectKind, name: &str) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.key().cmp(&(kind, name)));
        found.ok().map(|at| &*self.entries[at])
    }

    /// The plugin `name`.
    pub fn plugin(&self, name: &str) -> Option<&Arc<Plugin>> {
        match &self.get(ObjectKind::Plugin, name)?.typed {
            TypedObject::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// The contents after `revision`, which made `changes`: each object at most once, in any order.
    ///
    /// # Errors
    /// The first object that this version can't read.
    pub fn after(&self, revision: u64, changes: &[Change]) -> Result<Self, Unreadable> {
        let mut changes: Vec<&Change> = changes.iter().collect();
        changes.sort_by(|a, b| (a.kind, &*a.name).cmp(&(b.kind, &*b.name)));
        let mut entries = Vec::with_capacity(self.entries.len() + changes.len());
        let mut kept = self.entries.iter().peekable();
        for change in changes {
            let key = (change.kind, &*change.name);
            while let Some(entry) = kept.next_if(|entry| entry.key().cmp(&key) == Ordering::Less) {
                entries.push(Arc::clone(entry));
            }
            // The change replaces it.
            let before = kept.next_if(|entry| entry.key() == key);
            if let Some(content) = &change.after {
                let (name, content) = (Arc::clone(&change.name), content.clone());
                let object = Object { kind: change.kind, name, version: revision, content };
                let entry = Entry::read(object)?;
                // A changed object is still the same one. An object that was deleted and created again is
                // another.
                let met = before.map_or(entry.met, |before| before.met);
                entries.push(Arc::new(Entry { met, ..entry }));
            }
        }
        entries.extend(kept.cloned());
        Ok(Contents { revision, entries })
    }

    /// Returns the contents, but reuses the entries of `before` that have the same version.
    pub(super) fn recalling(self, before: &Contents) -> Self {
        let known = |entry: Arc<Entry>| {
            let found = before.entries.binary_search_by(|known| known.key().cmp(&entry.key()));
            let same = found.ok().map(|at| &before.entries[at]);
            same.filter(|same| same.object.version == entry.object.version).map_or(entry, Arc::clone)
        };
        Contents { revision: self.revision, entries: self.entries.into_iter().map(known).collect() }
    }

    /// Replaces the bypasses by these, which are sorted by name.
    pub(super) fn with_bypasses(&self, bypasses: Vec<Arc<Entry>>) -> Self {
        let mut entries = self.entries[..self.first_bypass()].to_vec();
        entries.extend(bypasses);
        Contents { revision: self.revision, entries }
    }

    /// The bypasses, sorted by name.
    pub(super) fn bypass_entries(&self) -> &[Arc<Entry>] {
        &self.entries[self.first_bypass()..]
    }

    /// Bypasses are sorted after all other kinds.
    fn first_bypass(&self) -> usize {
        self.entries.partition_point(|entry| entry.object.kind < ObjectKind::Bypass)
    }

    /// The objects as lists of a configuration, without bypasses: whether a bypass is in effect depends on
    /// the time.
    ///
    /// Bindings are in the order in which they were written. If two conflict, the error points at the later
    /// one.
    pub fn objects(&self) -> ObjectSet {
        let mut objects = ObjectSet::default();
        let mut bindings = Vec::new();
        for entry in &self.entries {
            match &entry.typed {
                TypedObject::Plugin(plugin) => objects.plugins.push(Arc::clone(plugin)),
                TypedObject::Tenant(tenant) => objects.tenants.push(Arc::clone(tenant)),
                TypedObject::Binding(binding) => bindings.push((entry.object.version, binding)),
                TypedObject::Upstream(upstream) => objects.upstreams.push(Arc::clone(upstream)),
                TypedObject::Model(rule) => objects.models.push(Arc::clone(rule)),
                TypedObject::Bypass(_) => {}
            }
        }
        bindings.sort_by_key(|(version, _)| *version);
        objects.bindings = bindings.into_iter().map(|(_, binding)| Arc::clone(binding)).collect();
        objects
    }

    /// The bypasses with their versions, including expired ones.
    pub fn bypasses(&self) -> impl Iterator<Item = (&Arc<Bypass>, u64)> {
        self.bypass_entries().iter().filter_map(|entry| match &entry.typed {
            TypedObject::Bypass(bypass) => Some((bypass, entry.object.version)),
            _ => None,
        })
    }

    /// The form in which the contents are stored.
    pub fn snapshot(&self) -> Snapshot {
        let objects = self.entries.iter().map(|entry| entry.object.clone()).collect();
        Snapshot { revision: self.revision, objects }
    }
}
