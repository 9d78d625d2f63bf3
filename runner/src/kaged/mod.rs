//! Plugins of kaged (docs/kaged-plugins.md): a folder with a manifest, and a process for each tenant that speaks JSON-RPC.
//!
//! ```text
//!   RunnerPlugin ──► SessionPool ──► Session ──► Connection ──► the plugin's process
//!                    per plugin      per tenant  JSON-RPC        its standard input and output
//!                                       │
//!                                       └─────► Storage ──────► a process with the tenant's Database
//! ```

mod call;
mod connection;
mod database;
mod handshake;
mod manifest;
mod message;
mod message_log;
mod session;
mod session_pool;
mod session_process;
mod statement;
mod storage;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use hookgate_proto::{HookName, SideEffects, types::v1::Tool};
use serde_json::{Value, json};
use tonic::Status;

use self::{
    call::{CallKind, KagedCall},
    database::StorageAccess,
    manifest::{KagedHook, Manifest},
    session::{SessionOwner, StartFault},
};
pub(crate) use self::{
    database::{StorageSpec, serve_storage},
    session_pool::SessionPool,
};
use crate::{
    call_log::{CallLog, CallProgress},
    dialect::{CallParts, tenant},
    instances::Instance,
    offers::HookEntry,
    program_host::ProgramHost,
};

/// Longest call of a tool, as in kaged.
const TOOL_TIME: Duration = Duration::from_secs(30);

/// A plugin of kaged.
#[derive(Debug)]
pub(crate) struct KagedPlugin {
    /// Its folder, without links.
    folder: PathBuf,
    manifest: Manifest,
}

impl KagedPlugin {
    /// Reads the plugin in `folder`. Of the runner's environment, it may have `allowed_env`.
    ///
    /// # Errors
    /// The first mistake, with its key.
    pub(crate) fn read(folder: &Path, allowed_env: &[String]) -> Result<Self, String> {
        let missing = |error| format!("{}: {error}", folder.display());
        let folder = folder.canonicalize().map_err(missing)?;
        let manifest = Manifest::read(&folder, allowed_env)
            .map_err(|reason| format!("{}: {reason}", folder.join(manifest::FILE).display()))?;
        Ok(KagedPlugin { folder, manifest })
    }

    pub(crate) fn name(&self) -> &str {
        &self.manifest.name
    }

    pub(crate) fn version(&self) -> &str {
        &self.manifest.version
    }

    fn hooks(&self) -> &[KagedHook] {
        &self.manifest.hooks
    }

    /// The hooks of the gateway at which it answers.
    pub(crate) fn hook_entries(&self) -> Vec<HookEntry> {
        let hook = |hook: &KagedHook| HookName::new(hook.site()).ok();
        let entry = |hook| HookEntry { hook, side_effects: SideEffects::Some };
        self.manifest.hooks.iter().filter_map(hook).map(entry).collect()
    }

    pub(crate) fn tools(&self) -> &[Tool] {
        &self.manifest.tools
    }

    pub(crate) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.manifest.tools.iter().map(|tool| tool.name.as_str())
    }

    fn is_compactor(&self) -> bool {
        self.manifest.is_compactor
    }

    fn capabilities(&self) -> &[String] {
        &self.manifest.capabilities
    }

    fn storage_access(&self) -> Option<StorageAccess> {
        StorageAccess::of(self.capabilities())
    }

    /// The schema of the plugin-level configuration: what kaged keeps from projects.
    pub(crate) fn config_schema(&self) -> Value {
        self.manifest.system_config_schema.clone().unwrap_or_else(no_config)
    }

    /// The schema of the tenant-level configuration: that of a project.
    pub(crate) fn tenant_config_schema(&self) -> Value {
        self.manifest.config_schema.clone().unwrap_or_else(no_config)
    }

    pub(crate) fn secrets(&self) -> &[String] {
        &self.manifest.environment.secrets
    }

    /// What an operator should know before the first call.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.manifest.warnings
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn command(&self) -> &[String] {
        &self.manifest.command
    }

    /// The files of the command.
    fn files(&self) -> Vec<PathBuf> {
        self.command().iter().map(PathBuf::from).filter(|word| word.starts_with(&self.folder)).collect()
    }

    fn variables(&self, tenant: &str) -> Vec<(String, String)> {
        let own = [
            ("KAGED_PROJECT_ID", tenant.to_owned()),
            ("KAGED_PLUGIN_NAME", self.name().to_owned()),
            ("KAGED_PLUGIN_DIR", self.folder.display().to_string()),
            ("KAGED_API_VERSION", manifest::API_VERSION.to_string()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.manifest.environment.variables.clone().into_iter().chain(own).collect()
    }

    fn health_interval(&self) -> Duration {
        self.manifest.health_interval
    }

    fn shutdown_timeout(&self) -> Duration {
        self.manifest.shutdown_timeout
    }

    fn time(&self, kind: CallKind) -> Duration {
        match kind {
            CallKind::Hook(_) => self.manifest.hook_timeout,
            CallKind::Tool => TOOL_TIME,
        }
    }
}

fn no_config() -> Value {
    json!({ "type": "object", "additionalProperties": false })
}

/// Has the plugin of `host` answer a call. The reply is one of docs/writing-a-plugin-shell.md.
///
/// # Errors
/// If it gives no answer to the call.
pub(crate) async fn answer(
    host: &Arc<ProgramHost>,
    plugin: &Arc<KagedPlugin>,
    parts: &CallParts<'_>,
    instance: &Arc<Instance>,
    log: &mut CallLog<'_>,
) -> Result<Bytes, Status> {
    let call = KagedCall::new(plugin, parts)?;
    let owner = SessionOwner {
        tenant: tenant(parts).into(),
        instance: Arc::clone(instance),
        tenant_config: parts.call.tenant_config.clone(),
    };
    log.starting();
    let lease = SessionPool::acquire(host, plugin, owner)?;
    let session = lease.session().await.map_err(|StartFault { status, stderr }| {
        log.progress.stderr = stderr;
        status
    })?;
    log.waiting();
    let turn = session.turn(call.request.kind).await;
    log.replying();
    log.progress = CallProgress { output: Vec::new(), stderr: Some(session.stderr()) };
    let time = host.entry.limits.time.map_or_else(|| plugin.time(call.request.kind), |time| time.0);
    let answer = session.call(Arc::clone(&call.request), time, (turn, lease)).await;
    call.reply(plugin, &answer.map_err(|fault| host.status(&fault))?).map(Bytes::from)
}

/// A plugin with every hook and a tool, whose manifest has more keys.
#[cfg(test)]
fn test_plugin(keys: &str) -> KagedPlugin {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let manifest = "name: notes\nversion: 0.1.0\nkaged_api: 1\ndescription: Notes.\ncommand: [cat]\n\
                    hooks: [on_session_start, on_session_idle, pre_compact, post_compact]\n\
                    tools: [{ name: retain, description: Remembers. }]\n";
    let file = folder.path().join(manifest::FILE);
    std::fs::write(file, format!("{manifest}{keys}")).expect("the directory is ours");
    KagedPlugin::read(folder.path(), &[]).expect("it is valid")
}
