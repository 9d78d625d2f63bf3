//! Loads a [`Config`] from a path, or reports all its mistakes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::Arc,
};

use serde_json::Value;

use crate::{
    config::{
        check::check,
        environment,
        model::Config,
        objects::ObjectSet,
        partial_config::PartialConfig,
        problem::{Problem, ProblemSource, Problems},
        reference,
        schema::{self, Schema},
        tree::{self, Node, NodeKind, ValueOrigin},
        validate::validate,
    },
    fs::read_limited,
    json::pointer,
};

pub const MAX_FILE: u64 = 16 << 20;

/// A configuration, and the source for showing further problems in its file.
#[derive(Clone)]
pub struct LoadedConfig {
    pub config: Config,
    /// Shared, because it is as large as the file, and every configuration made with a registry's objects has
    /// it.
    pub(super) source: Arc<ProblemSource>,
    /// If the objects come from a registry: those that the file applies to it.
    pub(super) of_file: Option<Arc<ObjectSet>>,
}

impl LoadedConfig {
    /// Renders problems that others found in [`LoadedConfig::config`], with their lines.
    pub fn render(&self, problems: &[Problem]) -> Problems {
        let registry = self.registry_places();
        self.source.render(problems, |pointer| registry.as_ref()?.find(pointer))
    }
}

impl fmt::Debug for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Reads the file at `path`, resolves its references in `env` and applies the `HOOKGATE__*` variables of
/// `env`.
///
/// # Errors
/// All mistakes of the file and of the environment, each with its place and without secrets.
pub fn load(path: &Path, env: impl IntoIterator<Item = (String, String)>) -> Result<LoadedConfig, Problems> {
    load_for(path, env, ConfigReader::Gateway)
}

/// Like [`load`], but the variables of plugins' `config` and of providers' keys may be unset, and those keys are not resolved.
/// For commands that call no plugin and no provider.
///
/// # Errors
/// As [`load`].
pub fn load_without_outgoing_secrets(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<LoadedConfig, Problems> {
    load_for(path, env, ConfigReader::Command)
}

/// What a configuration is read for. It decides which references are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigReader {
    /// A gateway, which needs the secrets that it sends to providers.
    Gateway,
    /// A registry, which keeps the references to providers' keys as written.
    Registry,
    /// A command that calls no plugin and no provider.
    Command,
}

fn load_for(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
    reader: ConfigReader,
) -> Result<LoadedConfig, Problems> {
    let file = path.display().to_string();
    let text = read(path, "give the path of a configuration that this process may read")?;
    parse(file, &text, env, reader)
}

/// The text of a file.
///
/// # Errors
/// It can't be read, for which `remedy` says what to do, is too large, or is no text.
pub(super) fn read(path: &Path, remedy: &str) -> Result<String, Problems> {
    let fault = |message: &str, remedy: &str| Problems::nowhere(&path.display().to_string(), message, remedy);
    let read = read_limited::file(path, MAX_FILE);
    let read = read.map_err(|error| fault(&format!("can't be read: {error}"), remedy))?;
    let bytes = read.ok_or_else(|| fault("is larger than 16 MiB", "keep it within 16 MiB"))?;
    String::from_utf8(bytes).map_err(|_| fault("is not UTF-8 text", "save it as UTF-8"))
}

