//! What operators do with the registry: look at objects and revisions, write, try a write out, go back. The same for every
//! way in (HTTP, gRPC), which know who asks and how the answer looks.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    config::{self, Config, LocatedProblem, Problems},
    core::{manifest::Manifest, object::ObjectKind},
    registry::{
        CommitOutcome, Contents, Registry, RegistryError, WriteProposal, Writer, bypass,
        document::{self, Prune},
        edit::{self, Edit, EditError},
        effect::{self, EffectInputs, Effects, StepFailures},
    },
    routing::RouteTable,
    store::Change,
    task::join::joined,
};

/// Most objects that a line of the log names.
const MAX_LOGGED_CHANGES: usize = 20;

/// Shows what would be in force in this process with other objects than there are.
pub trait Preview: Send + Sync {
    /// What `contents` would make.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    fn foresee(&self, contents: &Contents) -> Result<PreviewState, Problems>;
}

/// What would be in force.
pub struct PreviewState {
    /// The configuration.
    pub config: Arc<Config>,
    /// Its table, with the manifests that would be accepted.
    pub table: RouteTable,
    /// The manifests that would be accepted, as far as they are known; by plugin.
    pub manifests: BTreeMap<String, Arc<Manifest>>,
    /// Plugins that couldn't be called now, as far as that is known.
    pub troubles: StepFailures,
    /// Tenant-level config that plugins refuse.
    pub refused: Vec<Invalid>,
}

impl PreviewState {
    fn ground(&self) -> EffectInputs<'_> {
        EffectInputs { config: &self.config, table: &self.table, troubles: &self.troubles }
    }
}

/// The registry as operators have it.
pub struct Operations(ObjectsBackend);

/// Where objects are.
enum ObjectsBackend {
    /// In the file alone: what is in force of it, which nobody writes here.
    File(Box<dyn Fn() -> Arc<Contents> + Send + Sync>),
    /// In a registry.
    Registry { registry: Arc<Registry>, foresee: Arc<dyn Preview> },
}

/// Why something wasn't done.
#[derive(Debug)]
pub enum OperationError {
    /// The wish can't be granted.
    Refused(EditError),
    /// What would come of it is not right as a whole.
    Invalid(Vec<Invalid>),
    /// There is no such revision.
    NoRevision(u64),
    /// There is no registry: the file alone says what is there.
    NoRegistry,
    /// The registry can't be read or written.
    Registry(RegistryError),
}

/// One thing that is wrong with what would be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The object, where it is one.
    pub object: Option<(ObjectKind, String)>,
    /// Into the object, or else into the configuration.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

/// What came of a write.
#[derive(Debug)]
pub struct WriteOutcome {
    /// The revision that it made; none: nothing had to be changed, or it was only tried out.
    pub revision: Option<u64>,
    /// What it changed, or would.
    pub changes: Vec<Change>,
    /// Whom it changes something for, or would; none: what is there now isn't right here, so that nothing compares.
    pub effects: Option<Effects>,
    /// Plugins among the changes whose config nobody could check, because none of them was described yet.
    pub unvalidated: Vec<String>,
}

impl From<EditError> for OperationError {
    fn from(refusal: EditError) -> Self {
        OperationError::Refused(refusal)
    }
}

impl From<RegistryError> for OperationError {
    fn from(error: RegistryError) -> Self {
        OperationError::Registry(error)
    }
}

impl Operations {
    /// On `registry`; what comes of a write is shown by `foresee`.
    pub fn new(registry: Arc<Registry>, foresee: Arc<dyn Preview>) -> Self {
        Operations(ObjectsBackend::Registry { registry, foresee })
    }

    /// On a file, of which `in_force` says what is in force. Nothing can be written.
    pub fn from_file(in_force: impl Fn() -> Arc<Contents> + Send + Sync + 'static) -> Self {
        Operations(ObjectsBackend::File(Box::new(in_force)))
    }

