//! One plugin of the runner's file: its command, points, hooks and limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hookgate::{
    config::{JsonObject, ReferenceScope, Size, Span, environment_variables, is_name, resolve_references},
    core::call_site::CallSite,
};
use hookgate_proto::{plugin::v1::DescribeResponse, types::v1::Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    dialect::Dialect,
    digest_file, executable,
    kaged::KagedPlugin,
    librefang::{LibrefangPlugin, LibrefangSidecar},
    offers::{HookEntry, PointEntry},
};

/// Shortest text that is taken for a secret, in characters. A program doesn't learn which texts of its configuration came
/// from a reference, so all are, except the short ones.
const MIN_SECRET_CHARS: usize = 8;
/// Least memory of a program, in bytes. No program starts with less.
const MIN_MEMORY: u64 = 1 << 20;
/// Longest call, unless the file or a manifest says another.
const DEFAULT_TIME: Duration = Duration::from_secs(30);
/// Most hooks of a plugin, as the contract allows.
const MAX_HOOKS: usize = 64;
/// Variables that the runner sets.
pub(crate) const OWN_VARIABLES: [&str; 4] = ["HOME", "TMPDIR", "HOOKGATE_PLUGIN", "HOOKGATE_TENANT"];

/// One plugin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PluginEntry {
    pub(crate) name: String,
    /// From the manifest, if there is one.
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default, rename = "dialect")]
    dialect_name: DialectName,
    /// The folder of a plugin with a manifest.
    directory: Option<PathBuf>,
    /// The program and its arguments. Those that begin with `./` are relative to the file.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) points: Vec<PointEntry>,
    #[serde(default)]
    pub(crate) hooks: Vec<HookEntry>,
    process: Option<ProcessMode>,
    /// Variables of the program, besides the runner's own. Values may be references.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Variables of the runner that a manifest may give to the program.
    #[serde(default)]
    allowed_env: Vec<String>,
    /// SHA-256 digests that files must have before the program starts.
    #[serde(default)]
    pub(crate) sha256: BTreeMap<PathBuf, String>,
    /// Files and folders that the program may read, besides its command and those of the system.
    #[serde(default)]
    pub(crate) read: Vec<PathBuf>,
    config_schema: Option<Value>,
    tenant_config_schema: Option<Value>,
    #[serde(default)]
    pub(crate) limits: ProgramLimits,
    /// An argument that names a file beside the runner's file, and doesn't lead there.
    #[serde(skip)]
    pub(crate) unresolved: Option<String>,
    /// `env` with its references resolved.
    #[serde(skip)]
    pub(crate) variables: BTreeMap<String, String>,
    /// The values of `env` that must not be shown.
    #[serde(skip)]
    pub(crate) secrets: Vec<String>,
    #[serde(skip)]
    pub(crate) dialect: Dialect,
}

/// The name of a dialect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DialectName {
    #[default]
    Lines,
    Librefang,
    Kaged,
}

/// How long a program's process lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProcessMode {
    /// A process answers many calls of one tenant, one after the other.
    #[default]
    Persistent,
    /// A process answers one call. Its standard input ends after the call.
    PerCall,
}

/// Limits of one plugin.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProgramLimits {
    /// Longest call. Without it, what a manifest says, or 30 s.
    pub(crate) time: Option<Span>,
    /// Memory of a program and its children together.
    pub(crate) memory: Size,
    /// CPU time of a process.
    pub(crate) cpu: Span,
    /// Processes of a program, itself included.
    pub(crate) processes: usize,
    /// Longest reply.
    pub(crate) output: Size,
    /// Programs that answer one tenant's calls at the same time.
    pub(crate) parallel: usize,
    /// Programs of all tenants.
    pub(crate) programs: usize,
    /// How long a program may wait for its next call.
    pub(crate) idle: Span,
}

impl ProgramLimits {
    /// The longest call, if no manifest says another time.
    pub(crate) fn time(&self) -> Duration {
        self.time.map_or(DEFAULT_TIME, |time| time.0)
    }
}

impl Default for ProgramLimits {
    fn default() -> Self {
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        ProgramLimits {
            time: None,
            memory: Size(256 << 20),
            cpu: seconds(10),
            processes: 16,
            output: Size(4 << 20),
            parallel: 4,
            programs: 64,
            idle: seconds(60),
        }
    }
}

/// `text` and each of its lines, where they are long enough to be secrets.
pub(crate) fn secret_lines(text: &str) -> impl Iterator<Item = String> {
    let all = std::iter::once(text).chain(text.lines().filter(move |line| line.len() < text.len()));
    all.filter(|line| line.chars().count() >= MIN_SECRET_CHARS).map(str::to_owned)
}

