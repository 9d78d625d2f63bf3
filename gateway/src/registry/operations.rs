//! What operators do with the registry: read objects and revisions, write, preview a write, roll back. HTTP
//! and gRPC share this code; they authenticate the caller and encode the answer.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tracing::Instrument as _;

use crate::{
    config::{self, Config, LocatedProblem, Problems},
    core::{control_span::record_error, manifest::Manifest, object::ObjectKind, schema_violation},
    registry::{
        CommitOutcome, Contents, Registry, RegistryError, WriteProposal, Writer, bypass,
        document::{self, Prune},
        edit::{self, Edit, EditError},
        effect::{self, EffectInputs, Effects, StepFailures},
        write_span,
    },
    routing::RouteTable,
    store::Change,
    task::join::joined,
};

/// The maximum number of objects in a log line.
const MAX_LOGGED_CHANGES: usize = 20;

/// Computes what would be active in this process with other objects. Every write asks it before it commits; a dry run is the
/// same without the commit.
pub trait DryRunner: Send + Sync {
    /// What `contents` would make.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    fn dry_run(&self, contents: &Contents) -> Result<DryRunState, Problems>;
}

/// What would be active.
pub struct DryRunState {
    /// The configuration.
    pub config: Arc<Config>,
    /// The table, built with the manifests that would be accepted.
    pub table: RouteTable,
    /// The known manifests that would be accepted, by plugin.
    pub manifests: BTreeMap<String, Arc<Manifest>>,
    /// Plugins that are known to fail now if called.
    pub troubles: StepFailures,
    /// Tenant-level config that plugins reject.
    pub refused: Vec<Invalid>,
}

impl DryRunState {
    fn ground(&self) -> EffectInputs<'_> {
        EffectInputs { config: &self.config, table: &self.table, troubles: &self.troubles }
    }
}

/// The registry as operators use it.
pub struct Operations(ObjectsBackend);

/// Where the objects are.
enum ObjectsBackend {
    /// In the file only. The function returns the active contents; they can't be written.
    File(Box<dyn Fn() -> Arc<Contents> + Send + Sync>),
    /// In a registry.
    Registry { registry: Arc<Registry>, dry_runner: Arc<dyn DryRunner> },
}

/// Why an operation was not carried out.
#[derive(Debug)]
pub enum OperationError {
    /// The edit is not possible.
    Refused(EditError),
    /// The contents would be invalid after the write.
    Invalid(Vec<Invalid>),
    NoRevision(u64),
    /// There is no registry; the objects are in the file only.
    NoRegistry,
    Registry(RegistryError),
}

/// One error in the contents as they would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The object that the error is in, if it is in one.
    pub object: Option<(ObjectKind, String)>,
    /// Into the object, or into the configuration if there is no object.
    pub pointer: String,
    pub message: String,
}

/// The result of a write.
#[derive(Debug)]
pub struct WriteOutcome {
    /// The new revision; `None` for a dry run, or if nothing needed to change.
    pub revision: Option<u64>,
    /// The changes that were made, or would be.
    pub changes: Vec<Change>,
    /// The effects on tenants; `None` if the current contents are invalid on this gateway, so that there is
    /// nothing to compare with.
    pub effects: Option<Effects>,
    /// Changed plugins whose config could not be checked, because no manifest is known yet.
    pub unvalidated: Vec<String>,
}

