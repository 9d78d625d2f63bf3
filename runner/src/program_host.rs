//! A plugin's programs and configurations: starts programs, and exchanges calls and replies with them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::Value;
use tonic::{Code, Status};

use crate::{
    call_log::CallProgress,
    dialect::{AgentState, CallParts, Dialect, DialectReply, ProgramRoute, ReplyLine, agent, tenant},
    digest_file, executable, home,
    instances::{Instance, Instances},
    kaged::SessionPool,
    launch::{self, LaunchSpec, LaunchTarget, Sandbox},
    librefang::{CONFIG_VARIABLE, OverrideStore, Overrides, STATE_VARIABLE, state_file, write_private},
    output::OutputLog,
    plugin_entry::{PluginEntry, ProcessMode, ProgramLimits, beside_remedy},
    plugin_folder::check_files,
    pool::{PoolLimits, ProgramPool, ProgramSlot},
    processes::Processes,
    program::{Program, ProgramFault, ProgramState},
    tree_limits::TreeLimits,
};

/// What every program has in its environment, besides its own folders and variables.
const ENVIRONMENT: [(&str, &str); 2] = [("PATH", executable::PATH), ("LANG", "C.UTF-8")];
/// Longest delay before a call is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A plugin's programs and configurations.
pub(crate) struct ProgramHost {
    pub(crate) entry: PluginEntry,
    pub(crate) name: Arc<str>,
    data_dir: PathBuf,
    sandbox: bool,
    pub(crate) instances: Instances,
    pub(crate) pool: Arc<ProgramPool>,
    pub(crate) sessions: SessionPool,
    pub(crate) processes: Arc<Processes>,
}

/// A program to start.
pub(crate) struct ProgramCommand<'a> {
    pub(crate) words: &'a [String],
    /// Variables of the program that the runner's file doesn't set.
    pub(crate) variables: Vec<(String, String)>,
    /// Where it starts, unless that is its private folder.
    pub(crate) folder: Option<&'a Path>,
    /// Files that must be where they were when the runner started.
    pub(crate) files: Vec<PathBuf>,
    /// The agent whose state it has in a file.
    pub(crate) state: Option<&'a AgentState>,
    /// A variable that names its private folder, besides HOME.
    pub(crate) home_variable: Option<&'static str>,
}

/// A program's reply, and the program if it takes another call.
pub(crate) struct ProgramReply {
    pub(crate) bytes: Bytes,
    program: Option<(ProgramSlot, Program)>,
}

impl ProgramReply {
    pub(crate) fn keep_program(self) {
        if let Some((slot, program)) = self.program {
            slot.keep(program);
        }
    }
}

impl ProgramHost {
    pub(crate) fn new(
        entry: PluginEntry,
        data_dir: PathBuf,
        sandbox: bool,
        processes: Arc<Processes>,
    ) -> Self {
        let limits = PoolLimits { parallel: entry.limits.parallel, programs: entry.limits.programs };
        ProgramHost {
            pool: Arc::new(ProgramPool::new(limits)),
            sessions: SessionPool::new(entry.limits.programs),
            name: Arc::from(&*entry.name),
            instances: Instances::default(),
            entry,
            data_dir,
            sandbox,
            processes,
        }
    }

    /// Has the program of `slot` answer a call within `time`.
    pub(crate) async fn exchange(
        &self,
        mut slot: ProgramSlot,
        route: &ProgramRoute<'_>,
        line: &[u8],
        time: Duration,
        progress: &mut CallProgress,
    ) -> Result<ProgramReply, Status> {
        let (output, limit, begun) = (self.entry.limits.output.0, route.time, Instant::now());
        if route.process == ProcessMode::PerCall {
            let program = self.start(&mut slot, route).await?;
            let bytes = program.exchange_all(line, output, time, progress).await;
            let bytes = bytes.map_err(|fault| self.status(&fault.with_limit(limit)))?;
            return Ok(ProgramReply { bytes, program: None });
        }
        // With half of its CPU time left, a program can answer any call that a fresh one could.
        let cpu = self.entry.limits.cpu.0 / 2;
        if let Some(mut program) = slot.take() {
            if self.is_ready(&mut program, &slot.tenant, cpu, route.reply).await {
                match program.exchange_line(line, route.reply, output, time, progress).await {
                    // It ended by itself after its last call. It did not crash, so a fresh one gets the call.
                    Err(fault)
                        if (fault.is_clean_end() || (route.restarts && fault.is_end()))
                            && begun.elapsed() < time => {}
                    replied => return self.finish(slot, program, replied, limit),
                }
            }
            // Its place is for the fresh one.
            if let Some(ending) = program.end() {
                slot.put_place(ending.await.map_err(|error| Status::internal(error.to_string()))?);
            }
        }
        let mut program = self.start(&mut slot, route).await?;
        // Both together have the call's time.
        let left = time.saturating_sub(begun.elapsed());
        let replied = program.exchange_line(line, route.reply, output, left, progress).await;
        self.finish(slot, program, replied, limit)
    }

