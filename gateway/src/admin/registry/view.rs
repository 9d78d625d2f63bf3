//! The JSON views of objects, writes and revisions. Plugins' config is masked in every view.

use serde::Serialize;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    admin::plugin,
    config::Bypass,
    core::object::{ObjectKind, Owner},
    registry::{Entry, effect::Effects, masked, operations::WriteOutcome},
    snapshot::RejectedEntry,
    store::{Change, ObjectContent, Revision},
};

/// An object without its name.
#[derive(Serialize)]
pub(in crate::admin) struct StoredObject {
    pub(in crate::admin) owner: Owner,
    /// Null if there is no registry.
    pub(in crate::admin) version: Option<u64>,
    pub(in crate::admin) spec: Value,
}

impl StoredObject {
    /// `has_versions`: the object is in a registry.
    pub(super) fn new(entry: &Entry, has_versions: bool) -> Self {
        let object = &entry.object;
        StoredObject {
            owner: object.content.owner,
            version: has_versions.then_some(object.version),
            spec: masked(object.kind, &object.content.spec),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::admin) enum ObjectView<'a> {
    Plugin {
        name: &'a str,
        #[serde(flatten)]
        status: Box<plugin::ProcessPluginView>,
        #[serde(flatten)]
        held: StoredObject,
    },
    Tenant {
        id: &'a str,
        #[serde(flatten)]
        held: StoredObject,
    },
    Binding {
        name: &'a str,
        #[serde(flatten)]
        held: StoredObject,
    },
    Upstream {
        name: &'a str,
        #[serde(flatten)]
        held: StoredObject,
    },
    Model {
        name: &'a str,
        #[serde(flatten)]
        held: StoredObject,
    },
    Bypass {
        #[serde(flatten)]
        bypass: &'a Bypass,
        version: u64,
        /// Whether this gateway currently applies the bypass.
        active: bool,
    },
}

/// A page of objects.
#[derive(Serialize)]
pub(in crate::admin) struct PageView<'a> {
    #[serde(flatten)]
    pub(in crate::admin) objects: Objects<'a>,
    pub(in crate::admin) next_cursor: Option<String>,
    pub(in crate::admin) revision: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::admin) enum Objects<'a> {
    Plugins(Vec<ObjectView<'a>>),
    Tenants(Vec<ObjectView<'a>>),
    Bindings(Vec<ObjectView<'a>>),
    Upstreams(Vec<ObjectView<'a>>),
    Models(Vec<ObjectView<'a>>),
    Bypasses(Vec<ObjectView<'a>>),
}

impl<'a> Objects<'a> {
    pub(super) fn new(kind: ObjectKind, objects: Vec<ObjectView<'a>>) -> Self {
        match kind {
            ObjectKind::Plugin => Objects::Plugins(objects),
            ObjectKind::Tenant => Objects::Tenants(objects),
            ObjectKind::Binding => Objects::Bindings(objects),
            ObjectKind::Upstream => Objects::Upstreams(objects),
            ObjectKind::Model => Objects::Models(objects),
            ObjectKind::Bypass => Objects::Bypasses(objects),
        }
    }
}

/// The result of a write.
#[derive(Serialize)]
pub(in crate::admin) struct WriteView {
    /// Null if nothing changed, or for a dry run.
    pub(in crate::admin) revision: Option<u64>,
    pub(in crate::admin) dry_run: bool,
    pub(in crate::admin) changes: Vec<ChangeView>,
    /// Null if the current registry is invalid on this gateway, so that the effects can't be computed.
    pub(in crate::admin) effects: Option<Effects>,
    pub(in crate::admin) unvalidated: Vec<String>,
    pub(in crate::admin) active: bool,
    /// Written plugins that rejected their new entry.
    pub(in crate::admin) rejected: Vec<RejectedEntry>,
}

impl WriteView {
    pub(super) fn new(
        outcome: &WriteOutcome,
        dry_run: bool,
        active: bool,
        rejected: Vec<RejectedEntry>,
    ) -> Self {
        WriteView {
            revision: outcome.revision,
            dry_run,
            changes: changes(&outcome.changes),
            effects: outcome.effects.clone(),
            unvalidated: outcome.unvalidated.clone(),
            active,
            rejected,
        }
    }

    /// Whether the write created its object.
    pub(super) fn is_creation(&self) -> bool {
        self.revision.is_some() && self.changes.iter().any(|change| change.before.is_none())
    }
}

/// The change of one object.
#[derive(Serialize)]
pub(in crate::admin) struct ChangeView {
    pub(in crate::admin) kind: ObjectKind,
    pub(in crate::admin) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::admin) before: Option<ContentView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::admin) after: Option<ContentView>,
}

#[derive(Serialize)]
pub(in crate::admin) struct ContentView {
    pub(in crate::admin) owner: Owner,
    pub(in crate::admin) spec: Value,
}

pub(in crate::admin) fn changes(changes: &[Change]) -> Vec<ChangeView> {
    let one = |change: &Change| {
        let content = |content: &ObjectContent| ContentView {
            owner: content.owner,
            spec: masked(change.kind, &content.spec),
        };
        ChangeView {
            kind: change.kind,
            name: change.name.to_string(),
            before: change.before.as_ref().map(content),
            after: change.after.as_ref().map(content),
        }
    };
    changes.iter().map(one).collect()
}

/// A page of revisions.
#[derive(Serialize)]
pub(in crate::admin) struct Revisions<'a> {
    pub(super) revisions: Vec<RevisionView<'a, ChangeCounts>>,
    pub(super) next_cursor: Option<String>,
}

/// A revision, with its changes in full or as counts.
#[derive(Serialize)]
pub(in crate::admin) struct RevisionView<'a, C> {
    pub(in crate::admin) number: u64,
    pub(in crate::admin) at: String,
    pub(in crate::admin) author: &'a str,
    pub(in crate::admin) reason: &'a str,
    pub(in crate::admin) changes: C,
}

impl<'a, C> RevisionView<'a, C> {
    pub(in crate::admin) fn new(revision: &'a Revision, changes: C) -> Self {
        let Revision { number, at, author, reason, .. } = revision;
        RevisionView { number: *number, at: rfc3339(*at), author, reason, changes }
    }
}

/// The number of changes by kind.
#[derive(Serialize)]
pub(in crate::admin) struct ChangeCounts {
    pub(in crate::admin) plugins: usize,
    pub(in crate::admin) tenants: usize,
    pub(in crate::admin) bindings: usize,
    pub(in crate::admin) upstreams: usize,
    pub(in crate::admin) models: usize,
    pub(in crate::admin) bypasses: usize,
}

impl ChangeCounts {
    pub(in crate::admin) fn from_changes(changes: &[Change]) -> Self {
        let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
        let [plugins, tenants, bindings, upstreams, models, bypasses] = ObjectKind::ALL.map(count);
        ChangeCounts { plugins, tenants, bindings, upstreams, models, bypasses }
    }
}

/// The difference between two revisions.
#[derive(Serialize)]
pub(in crate::admin) struct Difference {
    pub(in crate::admin) from: u64,
    pub(in crate::admin) to: u64,
    pub(in crate::admin) changes: Vec<ChangeView>,
}

fn rfc3339(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.unix_timestamp().to_string())
}