impl OperationError {
    /// The name of the kind, for telemetry.
    const fn as_str(&self) -> &'static str {
        match self {
            OperationError::Refused(_) => "refused",
            OperationError::Invalid(_) => "invalid",
            OperationError::NoRevision(_) => "no_revision",
            OperationError::NoRegistry => "no_registry",
            OperationError::Registry(error) => error.as_str(),
        }
    }
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
    /// On `registry`; `dry_runner` computes what a write would do.
    pub fn new(registry: Arc<Registry>, dry_runner: Arc<dyn DryRunner>) -> Self {
        Operations(ObjectsBackend::Registry { registry, dry_runner })
    }

    /// Read-only operations on a file's objects; `current` returns the active ones.
    pub fn from_file(current: impl Fn() -> Arc<Contents> + Send + Sync + 'static) -> Self {
        Operations(ObjectsBackend::File(Box::new(current)))
    }

    /// Whether there is a registry. Objects have versions only in a registry.
    pub fn has_registry(&self) -> bool {
        matches!(self.0, ObjectsBackend::Registry { .. })
    }

    /// The current contents, as far as this process has read them.
    ///
    /// # Errors
    /// If nothing was ever read and the store can't be read now.
    pub async fn contents(&self) -> Result<Arc<Contents>, OperationError> {
        match &self.0 {
            ObjectsBackend::File(current) => Ok(current()),
            ObjectsBackend::Registry { registry, .. } => {
                let contents = registry.contents();
                Ok(if contents.revision() > 0 { contents } else { registry.catch_up().await? })
            }
        }
    }

    /// The plugin `name` in the newest revision.
    ///
    /// # Errors
    /// If there is no registry, or it can't be read.
    pub async fn newest_plugin(&self, name: &str) -> Result<Option<Arc<config::Plugin>>, OperationError> {
        let registry = self.prepared().await?;
        Ok(registry.contents().plugin(name).cloned())
    }

    /// Deletes everything that a plugin stored. Returns how many entries there were.
    ///
    /// # Errors
    /// If there is no registry, or its store fails; then some entries may be deleted.
    pub async fn delete_plugin_data(&self, plugin: &str) -> Result<u64, OperationError> {
        let (registry, _) = self.registry()?;
        registry
            .plugin_data()
            .delete_plugin(plugin)
            .await
            .map_err(|error| OperationError::Registry(error.into()))
    }

    /// The registry, after reading up to the current revision.
    pub(super) async fn prepared(&self) -> Result<&Arc<Registry>, OperationError> {
        let (registry, _) = self.registry()?;
        registry.catch_up().await?;
        Ok(registry)
    }

    fn registry(&self) -> Result<(&Arc<Registry>, &Arc<dyn DryRunner>), OperationError> {
        match &self.0 {
            ObjectsBackend::File(_) => Err(OperationError::NoRegistry),
            ObjectsBackend::Registry { registry, dry_runner } => Ok((registry, dry_runner)),
        }
    }

    /// Makes all of `edits`, and the deletions of `prune`, in one revision, or none of them. A dry run only
    /// computes the effects.
    ///
    /// # Errors
    /// Nothing was written, except perhaps for [`RegistryError::Unknown`].
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

    /// Like [`Self::write`], with the changes that `edit` computes from the current contents.
    pub(super) async fn change(
        &self,
        writer: &Writer,
        dry_run: bool,
        prune: Option<&Prune>,
        edit: impl Fn(&Contents) -> Result<Vec<Change>, OperationError> + Sync,
    ) -> Result<WriteOutcome, OperationError> {
        let span = write_span(writer, dry_run);
        let outcome = self.propose_and_commit(writer, dry_run, prune, edit).instrument(span.clone()).await;
        match &outcome {
            Ok(outcome) => {
                span.record("hookgate.revision", outcome.revision);
            }
            Err(error) => record_error(&span, error.as_str()),
        }
        outcome
    }

    async fn propose_and_commit(
        &self,
        writer: &Writer,
        dry_run: bool,
        prune: Option<&Prune>,
        edit: impl Fn(&Contents) -> Result<Vec<Change>, OperationError> + Sync,
    ) -> Result<WriteOutcome, OperationError> {
        let (registry, dry_runner) = self.registry()?;
        let edit = &edit;
        let propose = |now: Arc<Contents>| async move {
            let current = now.revision();
            if let Some(expected) = writer.upon.filter(|expected| *expected != current) {
                return Err(EditError::Revision { current, expected }.into());
            }
            let mut changes = edit(&now)?;
            changes.extend(bypass::outlived(&now, &changes));
            let finding = look(dry_runner, &now, &changes).await.map_err(|mut undone| {
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
            // The writer must be able to read its own write. If this fails, the registry is read later
            // anyway.
            let _ = registry.catch_up().await;
        }
        Ok(WriteOutcome { revision, changes, effects: finding.effects, unvalidated: finding.unvalidated })
    }
}

/// Logs who changed what.
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

/// Computes the effects of `changes` on a blocking thread, because it can take long.
async fn look(
    dry_runner: &Arc<dyn DryRunner>,
    now: &Arc<Contents>,
    changes: &[Change],
) -> Result<ChangeAnalysis, OperationError> {
    let (dry_runner, now, changes) = (Arc::clone(dry_runner), Arc::clone(now), changes.to_vec());
    let looking = tokio::task::spawn_blocking(move || {
        let next = now.after(now.revision() + 1, &changes).map_err(RegistryError::from)?;
        let after =
            dry_runner.dry_run(&next).map_err(|problems| OperationError::Invalid(invalid(&problems)))?;
        // A write that repairs an invalid registry must be possible, although no effect can be computed.
        find(dry_runner.dry_run(&now).ok().as_ref(), &after, &changes)
    });
    joined(looking).await
}

struct ChangeAnalysis {
    effects: Option<Effects>,
    unvalidated: Vec<String>,
}

/// Compares the two states, and rejects config that a plugin's schema newly rejects.
fn find(
    before: Option<&DryRunState>,
    after: &DryRunState,
    changes: &[Change],
) -> Result<ChangeAnalysis, OperationError> {
    // Config that was already rejected before is not this write's fault.
    let is_new = |wrong: &&Invalid| before.is_none_or(|before| !before.refused.contains(wrong));
    let mut wrong: Vec<_> = after.refused.iter().filter(is_new).cloned().collect();
    wrong.extend(changes.iter().flat_map(|change| model_flaws(change, before, after)));
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
fn beyond(name: &str, at: &DryRunState) -> Vec<Invalid> {
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

/// What is wrong with a written upstream or rule for models on this gateway, unless it was so before.
fn model_flaws(change: &Change, before: Option<&DryRunState>, after: &DryRunState) -> Vec<Invalid> {
    let is_of_llm = matches!(change.kind, ObjectKind::Upstream | ObjectKind::Model);
    if !is_of_llm || change.after.is_none() {
        return Vec::new();
    }
    let object = Some((change.kind, change.name.to_string()));
    if after.config.llm.is_none() {
        let message =
            "this gateway's configuration has no `llm`, so it can't check the entry: set `llm: {}` in it";
        return vec![Invalid { object, pointer: String::new(), message: message.to_owned() }];
    }
    let flaws = |at: &DryRunState| {
        let upstreams = at.config.llm.iter().flat_map(|llm| &llm.upstreams);
        let mut named = upstreams.filter(|upstream| upstream.name == *change.name);
        named.next().filter(|_| change.kind == ObjectKind::Upstream).map(|upstream| upstream.flaws())
    };
    let known = before.and_then(flaws).unwrap_or_default();
    let new = flaws(after).unwrap_or_default().into_iter().filter(|flaw| !known.contains(flaw));
    let invalid = |flaw: config::Problem| Invalid {
        object: object.clone(),
        message: flaw.sentence(),
        pointer: flaw.pointer,
    };
    new.map(invalid).collect()
}

/// Checks a plugin's config against its schema. Returns false if no manifest is known.
///
/// # Errors
/// The schema refuses it.
fn validate(name: &str, after: &DryRunState) -> Result<bool, Vec<Invalid>> {
    let Some(manifest) = after.manifests.get(name) else { return Ok(false) };
    let Some(schema) = &manifest.config_schema else { return Ok(true) };
    let Some(plugin) = after.config.plugins.iter().find(|plugin| plugin.name == name) else {
        return Ok(true);
    };
    let config = serde_json::Value::Object(plugin.config.clone());
    let wrong: Vec<_> = schema
        .iter_errors(&config)
        // Values of references are unknown here. They are checked where they are resolved.
        .filter(|error| !holds_reference(error.instance()))
        .map(|error| Invalid {
            object: Some((ObjectKind::Plugin, name.to_owned())),
            pointer: format!("/config{}", error.instance_path()),
            message: format!("it violates the plugin's schema: {}", schema_violation::rule(&error)),
        })
        .collect();
    if wrong.is_empty() { Ok(true) } else { Err(wrong) }
}

fn holds_reference(value: &serde_json::Value) -> bool {
    value.as_str().is_some_and(config::is_reference)
}

/// Converts problems of the contents to errors for the writer.
pub fn invalid(problems: &Problems) -> Vec<Invalid> {
    let one = |located: &LocatedProblem| {
        let object = located.object.as_ref();
        Invalid {
            object: object.map(|object| (object.kind, object.name.clone())),
            pointer: object.map_or(&located.problem.pointer, |object| &object.pointer).clone(),
            message: located.problem.sentence(),
        }
    };
    problems.iter().map(one).collect()
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
