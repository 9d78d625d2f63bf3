//! Plugins of LibreFang (docs/librefang-plugins.md): a folder with a manifest and a script for each hook, or a sidecar.

mod bootstrap;
mod call;
mod manifest;
mod reply;
mod script;
mod state;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use hookgate::core::call_site::CallSite;
use hookgate_proto::{HookName, Point, SideEffects};
use serde_json::{Map, Value};
use tonic::Status;

pub(crate) use self::{
    bootstrap::{OverrideStore, Overrides, write_private},
    reply::{answers_request, is_object_line},
};
use self::{
    call::Wire,
    manifest::{Manifest, ManifestContext},
    reply::ScriptOutput,
    script::ScriptKind,
    state::StateTurns,
};
use crate::{
    dialect::{
        AgentState, CallFormat, CallParts, CallRouting, DialectReply, ProgramRoute, ReplyLine, agent, tenant,
    },
    offers::{HookEntry, PointEntry},
    payload::Payload,
    plugin_entry::{PluginEntry, ProcessMode},
};

/// The variable with the path of the plugin's configuration.
pub(crate) const CONFIG_VARIABLE: &str = "LIBREFANG_PLUGIN_CONFIG";
/// The variable with the path of the agent's state.
pub(crate) const STATE_VARIABLE: &str = "LIBREFANG_STATE_FILE";
/// Longest message that a script gets in its environment too, in bytes. Linux takes no variable above 128 KiB.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// The kinds that a sidecar answers.
const SIDECAR_KINDS: [ScriptKind; 4] =
    [ScriptKind::Bootstrap, ScriptKind::Ingest, ScriptKind::Assemble, ScriptKind::AfterTurn];

/// A plugin of LibreFang, as a folder with scripts.
#[derive(Debug)]
pub(crate) struct LibrefangPlugin {
    /// Its folder, without links.
    folder: PathBuf,
    manifest: Manifest,
    turns: StateTurns,
}

/// A context engine of LibreFang in a process of its own.
#[derive(Debug, Default)]
pub(crate) struct LibrefangSidecar {
    last_id: AtomicU64,
}

impl LibrefangSidecar {
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The hooks at which a sidecar answers.
    pub(crate) fn hooks() -> Vec<HookEntry> {
        SIDECAR_KINDS.into_iter().filter_map(hook).collect()
    }
}

fn hook(kind: ScriptKind) -> Option<HookEntry> {
    let hook = HookName::new(kind.site()).ok()?;
    Some(HookEntry { hook, side_effects: SideEffects::Some })
}

impl LibrefangPlugin {
    /// Reads the plugin in `folder`. Interpreters are looked for in the folders of `path`; of the runner's environment,
    /// the plugin may have `allowed_env`.
    ///
    /// # Errors
    /// The first mistake, with its key.
    pub(crate) fn read(folder: &Path, path: &str, allowed_env: &[String]) -> Result<Self, String> {
        let missing = |error| format!("{}: {error}", folder.display());
        let folder = folder.canonicalize().map_err(missing)?;
        let context = ManifestContext { folder: &folder, path, allowed_env };
        let manifest = Manifest::read(&context)
            .map_err(|reason| format!("{}: {reason}", folder.join(manifest::FILE).display()))?;
        Ok(LibrefangPlugin { folder, manifest, turns: StateTurns::default() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.manifest.name
    }

    pub(crate) fn version(&self) -> &str {
        &self.manifest.version
    }

    pub(crate) fn hooks(&self) -> Vec<HookEntry> {
        self.manifest.scripts.iter().filter_map(|script| hook(script.kind)).collect()
    }

    pub(crate) fn points(&self) -> Vec<PointEntry> {
        let offer = Point::AfterToolResult.modify().with_side_effects();
        let transforms = self.script(ScriptKind::TransformToolResult).is_some();
        transforms.then_some(PointEntry(offer)).into_iter().collect()
    }

    pub(crate) fn has_bootstrap(&self) -> bool {
        self.script(ScriptKind::Bootstrap).is_some()
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.manifest.is_persistent
    }

    pub(crate) fn config_schema(&self) -> Value {
        self.manifest.config_schema()
    }

    pub(crate) fn integrity(&self) -> &BTreeMap<PathBuf, String> {
        &self.manifest.integrity
    }

    pub(crate) fn secrets(&self) -> &[String] {
        &self.manifest.environment.secrets
    }

    /// What an operator should know before the first call.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.manifest.warnings
    }

    /// What the scripts may read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = PathBuf> {
        std::iter::once(self.folder.clone()).chain(self.manifest.launcher.readable())
    }

