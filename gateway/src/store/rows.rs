//! What both databases share: common queries, and the conversion of rows.

use std::collections::HashMap;

use time::OffsetDateTime;
use tokio::task::spawn_blocking;

use crate::{
    core::object::{ObjectKind, Owner},
    store::{
        Change, Object, ObjectContent, Revision, RevisionDraft, Spec, StoreError,
        migrations::{self, AppliedMigration},
        unknown_kinds,
    },
    task::join::joined,
};

/// Longer names, in bytes, are rejected before they reach a database, because a PostgreSQL index limits the
/// length. Well above the longest name that may be written: a plugin's name with a tenant's id of 256 bytes.
const MAX_NAME_BYTES: usize = 1024;

pub(super) const SELECT_HEAD: &str = "SELECT revision FROM hookgate_head";
pub(super) const SELECT_OBJECTS: &str = "
    SELECT CAST(0 AS BIGINT), name, owner, version, spec FROM hookgate_plugins
    UNION ALL SELECT CAST(1 AS BIGINT), name, owner, version, spec FROM hookgate_tenants
    UNION ALL SELECT CAST(2 AS BIGINT), name, owner, version, spec FROM hookgate_bindings
    UNION ALL SELECT CAST(3 AS BIGINT), name, owner, version, spec FROM hookgate_upstreams
    UNION ALL SELECT CAST(4 AS BIGINT), name, owner, version, spec FROM hookgate_models
    UNION ALL SELECT CAST(5 AS BIGINT), name, owner, version, spec FROM hookgate_bypasses
    ORDER BY 1, 2";
/// Like `SELECT_OBJECTS`, for tables without upstreams and models.
pub(super) const SELECT_OBJECTS_WITHOUT_MODELS: &str = "
    SELECT CAST(0 AS BIGINT), name, owner, version, spec FROM hookgate_plugins
    UNION ALL SELECT CAST(1 AS BIGINT), name, owner, version, spec FROM hookgate_tenants
    UNION ALL SELECT CAST(2 AS BIGINT), name, owner, version, spec FROM hookgate_bindings
    UNION ALL SELECT CAST(5 AS BIGINT), name, owner, version, spec FROM hookgate_bypasses
    ORDER BY 1, 2";
/// Like `SELECT_OBJECTS`, for tables of the first migration alone.
pub(super) const SELECT_OBJECTS_WITHOUT_BYPASSES: &str = "
    SELECT CAST(0 AS BIGINT), name, owner, version, spec FROM hookgate_plugins
    UNION ALL SELECT CAST(1 AS BIGINT), name, owner, version, spec FROM hookgate_tenants
    UNION ALL SELECT CAST(2 AS BIGINT), name, owner, version, spec FROM hookgate_bindings
    ORDER BY 1, 2";
pub(super) const SELECT_REVISIONS_SINCE: &str = "
    SELECT number, at_ms, author, reason, changes, further FROM hookgate_revisions
    WHERE number > $1 ORDER BY number LIMIT $2";
pub(super) const SELECT_REVISIONS_BEFORE: &str = "
    SELECT number, at_ms, author, reason, changes, further FROM hookgate_revisions
    WHERE number < $1 ORDER BY number DESC LIMIT $2";
pub(super) const SELECT_REVISION: &str =
    "SELECT number, at_ms, author, reason, changes, further FROM hookgate_revisions WHERE number = $1";
pub(super) const SELECT_REVISION_BY_ID: &str = "SELECT number FROM hookgate_revisions WHERE id = $1";
pub(super) const UPDATE_HEAD: &str = "UPDATE hookgate_head SET revision = revision + 1 WHERE revision = $1";
pub(super) const INSERT_REVISION: &str = "
    INSERT INTO hookgate_revisions (number, id, at_ms, author, reason, changes, further)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// A statement about the objects of one kind, with the table's name between its two parts.
