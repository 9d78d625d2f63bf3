//! What operators see of objects, writes and revisions. Plugins' config is masked wherever an object is shown.

use serde::Serialize;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    admin::plugin,
    config::Bypass,
    core::object::{Kind, Owner},
    registry::{Entry, effect::Effects, operations::Outcome, shown},
    snapshot::HeldBack,
    store::{Change, Content, Revision},
};

/// What the registry knows of an object beside its name.
#[derive(Serialize)]
pub(in crate::admin) struct Held {
    pub(in crate::admin) owner: Owner,
    /// Null where there is no registry.
    pub(in crate::admin) version: Option<u64>,
    pub(in crate::admin) spec: Value,
}

impl Held {
    /// Of `entry`; `has_versions`: it is in a registry.
    pub(super) fn new(entry: &Entry, has_versions: bool) -> Self {
        let object = &entry.object;
        Held {
            owner: object.content.owner,
            version: has_versions.then_some(object.version),
            spec: shown(object.kind, &object.content.spec),
        }
    }
}

/// One object.
#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::admin) enum ObjectView<'a> {
    Plugin {
        name: &'a str,
        #[serde(flatten)]
        status: Box<plugin::View>,
        #[serde(flatten)]
        held: Held,
    },
    Tenant {
        id: &'a str,
        #[serde(flatten)]
        held: Held,
    },
    Binding {
        name: &'a str,
        #[serde(flatten)]
        held: Held,
    },
    Bypass {
        #[serde(flatten)]
        bypass: &'a Bypass,
        version: u64,
        /// Whether this gateway leaves the binding out.
        active: bool,
    },
}

/// A part of a list of objects.
#[derive(Serialize)]
pub(in crate::admin) struct PageView<'a> {
    #[serde(flatten)]
    pub(in crate::admin) objects: Objects<'a>,
    pub(in crate::admin) next_cursor: Option<String>,
    pub(in crate::admin) revision: u64,
}

/// Objects by what they are.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::admin) enum Objects<'a> {
    Plugins(Vec<ObjectView<'a>>),
    Tenants(Vec<ObjectView<'a>>),
    Bindings(Vec<ObjectView<'a>>),
    Bypasses(Vec<ObjectView<'a>>),
}

impl<'a> Objects<'a> {
    pub(super) fn new(kind: Kind, objects: Vec<ObjectView<'a>>) -> Self {
        match kind {
            Kind::Plugin => Objects::Plugins(objects),
            Kind::Tenant => Objects::Tenants(objects),
            Kind::Binding => Objects::Bindings(objects),
            Kind::Bypass => Objects::Bypasses(objects),
        }
    }
}

/// What came of a write.
#[derive(Serialize)]
pub(in crate::admin) struct Written {
    /// Null: nothing had to be changed, or it was a dry run.
    pub(in crate::admin) revision: Option<u64>,
    pub(in crate::admin) dry_run: bool,
    pub(in crate::admin) changes: Vec<ChangeView>,
    /// Null: what is there now isn't right here, so that nothing compares with it.
    pub(in crate::admin) effects: Option<Effects>,
    pub(in crate::admin) unvalidated: Vec<String>,
    pub(in crate::admin) active: bool,
    /// Plugins that were written and refuse that.
    pub(in crate::admin) rejected: Vec<HeldBack>,
}

impl Written {
    pub(super) fn new(outcome: &Outcome, dry_run: bool, active: bool, rejected: Vec<HeldBack>) -> Self {
        Written {
            revision: outcome.revision,
            dry_run,
            changes: changes(&outcome.changes),
            effects: outcome.effects.clone(),
            unvalidated: outcome.unvalidated.clone(),
            active,
            rejected,
        }
    }

    /// Whether the one object that was written was not there before.
    pub(super) fn is_creation(&self) -> bool {
        self.revision.is_some() && self.changes.iter().any(|change| change.before.is_none())
    }
}

/// What changed of one object.
#[derive(Serialize)]
pub(in crate::admin) struct ChangeView {
    pub(in crate::admin) kind: Kind,
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
        let content =
            |content: &Content| ContentView { owner: content.owner, spec: shown(change.kind, &content.spec) };
        ChangeView {
            kind: change.kind,
            name: change.name.to_string(),
            before: change.before.as_ref().map(content),
            after: change.after.as_ref().map(content),
        }
    };
    changes.iter().map(one).collect()
}

/// A part of the list of revisions.
#[derive(Serialize)]
pub(in crate::admin) struct Revisions<'a> {
    pub(super) revisions: Vec<RevisionView<'a, ChangeCounts>>,
    pub(super) next_cursor: Option<String>,
}

/// A revision, with `changes` as they are asked for.
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

/// Changes by kind.
#[derive(Serialize)]
pub(in crate::admin) struct ChangeCounts {
    pub(in crate::admin) plugins: usize,
    pub(in crate::admin) tenants: usize,
    pub(in crate::admin) bindings: usize,
    pub(in crate::admin) bypasses: usize,
}

impl ChangeCounts {
    pub(in crate::admin) fn of(changes: &[Change]) -> Self {
        let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
        let [plugins, tenants, bindings, bypasses] = Kind::ALL.map(count);
        ChangeCounts { plugins, tenants, bindings, bypasses }
    }
}

/// What differs between two revisions.
#[derive(Serialize)]
pub(in crate::admin) struct Difference {
    pub(in crate::admin) from: u64,
    pub(in crate::admin) to: u64,
    pub(in crate::admin) changes: Vec<ChangeView>,
}

fn rfc3339(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.unix_timestamp().to_string())
}