    /// Whether there is a registry, so that objects have versions.
    pub fn has_registry(&self) -> bool {
        matches!(self.0, ObjectsBackend::Registry { .. })
    }

    /// What there is, as far as this process has read it.
    ///
    /// # Errors
    /// Nothing was ever read, and the store can't be read now.
    pub async fn contents(&self) -> Result<Arc<Contents>, OperationError> {
        match &self.0 {
            ObjectsBackend::File(in_force) => Ok(in_force()),
            ObjectsBackend::Registry { registry, .. } => {
                let contents = registry.contents();
                Ok(if contents.revision() > 0 { contents } else { registry.catch_up().await? })
            }
        }
    }

    /// The registry, read up to now.
    pub(super) async fn prepared(&self) -> Result<&Arc<Registry>, OperationError> {
        let (registry, _) = self.registry()?;
        registry.catch_up().await?;
        Ok(registry)
    }

    fn registry(&self) -> Result<(&Arc<Registry>, &Arc<dyn Preview>), OperationError> {
        match &self.0 {
            ObjectsBackend::File(_) => Err(OperationError::NoRegistry),
            ObjectsBackend::Registry { registry, foresee } => Ok((registry, foresee)),
        }
    }

    /// Grants `edits`, all or none of them, in one revision, in which there goes what `prune` is about, too; or only says
    /// what that would do.
    ///
    /// # Errors
    /// Nothing was written, but for [`RegistryError::Unknown`].
    pub async fn write(
        &self,
        writer: &Writer,
        edits: &[Edit],
        prune: Option<&Prune>,
        dry_run: bool,
    ) -> Result<WriteOutcome, OperationError> {
        let changes = |contents: &Contents| {
            let pruned = prune.map(|prune| prune.edits(contents, edits)).unwrap_or_default();
            Ok(edit::changes(contents, &[edits, &pruned].concat())?)
        };
        self.change(writer, dry_run, prune, changes).await
    }

    /// As [`Self::write`], with whatever `edit` makes of what is there.
    pub(super) async fn change(
        &self,
        writer: &Writer,
        dry_run: bool,
        prune: Option<&Prune>,
        edit: impl Fn(&Contents) -> Result<Vec<Change>, OperationError> + Sync,
    ) -> Result<WriteOutcome, OperationError> {
        let (registry, foresee) = self.registry()?;
        let edit = &edit;
        let propose = |now: Arc<Contents>| async move {
            let current = now.revision();
            if let Some(expected) = writer.upon.filter(|expected| *expected != current) {
                return Err(EditError::Revision { current, expected }.into());
            }
            let mut changes = edit(&now)?;
            changes.extend(bypass::outlived(&now, &changes));
            let finding = look(foresee, &now, &changes).await.map_err(|mut undone| {
                if let OperationError::Invalid(wrong) = &mut undone {
                    document::explain(wrong, &now, &changes, prune);
                }
                undone
            })?;
            Ok::<_, OperationError>(WriteProposal { changes, finding })
        };
        let CommitOutcome { revision, changes, finding } = registry.write(writer, dry_run, propose).await?;
        if let Some(revision) = revision {
            log_commit(writer, revision, &changes);
            // The writer reads what was written. Where that fails now, the registry is followed anyway.
            let _ = registry.catch_up().await;
        }
        Ok(WriteOutcome { revision, changes, effects: finding.effects, unvalidated: finding.unvalidated })
    }
}

/// Who did what, in the log.
fn log_commit(writer: &Writer, revision: u64, changes: &[Change]) {
    let mut objects = String::new();
    for change in changes.iter().take(MAX_LOGGED_CHANGES) {
        let did = match (&change.before, &change.after) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "changed",
        };
        let separator = if objects.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = fmt::Write::write_fmt(
            &mut objects,
            format_args!("{separator}{did} {} {}", change.kind, change.name),
        );
    }
    let Writer { author, reason, .. } = writer;
    tracing::info!(
        event = "registry.written",
        revision,
        author,
        reason,
        changes = changes.len(),
        objects,
        "the registry was written"
    );
}