/// Like [`load`], for a text that problems refer to as `file`.
///
/// # Errors
/// As [`load`].
pub fn from_text(
    file: String,
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<LoadedConfig, Problems> {
    parse(file, text, env, ConfigReader::Gateway)
}

fn parse(
    file: String,
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
    reader: ConfigReader,
) -> Result<LoadedConfig, Problems> {
    let env: BTreeMap<String, String> = env.into_iter().collect();
    let schema = Schema::new();
    let parsed = tree::parse(text);
    let mut source = ProblemSource::new(file, text, &parsed, &schema);
    let mut problems: Vec<Problem> = parsed.faults.into_iter().map(Problem::from).collect();
    let Some(mut root) = parsed.root else {
        if problems.is_empty() {
            problems.push(Problem::new("", "the file is empty").remedy("at least `auth` is required"));
        }
        return Err(source.render(&problems, |_| None));
    };
    let ReferenceReport { problems: unresolved, known, unset } = resolve(&mut root, &env, &schema, reader);
    problems.extend(unresolved);
    problems.extend(environment::overlay(&mut root, &env, &schema));
    source.resolved(&root);

    let value = root.to_json();
    if reader == ConfigReader::Gateway {
        problems.extend(unset.into_iter().filter(|problem| is_in_use(problem, &value)));
    }
    let mut misfits = validate(&value, &schema, &known);
    problems.append(&mut misfits.problems);
    misfits.pointers.extend(known);
    problems.extend(check(&PartialConfig::new(&value, &misfits.pointers, &schema)));
    if !problems.is_empty() {
        return Err(source.render(&problems, |_| None));
    }
    match serde_json::from_value::<Config>(value) {
        Ok(mut config) => {
            config.take_tenant_credentials();
            config.number_models();
            Ok(LoadedConfig { config, source: Arc::new(source), of_file: None })
        }
        // The error would quote the value. This can't happen, because the schema is stricter than the types.
        Err(_) => Err(source.render(&[Problem::new("", "a value doesn't fit its type")], |_| None)),
    }
}

/// The result of resolving the references of a file.
#[derive(Default)]
pub(super) struct ReferenceReport {
    pub(super) problems: Vec<Problem>,
    /// The pointers of the values with problems.
    pub(super) known: BTreeSet<String>,
    /// Unset variables of references that are kept: in the config of plugins, a mistake only if the plugin is in use.
    unset: Vec<Problem>,
}

/// Resolves the references of `root` that aren't kept for `reader`.
pub(super) fn resolve(
    root: &mut Node,
    env: &BTreeMap<String, String>,
    schema: &Schema,
    reader: ConfigReader,
) -> ReferenceReport {
    let mut references = ReferenceReport::default();
    root.scalars_mut("", &mut |pointer, node| {
        let NodeKind::Text(text) = &node.kind else { return };
        let result = match ReferenceMode::at(pointer, reader) {
            Some(ReferenceMode::AsReference) => {
                let unset = reference::unset(text, env);
                references.unset.extend(unset.map(|message| Problem::new(pointer, message)));
                reference::check(text).map(|()| None)
            }
            Some(ReferenceMode::AsText) if reference::is_reference(text) => {
                Err("tenant-level config holds no references: write the value (`$$` for a `$`), or move the key to \
                     the plugin's `config`"
                    .into())
            }
            Some(ReferenceMode::AsText) | None => reference::resolve(text, env).map(Some),
        };
        match result {
            Ok(None) => {}
            Ok(Some(resolved)) if reference::is_reference(text) => {
                *node = Node {
                    kind: schema::typed(&resolved, schema.at(pointer)),
                    region: node.region,
                    origin: ValueOrigin::Reference(text.clone()),
                };
            }
            Ok(Some(resolved)) => node.kind = NodeKind::Text(resolved),
            Err(message) => {
                references.known.insert(pointer.to_owned());
                references.problems.push(Problem::new(pointer, message));
            }
        }
    });
    references
}

/// Whether the plugin that contains a problem is enabled.
fn is_in_use(problem: &Problem, value: &Value) -> bool {
    let plugin: String = problem.pointer.split_inclusive('/').take(3).collect();
    value.pointer(&format!("{plugin}enabled")) != Some(&Value::Bool(false))
}

/// How to treat references that are not resolved here.
enum ReferenceMode {
    /// Plugin-level config: resolved at Initialize. The key of an upstream in the registry: resolved in each gateway.
    AsReference,
    /// Tenant-level config: contains no references.
    AsText,
}

impl ReferenceMode {
    /// The mode of the value at `pointer` in what is read for `reader`. `None` is to resolve its reference.
    fn at(pointer: &str, reader: ConfigReader) -> Option<Self> {
        let keys: Vec<_> = pointer::keys(pointer).collect();
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        match (keys.as_slice(), reader) {
            (["plugins", _, "config", ..], _)
            | (["llm", "upstreams", _, "credential"], ConfigReader::Registry | ConfigReader::Command)
            | (["tenants", "list", _, "llm", "credentials", _], ConfigReader::Command) => {
                Some(ReferenceMode::AsReference)
            }
            (["bindings", _, "config", ..] | ["tenants", "list", _, "config", ..], _) => {
                Some(ReferenceMode::AsText)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
