//! `kaged-plugin.yaml`, the manifest of a kaged plugin.

use std::{collections::BTreeMap, fs::File, path::Path, time::Duration};

use hookgate::fs::read_limited;
use hookgate_proto::types::v1::Tool;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::{environment, plugin_folder::contained_file};

/// The name of the file.
pub(super) const FILE: &str = "kaged-plugin.yaml";
/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The version of kaged's plugin interface that the runner speaks.
pub(super) const API_VERSION: u64 = 1;
const MAX_NAME_BYTES: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 200;
/// A manifest's keys. The value of those without a field here doesn't matter to the runner.
const KEYS: [&str; 21] = [
    "name",
    "version",
    "kaged_api",
    "description",
    "author",
    "license",
    "homepage",
    "command",
    "env",
    "capabilities",
    "roles",
    "hooks",
    "tools",
    "methods",
    "notifications",
    "config_schema",
    "system_config_schema",
    "knobs",
    "shutdown_timeout_sec",
    "health_interval_sec",
    "hook_timeout_sec",
];

/// A manifest that was read and checked.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) command: Vec<String>,
    pub(super) environment: environment::Environment,
    pub(super) capabilities: Vec<String>,
    pub(super) is_compactor: bool,
    pub(super) hooks: Vec<KagedHook>,
    /// With their full names.
    pub(super) tools: Vec<Tool>,
    pub(super) config_schema: Option<Value>,
    pub(super) system_config_schema: Option<Value>,
    /// How long the plugin may take to end.
    pub(super) shutdown_timeout: Duration,
    /// How often it is asked whether it works.
    pub(super) health_interval: Duration,
    /// Longest call of a hook.
    pub(super) hook_timeout: Duration,
    /// What an operator should know.
    pub(super) warnings: Vec<String>,
}

/// A hook of kaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KagedHook {
    OnSessionStart,
    OnSessionIdle,
    PreCompact,
    PostCompact,
}

impl KagedHook {
    const ALL: [KagedHook; 4] =
        [KagedHook::OnSessionStart, KagedHook::OnSessionIdle, KagedHook::PreCompact, KagedHook::PostCompact];

    /// The hook of the gateway at which it is called.
    pub(super) fn site(self) -> &'static str {
        match self {
            KagedHook::OnSessionStart => "session_start",
            KagedHook::OnSessionIdle => "session_idle",
            KagedHook::PreCompact => "before_compact",
            KagedHook::PostCompact => "after_compact",
        }
    }

    /// The hook that is called at a hook of the gateway.
    pub(super) fn at(site: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.site() == site)
    }

    pub(super) fn method(self) -> &'static str {
        match self {
            KagedHook::OnSessionStart => "kaged.hook.on_session_start",
            KagedHook::OnSessionIdle => "kaged.hook.on_session_idle",
            KagedHook::PreCompact => "kaged.hook.pre_compact",
            KagedHook::PostCompact => "kaged.hook.post_compact",
        }
    }
}

#[derive(Deserialize)]
struct WrittenManifest {
    name: String,
    version: String,
    kaged_api: u64,
    description: String,
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    capabilities: Vec<String>,
    #[serde(default)]
    roles: Vec<Role>,
    #[serde(default)]
    hooks: Vec<KagedHook>,
    #[serde(default)]
    tools: Vec<WrittenTool>,
    #[serde(default)]
    methods: Vec<String>,
    config_schema: Option<Value>,
    system_config_schema: Option<Value>,
    #[serde(default = "five")]
    shutdown_timeout_sec: u64,
    #[serde(default = "thirty")]
    health_interval_sec: u64,
    #[serde(default = "ten")]
    hook_timeout_sec: u64,
}

const fn five() -> u64 {
    5
}

const fn ten() -> u64 {
    10
}

const fn thirty() -> u64 {
    30
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Observer,
    Compactor,
}

#[derive(Deserialize)]
struct WrittenTool {
    name: String,
    description: String,
    parameters_schema: Option<Value>,
}

impl Manifest {
    /// Reads the manifest of the plugin in `folder`. Of the runner's environment, the plugin may have `allowed_env`.
    ///
    /// # Errors
    /// The first mistake, with its key.
    pub(super) fn read(folder: &Path, allowed_env: &[String]) -> Result<Self, String> {
        let read = File::open(folder.join(FILE)).and_then(|file| read_limited::read(file, MAX_FILE_BYTES));
        let bytes = read.map_err(|error| format!("can't be read: {error}"))?;
        let text = String::from_utf8(bytes.ok_or("is larger than 1 MiB")?);
        Self::parse(&text.map_err(|_| "is not UTF-8 text")?, folder, allowed_env)
    }

    fn parse(text: &str, folder: &Path, allowed_env: &[String]) -> Result<Self, String> {
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
            format!("is not a YAML mapping{line}")
        })?;
        if !value.is_object() {
            return Err("is not a YAML mapping".into());
        }
        let mut warnings = unknown_keys(&value);
        let written: WrittenManifest = serde_path_to_error::deserialize(value).map_err(|error| {
            let (at, reason) = (error.path().to_string(), error.inner().to_string());
            if at == "." { reason } else { format!("{at}: {reason}") }
        })?;
        written.check()?;
        let command = resolve_command(&written.command, folder)?;
        warnings.extend(written.without_effect());
        let environment = environment::resolve(&written.env, allowed_env, &mut warnings)
            .map_err(|reason| format!("env: {reason}"))?;
        let tools = written.tools()?;
        Ok(Manifest {
            environment,
            is_compactor: written.roles.contains(&Role::Compactor),
            tools,
            name: written.name,
            version: written.version,
            command,
            capabilities: written.capabilities,
            hooks: written.hooks,
            config_schema: written.config_schema,
            system_config_schema: written.system_config_schema,
            shutdown_timeout: Duration::from_secs(written.shutdown_timeout_sec),
            health_interval: Duration::from_secs(written.health_interval_sec),
            hook_timeout: Duration::from_secs(written.hook_timeout_sec),
            warnings,
        })
    }
}