/// Whether a word of a command is written like a file beside the runner's file, without `./`.
fn is_beside(word: &str, folder: &Path) -> bool {
    !word.starts_with(['/', '-']) && !word.starts_with("./") && folder.join(word).is_file()
}

/// What to write for such a word, as the end of a sentence.
pub(crate) fn beside_remedy(word: &str) -> String {
    format!("; for the file beside the runner's file, write `./{word}` in `command`")
}

impl PluginEntry {
    /// Checks the entry, makes its paths absolute and resolves its references.
    pub(crate) fn complete(&mut self, folder: &Path) -> Result<(), String> {
        if !is_name(&self.name) {
            return Err("name: must be a letter and up to 63 letters, digits, `_` and `-`".into());
        }
        self.resolve_variables()?;
        self.check_limits()?;
        self.complete_dialect(folder)?;
        if self.version.parse::<semver::Version>().is_err() {
            return Err(format!("version: `{}` is not a semantic version such as 1.2.0", self.version));
        }
        self.check_offers()?;
        for (key, schema) in
            [("config_schema", &self.config_schema), ("tenant_config_schema", &self.tenant_config_schema)]
        {
            if let Some(Err(error)) = schema.as_ref().map(jsonschema::validator_for) {
                return Err(format!("{key}: is not a JSON Schema: {error}"));
            }
        }
        if self.directory.is_none() {
            self.complete_command(folder)?;
        }
        self.read = self.read.iter().map(|path| folder.join(path)).collect();
        if let Some(missing) = self.read.iter().find(|path| !path.exists()) {
            return Err(format!("read: there is no file {}", missing.display()));
        }
        for path in self.read.iter_mut() {
            *path = path.canonicalize().map_err(|error| format!("read: {}: {error}", path.display()))?;
        }
        let digests = std::mem::take(&mut self.sha256);
        self.sha256 = digests.into_iter().map(|(path, digest)| (folder.join(path), digest)).collect();
        for (path, digest) in &self.sha256 {
            if !hex::decode(digest).is_ok_and(|bytes| bytes.len() == 32) {
                return Err(format!("sha256: {} needs a digest of 64 hexadecimal digits", path.display()));
            }
        }
        digest_file::check(&self.sha256).map_err(|reason| format!("sha256: {reason}"))?;
        if let Dialect::Librefang(plugin) = &self.dialect {
            digest_file::check(plugin.integrity())
                .map_err(|reason| format!("directory: integrity: {reason}"))?;
            self.sha256.extend(plugin.integrity().clone());
        }
        Ok(())
    }

    /// Makes the paths in the command absolute, and checks that it can be executed.
    fn complete_command(&mut self, folder: &Path) -> Result<(), String> {
        self.unresolved = self.command.iter().skip(1).find(|word| is_beside(word, folder)).cloned();
        let written = self.command.clone();
        for word in &mut self.command {
            if word.starts_with("./") {
                *word = folder.join(&*word).display().to_string();
            }
        }
        let program = self.command.first().ok_or("command: must name a program")?;
        if program.contains('/') && !program.starts_with('/') {
            return Err(format!("command: {program} must begin with / or ./"));
        }
        executable::check(program, self.path()).map_err(|reason| {
            let beside = if is_beside(program, folder) { beside_remedy(program) } else { String::new() };
            format!("command: {reason}{beside}")
        })?;
        let mut words = self.command.iter().zip(&written).filter(|(_, written)| written.starts_with("./"));
        match words.find(|(word, _)| !Path::new(word).exists()) {
            Some((missing, _)) => Err(format!("command: there is no file {missing}")),
            None => Ok(()),
        }
    }

