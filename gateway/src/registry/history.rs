//! The registry's history: its revisions, its contents at an earlier revision, and rolling back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Contents, RegistryError, Writer,
    listing::revision_cursor,
    operations::{OperationError, Operations, WriteOutcome},
};
use crate::{
    core::object::{ObjectKind, Owner},
    store::{Change, Object, ObjectContent, Revision},
};

/// The maximum number of revisions per read while going back.
const MAX_REVISIONS_PER_READ: usize = 100;

type ObjectMap = BTreeMap<(ObjectKind, Arc<str>), ObjectContent>;

impl Operations {
    /// The latest revisions before `before`, newest first and at most `most`, and the cursor for the next
    /// page.
    ///
    /// # Errors
    /// If the store can't be read, or there is none.
    pub async fn revisions(
        &self,
        before: Option<u64>,
        most: usize,
    ) -> Result<(Vec<Revision>, Option<String>), OperationError> {
        let revisions = self.read_revisions(before, most).await?;
        // Revisions are numbered from 1 without gaps.
        let next = revisions.last().map(|last| last.number).filter(|number| *number > 1);
        Ok((revisions, next.map(revision_cursor)))
    }

    async fn read_revisions(
        &self,
        before: Option<u64>,
        most: usize,
    ) -> Result<Vec<Revision>, OperationError> {
        let registry = self.prepared().await?;
        let revisions = registry.store.before(before, most).await;
        Ok(registry.noted(revisions).map_err(RegistryError::from)?)
    }

    ///
    /// # Errors
    /// If there is no such revision, or the store can't be read.
    pub async fn revision(&self, number: u64) -> Result<Revision, OperationError> {
        let registry = self.prepared().await?;
        let revision = registry.store.revision(number).await;
        let revision = registry.noted(revision).map_err(RegistryError::from)?;
        revision.ok_or(OperationError::NoRevision(number))
    }

    /// The changes from revision `from` to `to` (`None`: the current one), in either direction, and the
    /// number of the second.
    ///
    /// # Errors
    /// If there is no such revision, or the store can't be read.
    pub async fn difference(&self, from: u64, to: Option<u64>) -> Result<(u64, Vec<Change>), OperationError> {
        let now = self.prepared().await?.contents().revision();
        let to = to.unwrap_or(now);
        let (from, then) = (self.at(from).await?, self.at(to).await?);
        Ok((to, between(&from, &then)))
    }

    /// Restores the API's objects as of the revision `number`. The file's objects and bypasses stay. Without
    /// a reason, the new revision's reason names `number`.
    ///
    /// # Errors
    /// If there is no such revision. See also [`Operations::write`].
    pub async fn roll_back(
        &self,
        writer: &Writer,
        number: u64,
        dry_run: bool,
    ) -> Result<WriteOutcome, OperationError> {
        self.prepared().await?;
        // Revision 0 is the empty registry: a rollback to it would delete every object of the API.
        if number == 0 {
            return Err(OperationError::NoRevision(number));
        }
        let then = self.at(number).await?;
        let mut writer = writer.clone();
        if writer.reason.is_empty() {
            writer.reason = format!("rolled back to {number}");
        }
        self.change(&writer, dry_run, None, |contents| Ok(back(contents, &then))).await
    }

    /// The objects at the revision `number`: the current ones with every later change undone.
    async fn at(&self, number: u64) -> Result<ObjectMap, OperationError> {
        let now = self.prepared().await?.contents();
        if number > now.revision() {
            return Err(OperationError::NoRevision(number));
        }
        let mut state = state(&now);
        let mut at = now.revision();
        while at > number {
            let most = usize::try_from(at - number).unwrap_or(usize::MAX).min(MAX_REVISIONS_PER_READ);
            let revisions = self.read_revisions(Some(at + 1), most).await?;
            if revisions.is_empty() {
                return Err(OperationError::NoRevision(number));
            }
            for revision in revisions {
                at = revision.number - 1;
                for change in revision.changes {
                    match change.before {
                        Some(before) => state.insert((change.kind, change.name), before),
                        None => state.remove(&(change.kind, change.name)),
                    };
                }
            }
        }
        Ok(state)
    }
}

fn state(contents: &Contents) -> ObjectMap {
    let content = |object: &Object| ((object.kind, Arc::clone(&object.name)), object.content.clone());
    contents.entries().iter().map(|entry| content(&entry.object)).collect()
}

/// The changes for a rollback to `then`. Objects that the file has taken over stay. Bypasses stay too: only
/// an operator or their expiry ends one, and a rollback must not bypass a rule again.
fn back(contents: &Contents, then: &ObjectMap) -> Vec<Change> {
    let is_meant = |(kind, _): &(ObjectKind, _), content: &ObjectContent| {
        *kind != ObjectKind::Bypass && content.owner == Owner::Api
    };
    let now = state(contents);
    let mut wanted = now.clone();
    wanted.retain(|key, content| !is_meant(key, content));
    for (key, content) in then.iter().filter(|(key, content)| is_meant(key, content)) {
        wanted.entry(key.clone()).or_insert_with(|| content.clone());
    }
    between(&now, &wanted)
}

fn between(before: &ObjectMap, after: &ObjectMap) -> Vec<Change> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let change = |key: &(ObjectKind, Arc<str>)| {
        let (before, after) = (before.get(key).cloned(), after.get(key).cloned());
        let (kind, name) = key.clone();
        (before != after).then_some(Change { kind, name, before, after })
    };
    names.into_iter().filter_map(change).collect()
}
