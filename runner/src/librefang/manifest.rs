//! `plugin.toml`, the manifest of a LibreFang plugin.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use hookgate::fs::read_limited;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    environment::{self, Environment},
    script::{Launcher, Script, ScriptKind, contained_file},
};

/// The name of the file.
pub(crate) const FILE: &str = "plugin.toml";
/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Longest time that a manifest may ask for, for a call and for a delay.
const MAX_TIME: Duration = Duration::from_secs(3600);
/// What a manifest may set that the gateway's configuration or the runner's file decides here.
const WITHOUT_EFFECT: [&str; 17] = [
    "after_turn_queue_depth",
    "allow_filesystem",
    "allow_network",
    "allowed_secrets",
    "assemble_cache_ttl_secs",
    "circuit_breaker",
    "compact_cache_ttl_secs",
    "env_schema",
    "hook_cache_ttl_secs",
    "hook_schemas",
    "max_memory_mb",
    "on_hook_failure",
    "otel_endpoint",
    "prewarm_subprocesses",
    "priority",
    "requirements",
    "requires",
];

/// A manifest that was read and checked.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) scripts: Vec<Script>,
    pub(crate) launcher: Launcher,
    pub(crate) environment: Environment,
    /// The settings of the plugin, with their defaults.
    pub(crate) config: BTreeMap<String, ConfigField>,
    /// SHA-256 digests by file.
    pub(crate) integrity: BTreeMap<PathBuf, String>,
    pub(crate) ingest_filter: Option<String>,
    pub(crate) ingest_regex: Option<Regex>,
    /// Parts of the ids of the agents that it is for. Empty for all.
    pub(crate) agents: Vec<String>,
    pub(crate) time: Option<Duration>,
    pub(crate) max_retries: u32,
    pub(crate) retry_delay: Duration,
    pub(crate) is_persistent: bool,
    pub(crate) has_state: bool,
    /// What an operator should know.
    pub(crate) warnings: Vec<String>,
}

/// What a manifest is read with.
pub(crate) struct ManifestContext<'a> {
    /// The plugin's folder, without links.
    pub(crate) folder: &'a Path,
    /// Where interpreters are looked for.
    pub(crate) path: &'a str,
    /// The variables of the runner that the plugin may have.
    pub(crate) allowed_env: &'a [String],
}

#[derive(Deserialize)]
struct WrittenManifest {
    name: String,
    version: String,
    #[serde(default)]
    hooks: WrittenHooks,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    config: BTreeMap<String, Value>,
    #[serde(default)]
    integrity: BTreeMap<String, String>,
    #[serde(flatten)]
    settings: Settings,
}

#[derive(Default, Deserialize)]
struct WrittenHooks {
    #[serde(flatten)]
    settings: Settings,
    /// The scripts, and what isn't known.
    #[serde(flatten)]
    scripts: BTreeMap<String, Value>,
}

/// Settings that may stand above `[hooks]` or in it.
#[derive(Default, Deserialize)]
struct Settings {
    runtime: Option<String>,
    hook_timeout_secs: Option<u64>,
    max_retries: Option<u32>,
    retry_delay_ms: Option<u64>,
    ingest_filter: Option<String>,
    ingest_regex: Option<String>,
    only_for_agent_ids: Option<Vec<String>>,
    persistent_subprocess: Option<bool>,
    enable_shared_state: Option<bool>,
}

/// One of the plugin's settings.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ConfigField {
    #[serde(rename = "type")]
    kind: Option<String>,
    pub(crate) default: Option<Value>,
    description: Option<String>,
}

impl Settings {
    fn or(self, other: Settings) -> Settings {
        Settings {
            runtime: self.runtime.or(other.runtime),
            hook_timeout_secs: self.hook_timeout_secs.or(other.hook_timeout_secs),
            max_retries: self.max_retries.or(other.max_retries),
            retry_delay_ms: self.retry_delay_ms.or(other.retry_delay_ms),
            ingest_filter: self.ingest_filter.or(other.ingest_filter),
            ingest_regex: self.ingest_regex.or(other.ingest_regex),
            only_for_agent_ids: self.only_for_agent_ids.or(other.only_for_agent_ids),
            persistent_subprocess: self.persistent_subprocess.or(other.persistent_subprocess),
            enable_shared_state: self.enable_shared_state.or(other.enable_shared_state),
        }
    }
}

impl Manifest {
    /// Reads the manifest of the plugin in a folder.
    ///
    /// # Errors
    /// The first mistake, with its key.
    pub(crate) fn read(context: &ManifestContext<'_>) -> Result<Self, String> {
        let text = read_text(&context.folder.join(FILE))?;
        let at = |error: &toml::de::Error| {
            let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
            line.map(|line| format!("line {line}: ")).unwrap_or_default()
        };
        let table: toml::Table = toml::from_str(&text)
            .map_err(|error| format!("{}{}", at(&error), error.message().replace('\n', ", ")))?;
        // Values may be dates, which JSON doesn't have, so the manifest is read from the text again.
        let written: WrittenManifest = toml::from_str(&text)
            .map_err(|error| format!("{}{}", at(&error), error.message().replace('\n', ", ")))?;
        Self::check(written, &table, context)
    }