    /// The files of the scripts.
    pub(crate) fn script_paths(&self) -> Vec<PathBuf> {
        self.manifest.scripts.iter().map(|script| script.path.clone()).collect()
    }

    /// Whether scripts read the configuration from a file.
    pub(crate) fn has_config(&self) -> bool {
        !self.manifest.config.is_empty()
    }

    /// The settings of the manifest, with the values of the plugin-level configuration.
    pub(crate) fn config(&self, overrides: &Value) -> Vec<u8> {
        let fields = &self.manifest.config;
        let defaults = fields.iter().filter_map(|(name, field)| Some((name.clone(), field.default.clone()?)));
        let mut config: Map<String, Value> = defaults.collect();
        config.extend(overrides.as_object().cloned().unwrap_or_default());
        Value::Object(config).to_string().into_bytes()
    }

    fn script(&self, kind: ScriptKind) -> Option<&script::Script> {
        self.manifest.scripts.iter().find(|script| script.kind == kind)
    }

    /// Whether the plugin wants a call.
    async fn wants(
        &self,
        kind: ScriptKind,
        parts: &CallParts<'_>,
        overrides: &Overrides,
    ) -> Result<bool, Status> {
        let Manifest { agents, ingest_filter, ingest_regex, .. } = &self.manifest;
        let is_of_agent = !matches!(
            kind,
            ScriptKind::Bootstrap
                | ScriptKind::OnEvent
                | ScriptKind::PrepareSubagent
                | ScriptKind::MergeSubagent
        );
        let agent = agent(parts);
        if is_of_agent && !agents.is_empty() && !agents.iter().any(|part| agent.contains(part.as_str())) {
            return Ok(false);
        }
        let filter = overrides.ingest_filter.as_ref().or(ingest_filter.as_ref());
        if kind != ScriptKind::Ingest || (filter.is_none() && ingest_regex.is_none()) {
            return Ok(true);
        }
        let payload = Payload::new(parts.payload)?;
        let message = payload.text("message").unwrap_or_default();
        if filter.is_some_and(|filter| !message.contains(filter.as_str())) {
            return Ok(false);
        }
        let Some(regex) = ingest_regex.clone() else { return Ok(true) };
        // A third party's pattern, over a message that may be long.
        let message = message.into_owned();
        let matched = tokio::task::spawn_blocking(move || regex.is_match(&message)).await;
        matched.map_err(|error| Status::internal(error.to_string()))
    }