    /// How long to wait before the call is made again, for the time after `attempts`. `None` if that is not to be.
    pub(crate) fn retry_delay(
        &self,
        route: &ProgramRoute<'_>,
        attempts: u32,
        deadline: Instant,
        status: &Status,
    ) -> Option<Duration> {
        // Of other faults, a second one would be the same, or there is no time left.
        if status.code() != Code::Aborted || attempts > route.max_retries {
            return None;
        }
        let delay = route.retry_delay.saturating_mul(1 << (attempts - 1).min(16)).min(MAX_RETRY_DELAY);
        (Instant::now() + delay < deadline).then_some(delay)
    }

    async fn is_ready(&self, program: &mut Program, tenant: &str, cpu: Duration, reply: ReplyLine) -> bool {
        let state = program.state(reply, cpu).await;
        if state == ProgramState::OutOfStep {
            let plugin = &*self.name;
            tracing::warn!(
                plugin,
                tenant,
                "the program wrote something that no call asked for, so it is started again"
            );
        }
        state == ProgramState::Ready
    }

    async fn start(&self, slot: &mut ProgramSlot, route: &ProgramRoute<'_>) -> Result<Program, Status> {
        let unavailable = |error| Status::unavailable(format!("the program can't be started: {error}"));
        let command = ProgramCommand {
            words: route.command,
            variables: route.variables.clone(),
            folder: None,
            files: match &self.entry.dialect {
                Dialect::Librefang(plugin) => plugin.script_paths(),
                Dialect::Lines | Dialect::LibrefangSidecar(_) | Dialect::Kaged(_) => Vec::new(),
            },
            state: route.state.as_ref(),
            home_variable: None,
        };
        let command = self.prepare(&slot.tenant, &slot.instance, command).await.map_err(unavailable)?;
        let place = slot.take_place().ok_or_else(|| Status::internal("the call has had its program"))?;
        let log =
            OutputLog::new(Arc::clone(&self.name), Arc::clone(&slot.tenant), Arc::clone(&slot.instance));
        Program::start(command, self.tree_limits(), &self.processes, place, log).map_err(unavailable)
    }

    pub(crate) fn tree_limits(&self) -> TreeLimits {
        let ProgramLimits { cpu, memory, processes, .. } = self.entry.limits;
        TreeLimits { cpu: Duration::from_secs(cpu.0.as_secs()), memory: memory.0, processes }
    }

    /// The command that starts a program for `tenant`. Checks that it can be executed, and the digests of files.
    pub(crate) async fn prepare(
        &self,
        tenant: &str,
        instance: &Instance,
        ProgramCommand { words, variables, folder, files, state, home_variable }: ProgramCommand<'_>,
    ) -> io::Result<tokio::process::Command> {
        let (digests, data_dir, name) =
            (self.entry.sha256.clone(), self.data_dir.clone(), self.entry.name.clone());
        let (owner, program) = (tenant.to_owned(), words.first().cloned().unwrap_or_default());
        let path = self.entry.path().to_owned();
        let home = tokio::task::spawn_blocking(move || {
            executable::check(&program, &path).map_err(io::Error::other)?;
            check_files(&files).map_err(io::Error::other)?;
            digest_file::check(&digests).map_err(io::Error::other)?;
            home::create(&data_dir, &name, &owner)
        });
        let home = home.await.map_err(io::Error::other)??;
        let config = self.has_config_files().then(|| self.config_file(&instance.digest));
        let state = state.map(|state| state_file(&home, &state.agent));
        let readable = self.entry.readable().chain(config.clone()).collect();
        let spec = LaunchSpec {
            target: LaunchTarget::Program(words.to_vec()),
            limits: self.tree_limits(),
            task_limit: self.processes.task_limit().clone(),
            file_size: None,
            sandbox: self.sandbox.then(|| Sandbox { readable, home: home.clone() }),
            state_file: state.clone(),
        };
        let mut command = launch::command(&spec)?;
        command
            .env_clear()
            .envs(ENVIRONMENT)
            .env("HOME", &home)
            .env("TMPDIR", home::temporary(&home))
            .env("HOOKGATE_PLUGIN", &self.entry.name)
            .env("HOOKGATE_TENANT", tenant)
            .envs(variables)
            .envs(home_variable.map(|name| (name, &home)))
            .envs(config.map(|path| (CONFIG_VARIABLE, path)))
            .envs(state.map(|path| (STATE_VARIABLE, path)))
            .envs(&self.entry.variables)
            .current_dir(folder.unwrap_or(&home));
        Ok(command)
    }

    fn finish(
        &self,
        slot: ProgramSlot,
        program: Program,
        replied: Result<Bytes, ProgramFault>,
        limit: Duration,
    ) -> Result<ProgramReply, Status> {
        let bytes = replied.map_err(|fault| self.status(&fault.with_limit(limit)))?;
        Ok(ProgramReply { bytes, program: Some((slot, program)) })
    }