/// Looks at what `changes` would do, on a thread that may take its time.
async fn look(
    foresee: &Arc<dyn Preview>,
    now: &Arc<Contents>,
    changes: &[Change],
) -> Result<ChangeAnalysis, OperationError> {
    let (foresee, now, changes) = (Arc::clone(foresee), Arc::clone(now), changes.to_vec());
    let looking = tokio::task::spawn_blocking(move || {
        let next = now.after(now.revision() + 1, &changes).map_err(RegistryError::from)?;
        let after = foresee.foresee(&next).map_err(|problems| OperationError::Invalid(invalid(&problems)))?;
        // Whoever mends what is there must be able to, though nothing compares with it.
        find(foresee.foresee(&now).ok().as_ref(), &after, &changes)
    });
    joined(looking).await
}

struct ChangeAnalysis {
    effects: Option<Effects>,
    unvalidated: Vec<String>,
}

/// What changes between the two, unless a plugin's schema refuses what it is to be given then.
fn find(
    before: Option<&PreviewState>,
    after: &PreviewState,
    changes: &[Change],
) -> Result<ChangeAnalysis, OperationError> {
    // What is refused already is not this write's fault.
    let is_new = |wrong: &&Invalid| before.is_none_or(|before| !before.refused.contains(wrong));
    let mut wrong: Vec<_> = after.refused.iter().filter(is_new).cloned().collect();
    let mut unvalidated = Vec::new();
    for change in changes.iter().filter(|change| change.kind == ObjectKind::Plugin && change.after.is_some())
    {
        let known = before.map_or_else(Vec::new, |before| beyond(&change.name, before));
        wrong.extend(beyond(&change.name, after).into_iter().filter(|wrong| !known.contains(wrong)));
        match validate(&change.name, after) {
            Ok(true) => {}
            Ok(false) => unvalidated.push(change.name.to_string()),
            Err(found) => wrong.extend(found),
        }
    }
    if !wrong.is_empty() {
        return Err(OperationError::Invalid(wrong));
    }
    let effects = before.map(|before| effect::effects(&before.ground(), &after.ground()));
    Ok(ChangeAnalysis { effects, unvalidated })
}

/// What a plugin's entry names that this process doesn't let it reach (docs/protocol.md, sections 5 and 7).
fn beyond(name: &str, at: &PreviewState) -> Vec<Invalid> {
    let plugin = at.config.plugins.iter().find(|plugin| plugin.name == name);
    let reach = at.config.reach();
    let flaws = plugin.into_iter().flat_map(|plugin| {
        let flaws = reach.flaws(plugin);
        if flaws.is_empty() { reach.strays(plugin) } else { flaws }
    });
    let one = |flaw: config::Problem| Invalid {
        object: Some((ObjectKind::Plugin, name.to_owned())),
        message: flaw.sentence(),
        pointer: flaw.pointer,
    };
    flaws.map(one).collect()
}

/// Whether a plugin's config could be checked against its schema.
///
/// # Errors
/// The schema refuses it.
fn validate(name: &str, after: &PreviewState) -> Result<bool, Vec<Invalid>> {
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
            object: Some((ObjectKind::Plugin, name.to_owned())),
            pointer: format!("/config{}", error.instance_path()),
            // Masked: somebody may have written a secret there.
            message: format!("it violates the plugin's schema: {}", error.masked()),
        })
        .collect();
    if wrong.is_empty() { Ok(true) } else { Err(wrong) }
}

fn holds_reference(value: &serde_json::Value) -> bool {
    value.as_str().is_some_and(config::is_reference)
}

/// Problems of what would be there, for whoever wants to write it.
pub fn invalid(problems: &Problems) -> Vec<Invalid> {
    let one = |located: &LocatedProblem| {
        let problem = &located.problem;
        Invalid {
            object: located.object.clone(),
            pointer: problem.pointer.clone(),
            message: problem.sentence(),
        }
    };
    problems.iter().map(one).collect()
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
