//! A plugin's storage for one tenant. Its database is in a process of its own, because the plugin's SQL may be hostile: the
//! kernel bounds what it can reach and use, and ends it.

use std::{
    fs::DirBuilder, io, os::unix::fs::DirBuilderExt as _, path::PathBuf, process::Stdio, sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    runtime::Handle,
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    connection::{Connection, PluginRequest},
    database::{FORBIDDEN, MAX_RESULT_BYTES, OPERATIONS, STORAGE_ERROR, StorageAccess, StorageSpec, error},
    message::{self, IncomingMessage, METHOD_NOT_FOUND, RpcError},
};
use crate::{
    launch::{self, LaunchSpec, LaunchTarget, Sandbox},
    process_list::ProcessStat,
    processes::{ProcessGroup, Processes},
    program_host::ProgramHost,
    tree_limits::TreeLimits,
};

/// Longest answer of the process, in bytes: a result and what is around it.
const MAX_ANSWER_BYTES: u64 = (MAX_RESULT_BYTES + (64 << 10)) as u64;
/// Longest answer, as time. It is for statements that SQLite itself doesn't end: one call of a function may take longer.
const MAX_ANSWER: Duration = Duration::from_secs(15);
/// How long a plugin whose storage ended waits for another one, so that no loop of faults keeps a core busy.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Memory of the process, in bytes.
const MEMORY: u64 = 256 << 20;
/// Longest file, in bytes: more than a database may have, so that its journal fits.
const MAX_FILE_BYTES: u64 = 80 << 20;

/// The storage of one plugin and tenant.
pub(super) struct Storage {
    plugin: Arc<str>,
    tenant: Arc<str>,
    access: Option<StorageAccess>,
    /// The tenant's own.
    folder: PathBuf,
    is_sandboxed: bool,
    /// CPU time of a process.
    cpu: Duration,
    processes: Arc<Processes>,
    /// Started for the first request, and again after its end.
    process: Option<StorageProcess>,
}

impl Storage {
    pub(super) fn new(host: &ProgramHost, tenant: &Arc<str>, access: Option<StorageAccess>) -> Self {
        Storage {
            plugin: Arc::clone(&host.name),
            tenant: Arc::clone(tenant),
            access,
            folder: host.storage_folder(tenant),
            is_sandboxed: host.is_sandboxed(),
            cpu: host.tree_limits().cpu,
            processes: Arc::clone(&host.processes),
            process: None,
        }
    }

    /// Answers requests of the plugin, one after the other.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<PluginRequest>, plugin: Connection) {
        while let Some(PluginRequest { id, method, params }) = requests.recv().await {
            let outcome = self.answer(&method, &params).await.map(Vec::from);
            if plugin.respond(&id, &outcome).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&mut self, method: &str, params: &[u8]) -> Result<Bytes, RpcError> {
        let operation = method.strip_prefix("kaged.").unwrap_or(method).strip_prefix("storage.");
        let Some(operation) = operation.filter(|operation| OPERATIONS.contains(operation)) else {
            return Err(error(METHOD_NOT_FOUND, format!("there is no method {method}")));
        };
        let Some(access) = self.access else {
            return Err(error(FORBIDDEN, "the manifest names no capability kaged:storage:read"));
        };
        let params = if params.is_empty() { b"{}" } else { params };
        let mut process = self.take_process(access).await?;
        let answered = timeout(MAX_ANSWER, process.exchange(operation, params)).await;
        let reason = match answered {
            Ok(Ok(outcome)) => {
                self.process = Some(process);
                return outcome;
            }
            Ok(Err(_)) => "the storage ended: the statement may have used its CPU time or memory",
            Err(_) => "the statement took too long",
        };
        // Its locks are free once it has ended.
        process.end().await;
        Err(self.fault(reason).await)
    }

    /// Logs a fault of the storage, and delays its plugin.
    async fn fault(&self, reason: &str) -> RpcError {
        let (plugin, tenant) = (&*self.plugin, &*self.tenant);
        tracing::warn!(plugin, tenant, reason, "the plugin's storage failed");
        sleep(RESTART_DELAY).await;
        error(STORAGE_ERROR, reason)
    }

