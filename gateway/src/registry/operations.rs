//! What operators do with the registry: look at objects and revisions, write, try a write out, go back. The same for every
//! way in (HTTP, gRPC), which know who asks and how the answer looks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    config::{self, Config, Located, Problems},
    registry::{
        Contents, Proposal, Registry, RegistryError, Writer, Written,
        edit::{self, Edit, Refusal},
        effect::{self, Effects, Ground},
    },
    routing::{Manifest, RouteTable},
    store::{Change, Content, Kind, Object, Owner, Revision},
};

/// Most revisions that are read at once to go back.
const MOST_AT_ONCE: usize = 100;

/// Shows what would be in force in this process with other objects than there are.
pub trait Foresee: Send + Sync {
    /// What `contents` would make.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    fn foresee(&self, contents: &Contents) -> Result<Foreseen, Problems>;
}

/// What would be in force.
pub struct Foreseen {
    /// The configuration.
    pub config: Arc<Config>,
    /// Its table, with the manifests that are accepted now.
    pub table: RouteTable,
    /// The accepted manifests, by plugin.
    pub manifests: BTreeMap<String, Arc<Manifest>>,
    /// Tenant-level config that plugins refuse.
    pub refused: Vec<Invalid>,
}

impl Foreseen {
    fn ground(&self) -> Ground<'_> {
        Ground { config: &self.config, table: &self.table }
    }
}

/// The registry as operators have it.
pub struct Operations {
    registry: Arc<Registry>,
    foresee: Arc<dyn Foresee>,
}

/// Why something wasn't done.
#[derive(Debug)]
pub enum Undone {
    /// The wish can't be granted.
    Refused(Refusal),
    /// What would come of it is not right as a whole.
    Invalid(Vec<Invalid>),
    /// There is no such revision.
    NoRevision(u64),
    /// The registry can't be read or written.
    Registry(RegistryError),
}

/// One thing that is wrong with what would be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The object, where it is one.
    pub object: Option<(Kind, String)>,
    /// Into the object, or else into the configuration.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

/// What came of a write.
#[derive(Debug)]
pub struct Outcome {
    /// The revision that it made; none: nothing had to be changed, or it was only tried out.
    pub revision: Option<u64>,
    /// What it changed, or would.
    pub changes: Vec<Change>,
    /// Whom it changes something for, or would.
    pub effects: Effects,
    /// Plugins among the changes whose config nobody could check, because none of them was described yet.
    pub unvalidated: Vec<String>,
}

impl From<Refusal> for Undone {
    fn from(refusal: Refusal) -> Self {
        Undone::Refused(refusal)
    }
}

impl From<RegistryError> for Undone {
    fn from(error: RegistryError) -> Self {
        Undone::Registry(error)
    }
}

impl Operations {
    /// On `registry`; what comes of a write is shown by `foresee`.
    pub fn new(registry: Arc<Registry>, foresee: Arc<dyn Foresee>) -> Self {
        Operations { registry, foresee }
    }

    /// What the registry holds as far as this process has read it.
    pub fn contents(&self) -> Arc<Contents> {
        self.registry.contents()
    }

    /// Grants `edits`, all or none of them, in one revision; or only says what that would do.
    ///
    /// # Errors
    /// Nothing was written, but for [`RegistryError::Unknown`].
    pub async fn write(&self, writer: &Writer, edits: &[Edit], dry_run: bool) -> Result<Outcome, Undone> {
        self.change(writer, dry_run, |contents| Ok(edit::changes(contents, edits)?)).await
    }

    /// Makes what the API owns what it was at the revision `number`; what the file owns stays.
    ///
    /// # Errors
    /// See [`Operations::write`].
    pub async fn roll_back(&self, writer: &Writer, number: u64, dry_run: bool) -> Result<Outcome, Undone> {
        let then = self.at(number).await?;
        self.change(writer, dry_run, |contents| Ok(back(contents, &then))).await
    }

