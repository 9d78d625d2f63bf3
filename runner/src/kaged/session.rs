//! A kaged plugin for one tenant: its handshake, calls and health.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tonic::Status;

use super::{
    KagedPlugin,
    call::{CallKind, KagedRequest},
    connection::{Connection, ConnectionEnd},
    handshake::{self, HandshakeFault},
    message::RpcError,
    message_log::MessageLog,
    session_process::{SessionProcess, SessionStop},
    storage::Storage,
};
use crate::{
    exit::ProgramChild,
    instances::Instance,
    output::{OutputLog, StderrTail},
    process_list::ProcessStat,
    program::{ProgramFault, ReplyProgress},
    program_host::{ProgramCommand, ProgramHost},
};

/// Longest handshake, as in kaged.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest response to a ping, as in kaged.
const MAX_PING: Duration = Duration::from_secs(5);
/// How many pings in a row without a response end a plugin, as in kaged.
pub(super) const MAX_MISSED_PINGS: u32 = 3;

/// Who a session is for.
pub(super) struct SessionOwner {
    pub(super) tenant: Arc<str>,
    pub(super) instance: Arc<Instance>,
    /// A JSON object; empty for none.
    pub(super) tenant_config: Bytes,
}

/// The right to ask a plugin something.
pub(super) struct SessionTurn {
    _hook: Option<OwnedMutexGuard<()>>,
    _place: Option<OwnedSemaphorePermit>,
}

/// Why a session has not started.
#[derive(Clone)]
pub(super) struct StartFault {
    pub(super) status: Status,
    /// Of the plugin, if it was started.
    pub(super) stderr: Option<StderrTail>,
}

impl From<Status> for StartFault {
    fn from(status: Status) -> Self {
        StartFault { status, stderr: None }
    }
}

/// A running plugin that has completed its handshake.
pub(super) struct Session {
    pub(super) connection: Connection,
    /// Calls at the same time.
    places: Arc<Semaphore>,
    /// kaged calls the hooks of a plugin one after the other.
    hook_turn: Arc<Mutex<()>>,
    /// Calls without a response.
    in_flight: AtomicUsize,
    /// Ends the process at once.
    faults: mpsc::UnboundedSender<ProgramFault>,
    /// Whether a fault is about to end the process.
    is_failing: AtomicBool,
    end: watch::Receiver<Option<Arc<ProgramFault>>>,
    stderr: StderrTail,
    /// The process id of the plugin.
    leader: i32,
}