    /// A fault as a status. Those that a call causes don't count against the plugin (docs/protocol.md, breakers), so no
    /// tenant's calls can keep it from others.
    pub(crate) fn status(&self, fault: &ProgramFault) -> Status {
        let code = match fault {
            ProgramFault::Refused(_) => Code::Aborted,
            ProgramFault::TimedOut { .. } => Code::DeadlineExceeded,
            ProgramFault::TooLong(_) | ProgramFault::Excess(_) => Code::ResourceExhausted,
            ProgramFault::Ended { .. } => Code::Aborted,
        };
        // An interpreter that doesn't find its script ends with a code of its own.
        let unresolved = self.entry.unresolved.as_deref().filter(|_| fault.is_failure());
        Status::new(code, format!("{fault}{}", unresolved.map(beside_remedy).unwrap_or_default()))
    }

    /// Logs what a reply says beside its message, and keeps what it changes for later calls.
    pub(crate) async fn note(
        &self,
        parts: &CallParts<'_>,
        instance: &Instance,
        reply: &mut DialectReply,
    ) -> Result<(), Status> {
        let (plugin, tenant) = (&*self.name, tenant(parts));
        if let Some(warning) = reply.warning {
            tracing::warn!(plugin, tenant, at = %parts.site, "{warning}");
        }
        OutputLog::log_lines(&self.name, tenant, instance, &reply.log);
        let Some(overrides) = reply.overrides.take() else { return Ok(()) };
        let (store, tenant, agent) = (self.overrides(), tenant.to_owned(), agent(parts).to_owned());
        let put = tokio::task::spawn_blocking(move || store.put(&tenant, &agent, &overrides)).await;
        put.map_err(io::Error::other).and_then(|put| put).map_err(|error| {
            // What a reply causes doesn't count against the plugin.
            let is_reply = error.kind() == io::ErrorKind::InvalidData;
            let code = if is_reply { Code::ResourceExhausted } else { Code::Unavailable };
            Status::new(code, format!("the overrides can't be kept: {error}"))
        })
    }

    /// The folder of a tenant's storage, out of the reach of its programs.
    pub(crate) fn storage_folder(&self, tenant: &str) -> PathBuf {
        self.folder().join(".storage").join(home::folder_name(tenant))
    }

    /// Whether a process has the access rights of a sandbox.
    pub(crate) fn is_sandboxed(&self) -> bool {
        self.sandbox
    }

    fn folder(&self) -> PathBuf {
        self.data_dir.join(&self.entry.name)
    }

    fn overrides(&self) -> OverrideStore {
        OverrideStore::new(&self.folder())
    }

    /// What the agent's `bootstrap` changed for its calls.
    ///
    /// # Errors
    /// UNAVAILABLE if that can't be read: a filter may be among it.
    pub(crate) async fn overrides_for(&self, parts: &CallParts<'_>) -> Result<Overrides, Status> {
        if !self.entry.dialect.has_overrides() {
            return Ok(Overrides::default());
        }
        let (store, tenant, agent) = (self.overrides(), tenant(parts).to_owned(), agent(parts).to_owned());
        let found = tokio::task::spawn_blocking(move || store.get(&tenant, &agent)).await;
        let found = found.map_err(io::Error::other).and_then(|found| found);
        found.map_err(|error| Status::unavailable(format!("the overrides can't be read: {error}")))
    }

    /// The folder of configurations as files. No tenant's folder begins with a dot.
    fn config_folder(&self) -> PathBuf {
        self.folder().join(".config")
    }

    fn config_file(&self, digest: &str) -> PathBuf {
        self.config_folder().join(home::folder_name(digest))
    }

    /// Whether programs read their configuration from a file.
    fn has_config_files(&self) -> bool {
        matches!(&self.entry.dialect, Dialect::Librefang(plugin) if plugin.has_config())
    }

    /// Writes a configuration that is in use as a file, if programs read it from one.
    pub(crate) async fn write_config(&self, digest: &str, config: &Value) -> io::Result<()> {
        let Dialect::Librefang(plugin) = &self.entry.dialect else { return Ok(()) };
        if !plugin.has_config() {
            return Ok(());
        }
        let (path, text) = (self.config_file(digest), plugin.config(config));
        let write = move || match fs::read(&path) {
            // Running programs may read this very file, and no other one of its name.
            Ok(written) if written == text => Ok(()),
            _ => write_private(&path, &text),
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }

    /// Removes the files of all configurations: they may hold secrets.
    pub(crate) fn remove_configs(&self) {
        let _ = fs::remove_dir_all(self.config_folder());
    }

    /// Removes the files of configurations that no gateway uses any more.
    pub(crate) fn remove_unused_configs(&self) {
        let is_used =
            |path: &Path| self.instances.digests().iter().any(|digest| self.config_file(digest) == path);
        for file in fs::read_dir(self.config_folder()).into_iter().flatten().flatten() {
            // One that begins with a dot is being written.
            let is_whole = !file.file_name().as_encoded_bytes().starts_with(b".");
            if is_whole && !is_used(&file.path()) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}