    /// The last revisions before `before`, newest first, `most` at most.
    ///
    /// # Errors
    /// The store can't be read.
    pub async fn revisions(&self, before: Option<u64>, most: usize) -> Result<Vec<Revision>, Undone> {
        let revisions = self.registry.store.before(before, most).await;
        Ok(self.registry.noted(revisions).map_err(RegistryError::from)?)
    }

    /// One revision.
    ///
    /// # Errors
    /// There is none, or the store can't be read.
    pub async fn revision(&self, number: u64) -> Result<Revision, Undone> {
        let revision = self.registry.store.revision(number).await;
        let revision = self.registry.noted(revision).map_err(RegistryError::from)?;
        revision.ok_or(Undone::NoRevision(number))
    }

    /// What differs between two revisions, whichever is older.
    ///
    /// # Errors
    /// There is no such revision, or the store can't be read.
    pub async fn difference(&self, from: u64, to: u64) -> Result<Vec<Change>, Undone> {
        let (from, to) = (self.at(from).await?, self.at(to).await?);
        let names: BTreeSet<_> = from.keys().chain(to.keys()).collect();
        let change = |key: &(Kind, Arc<str>)| {
            let (before, after) = (from.get(key).cloned(), to.get(key).cloned());
            let (kind, name) = key.clone();
            (before != after).then_some(Change { kind, name, before, after })
        };
        Ok(names.into_iter().filter_map(change).collect())
    }