macro_rules! by_kind {
    ($kind:expr, $before:literal, $after:literal) => {
        match $kind {
            ObjectKind::Plugin => concat!($before, "hookgate_plugins", $after),
            ObjectKind::Tenant => concat!($before, "hookgate_tenants", $after),
            ObjectKind::Binding => concat!($before, "hookgate_bindings", $after),
            ObjectKind::Upstream => concat!($before, "hookgate_upstreams", $after),
            ObjectKind::Model => concat!($before, "hookgate_models", $after),
            ObjectKind::Bypass => concat!($before, "hookgate_bypasses", $after),
        }
    };
}
pub(super) use by_kind;

/// The index of the kind in [`ObjectKind::ALL`], name, owner, version, spec.
pub(super) type ObjectRow = (i64, String, String, i64, String);
/// Number, milliseconds since 1970, author, reason, changes, and changes of kinds that came later.
pub(super) type RevisionRow = (i64, i64, String, String, String, Option<String>);
/// Name, owner, spec.
pub(super) type ContentRow = (String, String, String);

/// The query for the objects of a database to which the migrations `done` were applied.
pub(super) fn query(done: &[AppliedMigration]) -> &'static str {
    if migrations::includes(done, migrations::MODELS) {
        SELECT_OBJECTS
    } else if migrations::includes(done, migrations::BYPASSES) {
        SELECT_OBJECTS_WITHOUT_MODELS
    } else {
        SELECT_OBJECTS_WITHOUT_BYPASSES
    }
}

/// A revision's number as the databases store it. They store none above `i64::MAX`, so that number matches
/// nothing.
pub(super) fn key(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The maximum number of rows, as the databases take it.
pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

pub(super) fn number(key: i64) -> Result<u64, StoreError> {
    u64::try_from(key).map_err(|_| StoreError::Unusable(format!("there is a revision {key} in it")))
}

/// Converts the rows on a blocking thread, since there may be tens of thousands.
pub(super) async fn objects(rows: Vec<ObjectRow>) -> Result<Vec<Object>, StoreError> {
    joined(spawn_blocking(|| rows.into_iter().map(object).collect())).await
}

pub(super) fn object((kind, name, owner, version, spec): ObjectRow) -> Result<Object, StoreError> {
    let kind = usize::try_from(kind).ok().and_then(|place| ObjectKind::ALL.get(place).copied());
    let kind = kind.ok_or_else(|| StoreError::Unusable("a row has an unexpected kind".to_owned()))?;
    let content = content(kind, &name, &owner, &spec)?;
    Ok(Object { kind, name: name.into(), version: number(version)?, content })
}

fn content(kind: ObjectKind, name: &str, owner: &str, spec: &str) -> Result<ObjectContent, StoreError> {
    let owner = match owner {
        "file" => Owner::File,
        "api" => Owner::Api,
        _ => {
            return Err(StoreError::Unusable(format!(
                "{kind} {name} has an owner that this version does not know"
            )));
        }
    };
    let spec = Spec::parse(spec)
        .map_err(|_| StoreError::Unusable(format!("what is stored of {kind} {name} is not JSON")))?;
    Ok(ObjectContent { owner, spec })
}

pub(super) fn revision(row: RevisionRow) -> Result<Revision, StoreError> {
    let (key, at, author, reason, changes, further) = row;
    let unusable = |what: &str| StoreError::Unusable(format!("revision {key} has {what}"));
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000)
        .map_err(|_| unusable("an invalid time"))?;
    let parts = std::iter::once(changes).chain(further);
    let parts = parts.map(|part| unknown_kinds::changes(&part)).collect::<Result<Vec<_>, _>>();
    let changes = parts.map_err(|_| unusable("changes that this version does not know"))?.concat();
    Ok(Revision { number: number(key)?, at, author, reason, changes })
}

/// A draft as it is inserted.
pub(super) struct RevisionInsert {
    pub(super) base: i64,
    pub(super) number: i64,
    pub(super) at_ms: i64,
    pub(super) changes: String,
    /// Changes of kinds that came later.
    pub(super) further: Option<String>,
}

impl RevisionInsert {
    /// The length of its text, in bytes.
    pub(super) fn len(&self) -> usize {
        self.changes.len() + self.further.as_ref().map_or(0, String::len)
    }