impl Session {
    /// Starts a plugin. It ends when `stop` says so.
    ///
    /// # Errors
    /// UNAVAILABLE if it can't be started, and another status if its handshake fails.
    pub(super) async fn start(
        host: &ProgramHost,
        plugin: &Arc<KagedPlugin>,
        owner: &SessionOwner,
        place: OwnedSemaphorePermit,
        stop: SessionStop,
    ) -> Result<Arc<Session>, StartFault> {
        let unavailable = |error| Status::unavailable(format!("the plugin can't be started: {error}"));
        let SessionOwner { tenant, instance, .. } = owner;
        let command = ProgramCommand {
            words: plugin.command(),
            variables: plugin.variables(tenant),
            folder: Some(plugin.folder()),
            files: plugin.files(),
            state: None,
            home_variable: Some("KAGED_PROJECT_ROOT"),
        };
        let mut command = host.prepare(tenant, instance, command).await.map_err(unavailable)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, group) =
            host.processes.spawn(&mut command, host.tree_limits()).map_err(unavailable)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Status::unavailable("the plugin can't be started: a pipe is missing").into());
        };
        let log = MessageLog::new(Arc::clone(&host.name), Arc::clone(tenant), Arc::clone(instance));
        let (connection, output) = Connection::new(stdin, stdout, host.entry.limits.output.0, log);
        let (faults, received) = mpsc::unbounded_channel();
        let (ending, end) = watch::channel(None);
        let stderr_log = OutputLog::new(Arc::clone(&host.name), Arc::clone(tenant), Arc::clone(instance));
        let session = Arc::new(Session {
            connection,
            places: Arc::new(Semaphore::new(host.entry.limits.parallel)),
            hook_turn: Arc::default(),
            in_flight: AtomicUsize::new(0),
            faults,
            is_failing: AtomicBool::new(false),
            end,
            stderr: stderr_log.follow(stderr),
            leader: group.leader(),
        });
        let storage = Storage::new(host, &owner.tenant, plugin.storage_access());
        let process = SessionProcess {
            child: ProgramChild::new(child),
            group,
            processes: Arc::clone(&host.processes),
            session: Arc::clone(&session),
            plugin: Arc::clone(plugin),
            tenant: Arc::clone(tenant),
            ending,
            _place: place,
        };
        tokio::spawn(process.supervise(output, storage, received, stop));
        match session.open(host, plugin, owner).await {
            Ok(()) => Ok(session),
            Err(status) => Err(StartFault { status, stderr: Some(session.stderr.clone()) }),
        }
    }

    /// Makes the handshake, and hands over the configuration.
    async fn open(
        &self,
        host: &ProgramHost,
        plugin: &KagedPlugin,
        owner: &SessionOwner,
    ) -> Result<(), Status> {
        let opened = timeout(MAX_HANDSHAKE, handshake::run(&self.connection, plugin, owner)).await;
        let fault = match opened {
            Ok(Ok(warnings)) => {
                let (plugin, tenant) = (&*host.name, &*owner.tenant);
                for warning in warnings {
                    // It may quote the plugin.
                    let warning = owner.instance.redaction.apply(&warning);
                    tracing::warn!(plugin, tenant, "{warning}");
                }
                return Ok(());
            }
            Ok(Err(HandshakeFault::Disconnected)) => return Err(host.status(&*self.wait_for_end().await)),
            Ok(Err(HandshakeFault::Refused(status))) => {
                self.fail(ProgramFault::Refused("its handshake failed".into()));
                return Err(status);
            }
            Err(_) => ProgramFault::Refused(format!("its handshake took longer than {MAX_HANDSHAKE:?}")),
        };
        let status = host.status(&fault);
        self.fail(fault);
        Err(status)
    }

    /// Gives the session no more calls: its process is about to end.
    pub(super) fn set_failing(&self) {
        self.is_failing.store(true, Ordering::Release);
    }

    /// Ends the process.
    fn fail(&self, fault: ProgramFault) {
        self.set_failing();
        // Otherwise it has ended.
        let _ = self.faults.send(fault);
    }

    /// Waits until the process has ended, and returns why.
    async fn wait_for_end(&self) -> Arc<ProgramFault> {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        match ended {
            // Of another call, whose fault this one's isn't.
            Some(fault) if matches!(*fault, ProgramFault::TimedOut { .. }) => {
                Arc::new(ProgramFault::Refused("another call took too long".into()))
            }
            Some(fault) => fault,
            None => Arc::new(ProgramFault::Refused("the runner stops".into())),
        }
    }

    /// Whether the process has ended, or is about to.
    pub(super) fn has_ended(&self) -> bool {
        self.is_failing.load(Ordering::Acquire)
            || self.end.borrow().is_some()
            || self.end.has_changed().is_err()
    }

    /// Whether it has used more CPU time than `limit`.
    pub(super) fn has_used(&self, limit: Duration) -> bool {
        ProcessStat::read(self.leader).is_none_or(|stat| stat.cpu > limit)
    }

    /// The standard error from now on.
    pub(super) fn stderr(&self) -> StderrTail {
        self.stderr.following()
    }

    /// Waits until the plugin may be asked.
    pub(super) async fn turn(&self, kind: CallKind) -> SessionTurn {
        let hook = match kind {
            CallKind::Hook(_) => Some(Arc::clone(&self.hook_turn).lock_owned().await),
            CallKind::Tool => None,
        };
        // The semaphore is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        SessionTurn { _hook: hook, _place: place }
    }

    /// Has the plugin answer a request within `time`, and keeps `held` until then. A plugin that takes longer is ended, also if nobody waits for the
    /// answer any more: it may never do anything else.
    ///
    /// # Errors
    /// Why the process has ended.
    pub(super) async fn call(
        self: &Arc<Self>,
        request: Arc<KagedRequest>,
        time: Duration,
        held: impl Send + 'static,
    ) -> Result<Result<Bytes, RpcError>, Arc<ProgramFault>> {
        let session = Arc::clone(self);
        let answered = tokio::spawn(async move {
            let _held = held;
            session.exchange(&request, time).await
        });
        answered.await.unwrap_or_else(|error| Err(Arc::new(ProgramFault::Refused(error.to_string()))))
    }

    async fn exchange(
        &self,
        request: &KagedRequest,
        time: Duration,
    ) -> Result<Result<Bytes, RpcError>, Arc<ProgramFault>> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let response = timeout(time, self.connection.request(&request.method, &request.params)).await;
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        match response {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(ConnectionEnd)) => Err(self.wait_for_end().await),
            Err(_) => {
                let late = || ProgramFault::TimedOut { limit: time, progress: ReplyProgress::Nothing };
                self.fail(late());
                Err(Arc::new(late()))
            }
        }
    }

    /// Returns when the plugin doesn't answer its pings. A plugin that answers one message after the other is busy while
    /// it has a call, which has a limit of its own.
    pub(super) async fn watch_health(&self, interval: Duration) {
        let mut missed = 0;
        while missed < MAX_MISSED_PINGS {
            // One that missed a ping is asked again at once.
            if missed == 0 {
                sleep(interval).await;
            }
            if !self.connection.is_open() {
                continue;
            }
            let is_busy = || self.in_flight.load(Ordering::Acquire) > 0;
            let was_busy = is_busy();
            let response = timeout(MAX_PING, self.connection.request("ping", b"{}")).await;
            let is_answered = matches!(response, Ok(Ok(_)));
            missed = if is_answered || was_busy || is_busy() { 0 } else { missed + 1 };
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
pub(super) mod tests;
