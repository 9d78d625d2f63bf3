//! `plugin.toml`, the manifest of a LibreFang plugin.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use hookgate::fs::read_limited;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::script::{Launcher, Script, ScriptKind};
use crate::{
    environment::{self, Environment},
    plugin_folder::contained_file,
};

/// The name of the file.
pub(crate) const FILE: &str = "plugin.toml";
/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Largest compiled `ingest_regex`, in bytes.
const MAX_REGEX_BYTES: usize = 256 << 10;
/// Longest time that a manifest may ask for, for a call and for a delay.
const MAX_TIME: Duration = Duration::from_secs(3600);
/// The version of LibreFang's protocol for scripts that the runner speaks.
const PROTOCOL_VERSION: u64 = 1;
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

/// One of the plugin's settings.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ConfigField {
    #[serde(rename = "type")]
    kind: Option<String>,
    pub(crate) default: Option<Value>,
    description: Option<String>,
}

/// The tables of a manifest.
struct Tables {
    top: toml::Table,
    hooks: toml::Table,
}

impl Tables {
    fn read(folder: &Path) -> Result<Self, String> {
        let text = read_text(&folder.join(FILE))?;
        let top: toml::Table = toml::from_str(&text).map_err(|error| {
            let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
            let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            format!("{at}{}", error.message().replace('\n', ", "))
        })?;
        let hooks = value(&top, "hooks")?.unwrap_or_default();
        Ok(Tables { top, hooks })
    }

    /// A setting, which may stand in `[hooks]` or above it.
    fn setting<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        match value(&self.hooks, key).map_err(|reason| format!("hooks.{reason}"))? {
            Some(found) => Ok(Some(found)),
            None => value(&self.top, key),
        }
    }
}

fn value<T: DeserializeOwned>(table: &toml::Table, key: &str) -> Result<Option<T>, String> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let read = value.clone().try_into().map_err(|error| format!("{key}: {}", error.message()));
    read.map(Some)
}

fn required(table: &toml::Table, key: &str) -> Result<String, String> {
    value(table, key)?.ok_or_else(|| format!("{key}: is required"))
}

impl Manifest {
    /// Reads the manifest of the plugin in a folder.
    ///
    /// # Errors
    /// The first mistake, with its key.
    pub(crate) fn read(context: &ManifestContext<'_>) -> Result<Self, String> {
        let tables = Tables::read(context.folder)?;
        let mut warnings = without_effect(&tables);
        let version = tables.setting("hook_protocol_version")?.unwrap_or(PROTOCOL_VERSION);
        if version > PROTOCOL_VERSION {
            warnings.push(format!(
                "hook_protocol_version is {version}, and the runner speaks {PROTOCOL_VERSION}"
            ));
        }
        let runtime: Option<String> = tables.setting("runtime")?;
        let launcher = Launcher::find(runtime.as_deref(), context.path, &mut warnings)
            .map_err(|reason| format!("runtime: {reason}"))?;
        let scripts = scripts(&tables.hooks, context.folder, &launcher)?;
        let env: BTreeMap<String, String> = value(&tables.top, "env")?.unwrap_or_default();
        let environment = environment::resolve(&env, context.allowed_env, &mut warnings)
            .map_err(|reason| format!("env: {reason}"))?;
        let ingest_regex: Option<String> = tables.setting("ingest_regex")?;
        let regex = |pattern: &str| RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build();
        let ingest_regex = ingest_regex.as_deref().map(regex).transpose();
        let time = tables.setting("hook_timeout_secs")?.map(Duration::from_secs);
        if time.is_some_and(|time| time.is_zero() || time > MAX_TIME) {
            return Err("hook_timeout_secs: must be between 1 and 3600".into());
        }
        let retry_delay = Duration::from_millis(tables.setting("retry_delay_ms")?.unwrap_or(500));
        let integrity = value(&tables.top, "integrity")?.unwrap_or_default();
        Ok(Manifest {
            name: required(&tables.top, "name")?,
            version: required(&tables.top, "version")?,
            scripts,
            launcher,
            environment,
            config: fields(value(&tables.top, "config")?.unwrap_or_default()),
            integrity: digests(integrity, context.folder)?,
            ingest_filter: tables.setting("ingest_filter")?,
            ingest_regex: ingest_regex
                .map_err(|_| "ingest_regex: is not a regular expression, or too large a one")?,
            agents: tables.setting("only_for_agent_ids")?.unwrap_or_default(),
            time,
            max_retries: tables.setting("max_retries")?.unwrap_or(0),
            retry_delay: retry_delay.min(MAX_TIME),
            is_persistent: tables.setting("persistent_subprocess")?.unwrap_or(false),
            has_state: tables.setting("enable_shared_state")?.unwrap_or(false),
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
fn without_effect(tables: &Tables) -> Vec<String> {
    let is_set = |key: &&str| tables.top.contains_key(*key) || tables.hooks.contains_key(*key);
    let found: Vec<_> = WITHOUT_EFFECT.into_iter().filter(is_set).collect();
    match &*found {
        [] => Vec::new(),
        found => vec![format!(
            "plugin.toml sets {}, without effect here: the gateway's configuration and the runner's file decide that",
            found.join(", ")
        )],
    }
}

fn scripts(written: &toml::Table, folder: &Path, launcher: &Launcher) -> Result<Vec<Script>, String> {
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
