//! Stores under test, and revisions to write.

use std::{fmt, sync::Arc};

use hookgate::{
    core::object::{ObjectKind, Owner},
    store::{self, Change, ObjectContent, RevisionDraft, Snapshot, Store},
};
use hookgate_tests::postgres;
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use uuid::Uuid;

/// An empty database.
pub(crate) struct Place {
    pub(crate) url: String,
    _folder: Option<TempDir>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Place {
    pub(crate) fn file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url: format!("sqlite:{}", folder.path().join("hookgate.db").display()), _folder: Some(folder) }
    }

    pub(crate) async fn postgres() -> Self {
        Self { url: postgres::database().await, _folder: None }
    }

    /// One of each kind.
    pub(crate) async fn every() -> [Self; 2] {
        [Self::file(), Self::postgres().await]
    }

    pub(crate) fn open(&self) -> Arc<dyn Store> {
        store::open(&self.url).unwrap()
    }

    pub(crate) async fn prepared(&self) -> Arc<dyn Store> {
        let store = self.open();
        store.prepare().await.unwrap_or_else(|error| panic!("{self}: {error}"));
        store
    }
}

pub(crate) fn api(spec: Value) -> Option<ObjectContent> {
    Some(ObjectContent { owner: Owner::Api, spec: spec.into() })
}

pub(crate) fn change(
    kind: ObjectKind,
    name: &str,
    before: Option<ObjectContent>,
    after: Option<ObjectContent>,
) -> Change {
    Change { kind, name: name.into(), before, after }
}

pub(crate) fn draft(base: u64, changes: Vec<Change>) -> RevisionDraft {
    let at = OffsetDateTime::from_unix_timestamp(1_790_000_000).unwrap() + time::Duration::milliseconds(123);
    RevisionDraft { id: Uuid::now_v7(), base, at, author: "olga".into(), reason: "because".into(), changes }
}

/// The creation of a tenant.
pub(crate) fn add(base: u64, name: &str) -> RevisionDraft {
    draft(base, vec![change(ObjectKind::Tenant, name, None, api(json!({ "id": name })))])
}

/// The kind, name and version of each object.
pub(crate) fn versions(snapshot: &Snapshot) -> Vec<(ObjectKind, &str, u64)> {
    snapshot.objects.iter().map(|object| (object.kind, &*object.name, object.version)).collect()
}