    /// Checks for values that the databases would reject, or could not read back.
    pub(super) fn new(draft: &RevisionDraft) -> Result<Self, StoreError> {
        let bug = |what: String| StoreError::Unusable(format!("a revision can't be written: {what}"));
        if draft.changes.is_empty() {
            return Err(bug("it changes nothing".to_owned()));
        }
        if [&draft.author, &draft.reason].iter().any(|text| text.contains('\0')) {
            return Err(bug("there is a NUL in its author or reason".to_owned()));
        }
        for change in &draft.changes {
            let (kind, name) = (change.kind, &change.name);
            if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
                return Err(bug(format!(
                    "the name of a {kind} is empty, has a NUL, or over {MAX_NAME_BYTES} bytes"
                )));
            }
            if change.before.is_none() && change.after.is_none() {
                return Err(bug(format!("nothing happens to {kind} {name}")));
            }
        }
        let in_order = |pair: &[Change]| (pair[0].kind, &pair[0].name) < (pair[1].kind, &pair[1].name);
        if !draft.changes.windows(2).all(in_order) {
            return Err(bug("its changes are not in order, or one object is in it twice".to_owned()));
        }
        let base = key(draft.base);
        // The largest number can't overflow in practice: no revision can be based on it.
        let number = base.saturating_add(1);
        // The changes are sorted, and kinds that came later follow the others.
        let (changes, further) = draft
            .changes
            .split_at(draft.changes.partition_point(|change| change.kind <= ObjectKind::Binding));
        let text =
            |changes: &[Change]| serde_json::to_string(changes).map_err(|error| bug(error.to_string()));
        let changes = text(changes)?;
        let further = (!further.is_empty()).then(|| text(further)).transpose()?;
        let at_ms = i64::try_from(draft.at.unix_timestamp_nanos().div_euclid(1_000_000))
            .map_err(|_| bug("its time is out of range".to_owned()))?;
        Ok(Self { base, number, at_ms, changes, further })
    }
}

/// What became of the head when a draft was written.
pub(super) enum HeadUpdate {
    /// The draft is this revision.
    Now(u64),
    /// The same draft already became this revision.
    Before(u64),
    /// This other revision is the last one.
    Moved(u64),
}

/// The changes of one kind of object.
pub(super) struct ChangeBatch<'a> {
    pub(super) kind: ObjectKind,
    changes: Vec<&'a Change>,
}

impl<'a> ChangeBatch<'a> {
    /// Groups the changes by kind; no group is empty.
    pub(super) fn by_kind(changes: &'a [Change]) -> impl Iterator<Item = ChangeBatch<'a>> + Send {
        ObjectKind::ALL.into_iter().filter_map(|kind| {
            let changes: Vec<_> = changes.iter().filter(|change| change.kind == kind).collect();
            (!changes.is_empty()).then_some(ChangeBatch { kind, changes })
        })
    }

    /// The names of all changed objects.
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.changes.iter().map(|change| &*change.name).collect()
    }

    /// The objects after the change: name, owner, spec.
    pub(super) fn after(&self) -> Vec<(&'a str, &'static str, &'a str)> {
        let after = self.changes.iter().filter_map(|change| Some((change, change.after.as_ref()?)));
        after.map(|(change, after)| (&*change.name, after.owner.as_str(), after.spec.as_str())).collect()
    }

    /// Checks that the deleted rows are those in the draft. The draft is based on the last revision, so any
    /// difference is a bug.
    pub(super) fn check(&self, there: Vec<ContentRow>) -> Result<(), StoreError> {
        let mut found = HashMap::with_capacity(there.len());
        for (name, owner, spec) in there {
            let content = content(self.kind, &name, &owner, &spec)?;
            found.insert(name, content);
        }
        for Change { name, before, .. } in &self.changes {
            if found.get(&**name) != before.as_ref() {
                let kind = self.kind;
                return Err(StoreError::Unusable(format!(
                    "{kind} {name} differs from the state that the change was based on"
                )));
            }
        }
        Ok(())
    }
}