    /// Reads the manifest, if the dialect has one, and takes from it what the plugin offers.
    fn complete_dialect(&mut self, folder: &Path) -> Result<(), String> {
        let is_written = |key: &str| match key {
            "directory" => self.directory.is_some(),
            "allowed_env" => !self.allowed_env.is_empty(),
            "command" => !self.command.is_empty(),
            "points" => !self.points.is_empty(),
            "hooks" => !self.hooks.is_empty(),
            "process" => self.process.is_some(),
            "config_schema" => self.config_schema.is_some(),
            _ => self.tenant_config_schema.is_some(),
        };
        let refuse = |keys: &[&str], reason: &str| match keys.iter().find(|key| is_written(key)) {
            Some(key) => Err(format!("{key}: {reason}")),
            None => Ok(()),
        };
        match (self.dialect_name, &self.directory) {
            (DialectName::Lines, _) => {
                refuse(&["directory", "allowed_env"], "needs `dialect: librefang` or `dialect: kaged`")
            }
            (DialectName::Kaged, None) => Err("directory: is required: the plugin's folder".into()),
            (DialectName::Kaged, Some(directory)) => {
                let keys = ["command", "points", "hooks", "config_schema", "tenant_config_schema"];
                refuse(&keys, "comes from kaged-plugin.yaml: leave it out")?;
                refuse(&["process"], "a plugin of kaged has one process for all calls of a tenant")?;
                let plugin = KagedPlugin::read(&folder.join(directory), &self.allowed_env);
                self.complete_kaged(plugin.map_err(|reason| format!("directory: {reason}"))?)
            }
            (DialectName::Librefang, None) => {
                if self.command.is_empty() {
                    return Err(
                        "directory: is required: the plugin's folder; or `command` for a sidecar".into()
                    );
                }
                refuse(
                    &["points", "hooks"],
                    "a sidecar answers at agent_start, recall, assemble and turn_end",
                )?;
                refuse(&["allowed_env"], "is for a plugin with a manifest: use `env`")?;
                self.hooks = LibrefangSidecar::hooks();
                self.dialect = Dialect::LibrefangSidecar(LibrefangSidecar::default());
                Ok(())
            }
            (DialectName::Librefang, Some(directory)) => {
                let keys = ["command", "points", "hooks", "config_schema", "tenant_config_schema"];
                refuse(&keys, "comes from plugin.toml: leave it out")?;
                let plugin = LibrefangPlugin::read(&folder.join(directory), self.path(), &self.allowed_env);
                self.complete_librefang(plugin.map_err(|reason| format!("directory: {reason}"))?)
            }
        }
    }

    fn complete_librefang(&mut self, plugin: LibrefangPlugin) -> Result<(), String> {
        self.identify("plugin.toml", plugin.name(), plugin.version())?;
        (self.points, self.hooks) = (plugin.points(), plugin.hooks());
        self.config_schema = Some(plugin.config_schema());
        self.tenant_config_schema = Some(json!({ "type": "object", "additionalProperties": false }));
        self.secrets.extend_from_slice(plugin.secrets());
        self.dialect = Dialect::Librefang(Box::new(plugin));
        Ok(())
    }

    fn complete_kaged(&mut self, plugin: KagedPlugin) -> Result<(), String> {
        self.identify("kaged-plugin.yaml", plugin.name(), plugin.version())?;
        let program = plugin.command().first().map_or("", String::as_str);
        executable::check(program, self.path())
            .map_err(|reason| format!("directory: kaged-plugin.yaml: command: {reason}"))?;
        self.hooks = plugin.hook_entries();
        self.config_schema = Some(plugin.config_schema());
        self.tenant_config_schema = Some(plugin.tenant_config_schema());
        self.secrets.extend_from_slice(plugin.secrets());
        self.dialect = Dialect::Kaged(Arc::new(plugin));
        Ok(())
    }

    /// Compares the entry with the name and the version in a manifest.
    fn identify(&mut self, manifest: &str, name: &str, version: &str) -> Result<(), String> {
        if name != self.name {
            return Err(format!("name: must be that in {manifest}, `{name}`"));
        }
        if !self.version.is_empty() && self.version != version {
            return Err(format!("version: {manifest} has {version}, and {} is required", self.version));
        }
        version.clone_into(&mut self.version);
        Ok(())
    }

    pub(crate) fn process(&self) -> ProcessMode {
        self.process.unwrap_or(match &self.dialect {
            Dialect::Librefang(plugin) if !plugin.is_persistent() => ProcessMode::PerCall,
            _ => ProcessMode::Persistent,
        })
    }

    /// What an operator should know before the first call.
    pub(crate) fn warnings(&self) -> &[String] {
        match &self.dialect {
            Dialect::Librefang(plugin) => plugin.warnings(),
            Dialect::Kaged(plugin) => plugin.warnings(),
            Dialect::Lines | Dialect::LibrefangSidecar(_) => &[],
        }
    }

    /// Where the program's command is looked for.
    pub(crate) fn path(&self) -> &str {
        self.variables.get("PATH").map_or(executable::PATH, String::as_str)
    }

    /// The tools that the plugin provides.
    pub(crate) fn tools(&self) -> &[Tool] {
        match &self.dialect {
            Dialect::Kaged(plugin) => plugin.tools(),
            Dialect::Lines | Dialect::Librefang(_) | Dialect::LibrefangSidecar(_) => &[],
        }
    }

    pub(crate) fn has_tools(&self) -> bool {
        !self.tools().is_empty()
    }