    fn check(
        written: WrittenManifest,
        table: &toml::Table,
        context: &ManifestContext<'_>,
    ) -> Result<Self, String> {
        let WrittenManifest { name, version, hooks, env, config, integrity, settings } = written;
        let settings = hooks.settings.or(settings);
        let mut warnings = without_effect(table);
        let launcher = Launcher::find(settings.runtime.as_deref(), context.path, &mut warnings)
            .map_err(|reason| format!("runtime: {reason}"))?;
        let scripts = scripts(&hooks.scripts, context.folder, &launcher)?;
        let environment = environment::resolve(&env, context.allowed_env, &mut warnings)
            .map_err(|reason| format!("env: {reason}"))?;
        let ingest_regex = settings.ingest_regex.as_deref().map(Regex::new).transpose();
        let time = settings.hook_timeout_secs.map(Duration::from_secs);
        if time.is_some_and(|time| time.is_zero() || time > MAX_TIME) {
            return Err("hook_timeout_secs: must be between 1 and 3600".into());
        }
        let retry_delay = Duration::from_millis(settings.retry_delay_ms.unwrap_or(500));
        Ok(Manifest {
            name,
            version,
            scripts,
            launcher,
            environment,
            config: fields(config),
            integrity: digests(integrity, context.folder)?,
            ingest_filter: settings.ingest_filter,
            ingest_regex: ingest_regex.map_err(|_| "ingest_regex: is not a regular expression")?,
            agents: settings.only_for_agent_ids.unwrap_or_default(),
            time,
            max_retries: settings.max_retries.unwrap_or(0),
            retry_delay: retry_delay.min(MAX_TIME),
            is_persistent: settings.persistent_subprocess.unwrap_or(false),
            has_state: settings.enable_shared_state.unwrap_or(false),
            warnings,
        })
    }

    /// The schema of the plugin-level configuration: the settings of the manifest, and no others.
    pub(crate) fn config_schema(&self) -> Value {
        let property = |field: &ConfigField| {
            let kinds = ["string", "number", "boolean"];
            let mut schema = Map::new();
            let kind = field.kind.as_deref().filter(|kind| kinds.contains(kind));
            schema.extend(kind.map(|kind| ("type".to_owned(), json!(kind))));
            schema.extend(field.default.clone().map(|value| ("default".to_owned(), value)));
            schema.extend(field.description.clone().map(|text| ("description".to_owned(), text.into())));
            Value::Object(schema)
        };
        let properties: Map<String, Value> =
            self.config.iter().map(|(name, field)| (name.clone(), property(field))).collect();
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let read = File::open(path).and_then(|file| read_limited::read(file, MAX_FILE_BYTES));
    let bytes = read.map_err(|error| format!("can't be read: {error}"))?;
    String::from_utf8(bytes.ok_or("is larger than 1 MiB")?).map_err(|_| "is not UTF-8 text".into())
}

/// A warning about the settings that don't count here, if there are any.
fn without_effect(table: &toml::Table) -> Vec<String> {
    let hooks = table.get("hooks").and_then(toml::Value::as_table);
    let is_set = |key: &&str| table.contains_key(*key) || hooks.is_some_and(|hooks| hooks.contains_key(*key));
    let found: Vec<_> = WITHOUT_EFFECT.into_iter().filter(is_set).collect();
    match &*found {
        [] => Vec::new(),
        found => vec![format!(
            "plugin.toml sets {}, without effect here: the gateway's configuration and the runner's file decide that",
            found.join(", ")
        )],
    }
}

fn scripts(
    written: &BTreeMap<String, Value>,
    folder: &Path,
    launcher: &Launcher,
) -> Result<Vec<Script>, String> {
    let script = |kind: ScriptKind| {
        let written = written.get(kind.key())?;
        let path = written.as_str().ok_or_else(|| "must be the path of a script".to_owned());
        let script = path
            .and_then(|path| contained_file(folder, path))
            .and_then(|path| Script::new(kind, path, launcher));
        Some(script.map_err(|reason| format!("hooks.{}: {reason}", kind.key())))
    };
    let scripts: Vec<_> = ScriptKind::ALL.into_iter().filter_map(script).collect::<Result<_, _>>()?;
    if scripts.is_empty() {
        let keys = ScriptKind::ALL.map(ScriptKind::key).join(", ");
        return Err(format!("hooks: at least one script is required; the keys are {keys}"));
    }
    Ok(scripts)
}

/// The fields of `[config]`: a table each, or a plain default.
fn fields(written: BTreeMap<String, Value>) -> BTreeMap<String, ConfigField> {
    let field = |value: Value| match value {
        Value::Object(members) if members.contains_key("type") || members.contains_key("default") => {
            serde_json::from_value(Value::Object(members)).unwrap_or_default()
        }
        default => ConfigField { default: Some(default), ..ConfigField::default() },
    };
    written.into_iter().map(|(name, value)| (name, field(value))).collect()
}

fn digests(written: BTreeMap<String, String>, folder: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let digest = |(file, digest): (String, String)| {
        let path = contained_file(folder, &file).map_err(|reason| format!("integrity: {reason}"))?;
        let digest = digest.strip_prefix("sha256:").unwrap_or(&digest).to_owned();
        match hex::decode(&digest) {
            Ok(bytes) if bytes.len() == 32 => Ok((path, digest)),
            _ => Err(format!("integrity: `{file}` needs a digest of 64 hexadecimal digits")),
        }
    };
    written.into_iter().map(digest).collect()
}