    pub(crate) async fn route<'a>(
        &'a self,
        entry: &'a PluginEntry,
        parts: &CallParts<'_>,
        overrides: &Overrides,
    ) -> Result<CallRouting<'a>, Status> {
        let kind = kind(parts.site)?;
        let script = self.script(kind).ok_or_else(|| unserved(parts.site))?;
        if !self.wants(kind, parts, overrides).await? {
            return Ok(CallRouting::Ignore(reply::nothing(kind).into()));
        }
        let agent = agent(parts);
        let process = entry.process();
        let variables = self.variables(kind, process, parts, overrides)?;
        let is_persistent = process == ProcessMode::Persistent;
        // Programs differ in what is in their environment.
        let mut key = vec![kind.key()];
        key.extend(variables.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        key.extend(self.manifest.has_state.then_some(agent));
        let state = match self.manifest.has_state {
            true => {
                let _turn = self.turns.take(tenant(parts), agent).await;
                Some(AgentState { agent: agent.to_owned(), _turn })
            }
            false => None,
        };
        let time = entry.limits.time.map(|time| time.0).or(self.manifest.time);
        let time = time.unwrap_or_else(|| entry.limits.time());
        Ok(CallRouting::Program(ProgramRoute {
            key: key.join("\0").into(),
            command: &script.command,
            format: CallFormat::Librefang,
            variables,
            process,
            time: if kind == ScriptKind::Bootstrap { time * 2 } else { time },
            max_retries: if is_persistent { 0 } else { self.manifest.max_retries },
            retry_delay: self.manifest.retry_delay,
            reply: ReplyLine::FirstJson,
            restarts: is_persistent,
            state,
        }))
    }

    fn variables(
        &self,
        kind: ScriptKind,
        process: ProcessMode,
        parts: &CallParts<'_>,
        overrides: &Overrides,
    ) -> Result<Vec<(String, String)>, Status> {
        let own = &self.manifest.environment.variables;
        let added = overrides.env.iter().filter(|(name, _)| !own.contains_key(*name));
        let mut variables: Vec<_> =
            own.iter().chain(added).map(|(name, value)| (name.clone(), value.clone())).collect();
        variables.push(("LIBREFANG_RUNTIME".into(), self.manifest.launcher.runtime.clone()));
        if process == ProcessMode::PerCall {
            variables.push(("LIBREFANG_AGENT_ID".into(), agent(parts).replace('\0', "")));
            let message = match kind {
                ScriptKind::Ingest => {
                    Payload::new(parts.payload)?.text("message").unwrap_or_default().into_owned()
                }
                _ => String::new(),
            };
            let fits = message.len() <= MAX_MESSAGE_BYTES && !message.contains('\0');
            variables.push(("LIBREFANG_MESSAGE".into(), if fits { message } else { String::new() }));
        }
        Ok(variables)
    }
}

fn kind(site: &CallSite) -> Result<ScriptKind, Status> {
    ScriptKind::at(site.as_str()).ok_or_else(|| unserved(site))
}

fn unserved(site: &CallSite) -> Status {
    Status::unimplemented(format!("the plugin has no script for {site}"))
}

const fn wire(reply: ReplyLine) -> Wire {
    match reply {
        ReplyLine::WithId(id) => Wire::Sidecar(id),
        ReplyLine::First | ReplyLine::FirstJson => Wire::Script,
    }
}

/// A call as the line that a script or a sidecar reads.
///
/// # Errors
/// INVALID_ARGUMENT if the payload can't be read.
pub(crate) fn line(parts: &CallParts<'_>, reply: ReplyLine) -> Result<Vec<u8>, Status> {
    let payload = Payload::new(parts.payload)?;
    let context = parts.call.context.clone().unwrap_or_default();
    let mut line = call::encode(kind(parts.site)?, wire(reply), &context, &payload);
    crate::call_messages::end_line(&mut line);
    Ok(line)
}

/// The contract's reply in what a script or a sidecar wrote.
///
/// # Errors
/// ABORTED if there is none.
pub(crate) fn reply(parts: &CallParts<'_>, reply: ReplyLine, output: &Bytes) -> Result<DialectReply, Status> {
    let kind = kind(parts.site)?;
    let output = ScriptOutput::read(output)?;
    let wire = wire(reply);
    let members = match wire {
        Wire::Script => output.members(),
        Wire::Sidecar(_) => reply::sidecar_result(&output.members())?,
    };
    let decoded = match kind {
        // Without it the tool's own result would pass.
        ScriptKind::TransformToolResult if !output.has_reply() => {
            return Err(Status::internal("the script wrote no line that is a JSON object"));
        }
        ScriptKind::TransformToolResult => reply::decode_result(&members, &Payload::new(parts.payload)?)?,
        _ => reply::decode(kind, wire, &members),
    };
    let noise = output.noise.iter().map(ToString::to_string);
    Ok(DialectReply {
        text: decoded.text.into(),
        log: noise.chain(decoded.log).collect(),
        warning: decoded.warning,
        overrides: decoded.overrides.filter(|_| wire == Wire::Script),
    })
}

/// An agent's state file in the private folder `home`.
pub(crate) fn state_file(home: &Path, agent: &str) -> PathBuf {
    home.join(".librefang/state").join(format!("{}.json", crate::home::folder_name(agent)))
}