    /// Whether the plugin answers there.
    pub(crate) fn offers(&self, site: &CallSite) -> bool {
        match site {
            CallSite::Point(point) => self.points.iter().any(|entry| entry.0.point == *point),
            CallSite::Hook(hook) => self.hooks.iter().any(|entry| entry.hook == *hook),
        }
    }

    fn check_offers(&self) -> Result<(), String> {
        if self.points.is_empty() && self.hooks.is_empty() && !self.has_tools() {
            return Err("points: at least one point or hook is required, in `points` or `hooks`".into());
        }
        if self.hooks.len() > MAX_HOOKS {
            return Err(format!("hooks: at most {MAX_HOOKS} hooks are allowed"));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.points.iter().find(|entry| !seen.insert(entry.0.point.as_str())) {
            return Err(format!("points: `{}` is listed twice", twice.0.point));
        }
        match self.hooks.iter().find(|entry| !seen.insert(entry.hook.as_str())) {
            Some(twice) => Err(format!("hooks: `{}` is listed twice", twice.hook)),
            None => Ok(()),
        }
    }

    fn check_limits(&self) -> Result<(), String> {
        let ProgramLimits { time, memory, cpu, processes, output, parallel, programs, idle } = self.limits;
        let counts = [("processes", processes), ("parallel", parallel), ("programs", programs)];
        let sizes = [("memory", memory.0), ("output", output.0)];
        let times = [("time", time.unwrap_or(idle)), ("idle", idle)];
        let zero = counts.iter().find(|(_, count)| *count == 0).map(|(key, _)| *key);
        let zero = zero.or_else(|| sizes.iter().find(|(_, size)| *size == 0).map(|(key, _)| *key));
        let zero = zero.or_else(|| times.iter().find(|(_, time)| time.0.is_zero()).map(|(key, _)| *key));
        match zero {
            Some(key) => Err(format!("limits.{key}: must be above 0")),
            None if cpu.0.as_secs() == 0 => Err("limits.cpu: must be at least 1s".into()),
            None if memory.0 < MIN_MEMORY => Err("limits.memory: must be at least 1MiB".into()),
            None if parallel > programs => {
                Err(format!("limits.parallel: must be at most `programs`, which is {programs}"))
            }
            None => Ok(()),
        }
    }

    fn resolve_variables(&mut self) -> Result<(), String> {
        for (key, names) in
            [("env", self.env.keys().collect()), ("allowed_env", Vec::from_iter(&self.allowed_env))]
        {
            if let Some(own) = names.into_iter().find(|name| OWN_VARIABLES.contains(&name.as_str())) {
                return Err(format!("{key}: the runner sets {own} itself"));
            }
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("env: `{name}` can't be the name of a variable"));
        }
        let written: JsonObject =
            self.env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let resolved = resolve_references(&written, environment_variables(), ReferenceScope::Anywhere);
        let (values, secrets) = resolved.map_err(|reason| format!("env{reason}"))?.into_exposed();
        let text = |value: Value| value.as_str().map(str::to_owned).unwrap_or_default();
        self.variables = values.into_iter().map(|(name, value)| (name, text(value))).collect();
        let lines = self.variables.values().flat_map(|value| secret_lines(value));
        self.secrets = secrets.into_iter().chain(lines).collect();
        Ok(())
    }

    /// The files of the command or the plugin's folder, and those of `read`.
    pub(crate) fn readable(&self) -> impl Iterator<Item = PathBuf> {
        let words = self.command.iter().filter(|word| word.contains('/')).map(PathBuf::from);
        let plugin: Vec<_> = match &self.dialect {
            Dialect::Librefang(plugin) => plugin.readable().collect(),
            Dialect::Kaged(plugin) => vec![plugin.folder().to_owned()],
            Dialect::Lines | Dialect::LibrefangSidecar(_) => Vec::new(),
        };
        words.filter(|path| path.exists()).chain(plugin).chain(self.read.iter().cloned())
    }

    pub(crate) fn manifest(&self) -> DescribeResponse {
        let schema =
            |schema: &Option<Value>| schema.as_ref().map(Value::to_string).unwrap_or_default().into();
        DescribeResponse {
            name: self.name.clone(),
            version: self.version.clone(),
            protocol_versions: vec![1],
            points: self.points.iter().map(|PointEntry(offer)| offer.to_wire()).collect(),
            hooks: self.hooks.iter().map(HookEntry::to_wire).collect(),
            tools: self.tools().iter().map(|tool| tool.name.clone()).collect(),
            capabilities: Vec::new(),
            config_schema: schema(&self.config_schema),
            tenant_config_schema: schema(&self.tenant_config_schema),
        }
    }
}