impl WrittenManifest {
    fn check(&self) -> Result<(), String> {
        if self.name.len() > MAX_NAME_BYTES || !is_match(r"^[a-z][a-z0-9-]*$", &self.name) {
            return Err("name: must be a lower-case letter and up to 63 of a-z, 0-9 and `-`".into());
        }
        if self.version.parse::<semver::Version>().is_err() {
            return Err("version: must be a semantic version such as 1.2.0".into());
        }
        if self.kaged_api != API_VERSION {
            return Err(format!("kaged_api: must be {API_VERSION}, the version that the runner speaks"));
        }
        if !(1..=MAX_DESCRIPTION_CHARS).contains(&self.description.chars().count()) {
            return Err(format!("description: must have 1 to {MAX_DESCRIPTION_CHARS} characters"));
        }
        if self.hooks.is_empty() && self.tools.is_empty() {
            return Err("hooks: at least one hook or tool is required, in `hooks` or `tools`".into());
        }
        if let Some(method) = self.methods.iter().find(|method| !is_method(method)) {
            return Err(format!(
                "methods: `{method}` must be 2 to 4 lower-case words with dots between them"
            ));
        }
        if self.roles.contains(&Role::Compactor) && !self.hooks.contains(&KagedHook::PreCompact) {
            return Err("roles: `compactor` needs the hook pre_compact in `hooks`".into());
        }
        for (key, seconds, range) in [
            ("shutdown_timeout_sec", self.shutdown_timeout_sec, 1..=30),
            ("health_interval_sec", self.health_interval_sec, 5..=300),
            ("hook_timeout_sec", self.hook_timeout_sec, 1..=60),
        ] {
            if !range.contains(&seconds) {
                return Err(format!("{key}: must be {} to {}", range.start(), range.end()));
            }
        }
        self.check_schemas()
    }

    /// A plugin gets both configurations as one object, so they can't have a member in common.
    fn check_schemas(&self) -> Result<(), String> {
        let properties = |schema: &Option<Value>| match schema.as_ref().map(|schema| &schema["properties"]) {
            Some(Value::Object(properties)) => properties.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let system = properties(&self.system_config_schema);
        match properties(&self.config_schema).iter().find(|name| system.contains(name)) {
            Some(name) => Err(format!("system_config_schema: `{name}` is in `config_schema` too")),
            None => Ok(()),
        }
    }

    fn tools(&self) -> Result<Vec<Tool>, String> {
        let prefix = format!("{}.", self.name);
        let tool = |(index, tool): (usize, &WrittenTool)| {
            let name = tool.name.strip_prefix(&prefix).unwrap_or(&tool.name);
            if !is_match(r"^[a-z][a-z0-9_]*$", name) {
                return Err(format!("tools[{index}].name: must be a lower-case letter and a-z, 0-9 and `_`"));
            }
            let schema = tool.parameters_schema.clone();
            let schema = schema.unwrap_or_else(|| serde_json::json!({ "type": "object" }));
            Ok(Tool {
                name: format!("{prefix}{name}"),
                description: tool.description.clone(),
                input_schema: schema.to_string().into(),
                annotations: None,
            })
        };
        let tools: Vec<_> = self.tools.iter().enumerate().map(tool).collect::<Result<_, _>>()?;
        hookgate_proto::check_tools(&tools).map_err(|reason| format!("tools: {reason}"))?;
        Ok(tools)
    }

    fn without_effect(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.methods.is_empty() {
            warnings.push("`methods` has no effect: the gateway calls hooks and tools only".to_owned());
        }
        if self.capabilities.iter().any(|capability| capability.replace(' ', "") == "net:[]") {
            warnings.push(
                "`net:[]` has no effect: to keep the plugin from the network, run it in a container without one"
                    .to_owned(),
            );
        }
        warnings
    }
}

fn unknown_keys(manifest: &Value) -> Vec<String> {
    let unknown = manifest.as_object().into_iter().flat_map(|members| members.keys());
    let unknown: Vec<_> = unknown.filter(|key| !KEYS.contains(&key.as_str())).map(String::as_str).collect();
    match &*unknown {
        [] => Vec::new(),
        keys => vec![format!("{FILE} has unknown keys, without effect: {}", keys.join(", "))],
    }
}

fn is_method(method: &str) -> bool {
    is_match(r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*){1,3}$", method)
}

fn is_match(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

/// The command, with the paths of its files, which must be in the plugin's folder.
fn resolve_command(command: &[String], folder: &Path) -> Result<Vec<String>, String> {
    let Some(program) = command.first().filter(|program| !program.is_empty()) else {
        return Err("command: must name a program".into());
    };
    if program.contains('/') && !["/", "./", "../"].iter().any(|begin| program.starts_with(begin)) {
        return Err(format!("command: {program} must begin with / or ./"));
    }
    let word = |word: &String| {
        if !word.starts_with("./") && !word.starts_with("../") {
            return Ok(word.clone());
        }
        let file = contained_file(folder, word).map_err(|reason| format!("command: {reason}"))?;
        Ok(file.display().to_string())
    };
    command.iter().map(word).collect()
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