    /// The objects as they were at the revision `number`: what is there now, with every later change undone.
    async fn at(&self, number: u64) -> Result<State, Undone> {
        let now = self.registry.catch_up().await?;
        if number > now.revision() {
            return Err(Undone::NoRevision(number));
        }
        let content = |object: &Object| ((object.kind, Arc::clone(&object.name)), object.content.clone());
        let mut state: State = now.entries().iter().map(|entry| content(&entry.object)).collect();
        let mut at = now.revision();
        while at > number {
            let most = usize::try_from(at - number).unwrap_or(usize::MAX).min(MOST_AT_ONCE);
            for revision in self.revisions(Some(at + 1), most).await? {
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

    async fn change(
        &self,
        writer: &Writer,
        dry_run: bool,
        edit: impl Fn(&Contents) -> Result<Vec<Change>, Undone> + Sync,
    ) -> Result<Outcome, Undone> {
        let edit = &edit;
        let propose = |now: Arc<Contents>| async move {
            let changes = edit(&now)?;
            let finding = self.look(&now, &changes).await?;
            Ok::<_, Undone>(Proposal { changes, finding })
        };
        let Written { revision, changes, finding } = self.registry.write(writer, dry_run, propose).await?;
        Ok(Outcome { revision, changes, effects: finding.effects, unvalidated: finding.unvalidated })
    }

    /// Looks at what `changes` would do, on a thread that may take its time.
    async fn look(&self, now: &Arc<Contents>, changes: &[Change]) -> Result<Finding, Undone> {
        let next = now.after(now.revision() + 1, changes).map_err(RegistryError::from)?;
        let (foresee, now, changes) = (Arc::clone(&self.foresee), Arc::clone(now), changes.to_vec());
        let looked = tokio::task::spawn_blocking(move || {
            let before = foresee.foresee(&now).map_err(|problems| Undone::Invalid(invalid(&problems)))?;
            let after = foresee.foresee(&next).map_err(|problems| Undone::Invalid(invalid(&problems)))?;
            find(&before, &after, &changes)
        });
        looked.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Objects by kind and name.
type State = BTreeMap<(Kind, Arc<str>), Content>;

struct Finding {
    effects: Effects,
    unvalidated: Vec<String>,
}

/// What changes between the two, unless a plugin's schema refuses what it is to be given then.
fn find(before: &Foreseen, after: &Foreseen, changes: &[Change]) -> Result<Finding, Undone> {
    // What is refused already is not this write's fault.
    let mut wrong: Vec<_> =
        after.refused.iter().filter(|wrong| !before.refused.contains(wrong)).cloned().collect();
    let mut unvalidated = Vec::new();
    for change in changes.iter().filter(|change| change.kind == Kind::Plugin && change.after.is_some()) {
        let beyond = beyond(&change.name, before);
        wrong.extend(self::beyond(&change.name, after).into_iter().filter(|wrong| !beyond.contains(wrong)));
        match validate(&change.name, after) {
            Ok(true) => {}
            Ok(false) => unvalidated.push(change.name.to_string()),
            Err(found) => wrong.extend(found),
        }
    }
    if !wrong.is_empty() {
        return Err(Undone::Invalid(wrong));
    }
    let effects = effect::effects(&before.ground(), &after.ground());
    Ok(Finding { effects, unvalidated })
}

/// What a plugin's entry names that this process doesn't let it reach (docs/protocol.md, sections 5 and 7).
fn beyond(name: &str, at: &Foreseen) -> Vec<Invalid> {
    let plugin = at.config.plugins.iter().find(|plugin| plugin.name == name);
    let reach = at.config.reach();
    let flaws = plugin.into_iter().flat_map(|plugin| {
        let flaws = reach.flaws(plugin);
        if flaws.is_empty() { reach.strays(plugin) } else { flaws }
    });
    let one = |flaw: config::Problem| Invalid {
        object: Some((Kind::Plugin, name.to_owned())),
        message: flaw.sentence(),
        pointer: flaw.pointer,
    };
    flaws.map(one).collect()
}

/// Whether a plugin's config could be checked against its schema.
///
/// # Errors
/// The schema refuses it.
fn validate(name: &str, after: &Foreseen) -> Result<bool, Vec<Invalid>> {
    let Some(manifest) = after.manifests.get(name) else { return Ok(false) };
    let Some(schema) = &manifest.config_schema else { return Ok(true) };
    let Some(plugin) = after.config.plugins.iter().find(|plugin| plugin.name == name) else {
        return Ok(true);
    };
    let config = serde_json::Value::Object(plugin.config.clone());
    let wrong: Vec<_> = schema
        .iter_errors(&config)
        // What a reference resolves to is known where it is resolved, and checked there.
        .filter(|error| !holds_reference(error.instance()))
        .map(|error| Invalid {
            object: Some((Kind::Plugin, name.to_owned())),
            pointer: format!("/config{}", error.instance_path()),
            // Masked: somebody may have written a secret there.
            message: format!("the plugin's schema refuses it: {}", error.masked()),
        })
        .collect();
    if wrong.is_empty() { Ok(true) } else { Err(wrong) }
}

fn holds_reference(value: &serde_json::Value) -> bool {
    value.as_str().is_some_and(config::is_reference)
}

/// What has to change for what the API owns to be as it was `then`. An object that the file has taken over stays its.
fn back(contents: &Contents, then: &State) -> Vec<Change> {
    let is_api = |content: &Content| content.owner == Owner::Api;
    let now: State = contents
        .entries()
        .iter()
        .map(|entry| ((entry.object.kind, Arc::clone(&entry.object.name)), entry.object.content.clone()))
        .collect();
    let names: BTreeSet<_> = now.keys().chain(then.keys()).collect();
    let change = |key: &(Kind, Arc<str>)| {
        let (before, after) = (now.get(key), then.get(key).filter(|content| is_api(content)));
        if before == after || before.is_some_and(|before| !is_api(before)) {
            return None;
        }
        let (kind, name) = key.clone();
        Some(Change { kind, name, before: before.cloned(), after: after.cloned() })
    };
    names.into_iter().filter_map(change).collect()
}

/// Problems of what would be there, for whoever wants to write it.
pub fn invalid(problems: &Problems) -> Vec<Invalid> {
    let one = |located: &Located| {
        let problem = &located.problem;
        let remedy = problem.remedy.iter().map(|remedy| format!(": {remedy}"));
        let message = std::iter::once(problem.message.clone()).chain(remedy).collect();
        Invalid { object: located.object.clone(), pointer: problem.pointer.clone(), message }
    };
    problems.iter().map(one).collect()
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