    /// The process. With half of its CPU time left, it can answer any request that a fresh one could.
    async fn take_process(&mut self, access: StorageAccess) -> Result<StorageProcess, RpcError> {
        if let Some(process) = self.process.take() {
            if process.is_ready(self.cpu / 2) {
                return Ok(process);
            }
            process.end().await;
        }
        match self.start(access).await {
            Ok(process) => Ok(process),
            Err(cause) => Err(self.fault(&format!("the storage can't be started: {cause}")).await),
        }
    }

    async fn start(&self, access: StorageAccess) -> io::Result<StorageProcess> {
        let folder = self.folder.clone();
        let create = move || DirBuilder::new().recursive(true).mode(0o700).create(folder);
        tokio::task::spawn_blocking(create).await.map_err(io::Error::other)??;
        let limits = TreeLimits { cpu: self.cpu, memory: MEMORY, processes: 1 };
        StorageProcess::start(self.command(access, limits)?, limits, Arc::clone(&self.processes))
    }

    fn command(&self, access: StorageAccess, limits: TreeLimits) -> io::Result<Command> {
        let (file, home) = (self.folder.join("storage.db"), self.folder.clone());
        let spec = LaunchSpec {
            target: LaunchTarget::Storage(StorageSpec { file, access }),
            limits,
            task_limit: self.processes.task_limit().clone(),
            file_size: Some(MAX_FILE_BYTES),
            sandbox: self.is_sandboxed.then(|| Sandbox { readable: Vec::new(), home }),
            state_file: None,
        };
        let mut command = launch::command(&spec)?;
        command.env_clear().env("TMPDIR", &self.folder).env("SQLITE_TMPDIR", &self.folder);
        command.current_dir(&self.folder);
        Ok(command)
    }
}

/// The process of a storage. Dropping it ends it.
struct StorageProcess {
    /// It is there until the end.
    child: Option<Child>,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    group: Arc<ProcessGroup>,
    processes: Arc<Processes>,
    /// The id of the last request.
    last_id: u64,
}

impl StorageProcess {
    fn start(mut command: Command, limits: TreeLimits, processes: Arc<Processes>) -> io::Result<Self> {
        // It writes to standard error only why it can't be restricted, which holds for the plugin too.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let (mut child, group) = processes.spawn(&mut command, limits)?;
        let missing = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(StorageProcess { child: Some(child), stdin, stdout, group, processes, last_id: 0 })
    }

    /// Whether it runs, and has used at most `cpu` of CPU time.
    fn is_ready(&self, cpu: Duration) -> bool {
        let stat = ProcessStat::read(self.group.leader());
        stat.is_some_and(|stat| !stat.is_zombie && stat.cpu <= cpu)
    }

    /// # Errors
    /// If it ends instead of an answer, or its answer is none.
    async fn exchange(&mut self, method: &str, params: &[u8]) -> io::Result<Result<Bytes, RpcError>> {
        self.last_id += 1;
        self.stdin.write_all(&message::request(self.last_id, method, params)).await?;
        self.stdin.flush().await?;
        let mut line = Vec::new();
        (&mut self.stdout).take(MAX_ANSWER_BYTES).read_until(b'\n', &mut line).await?;
        match line.pop_if(|last| *last == b'\n').map(|_| IncomingMessage::parse(&line.into())) {
            Some(IncomingMessage::Response { id, outcome }) if id == self.last_id => Ok(outcome),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Ends it, and waits until it has.
    async fn end(mut self) {
        if let Some(ending) = self.start_end() {
            let _ = ending.await;
        }
    }

    fn start_end(&mut self) -> Option<JoinHandle<()>> {
        let child = self.child.take()?;
        let (group, processes) = (Arc::clone(&self.group), Arc::clone(&self.processes));
        // Without a runtime, this process ends, and the storage with it.
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move { processes.end(&group, child).await }))
    }
}

impl Drop for StorageProcess {
    fn drop(&mut self) {
        self.start_end();
    }
}
