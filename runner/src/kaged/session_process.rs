//! The process of a session, from its start to its end.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    KagedPlugin,
    connection::{OutputEnd, PluginOutput},
    session::{MAX_MISSED_PINGS, Session},
    storage::Storage,
};
use crate::{
    exit::ProgramChild,
    processes::{ProcessGroup, Processes},
    program::ProgramFault,
};

/// How long a plugin may take to end after SIGTERM, as in kaged.
const MAX_TERMINATION: Duration = Duration::from_secs(2);
/// How long a plugin may take to end before SIGTERM when the runner stops, whatever its manifest says.
const MAX_LAST_END: Duration = Duration::from_secs(1);
/// How long the end of a process may follow the end of its output, and the reverse.
const MAX_EXIT: Duration = Duration::from_secs(1);

/// What tells a session to end.
#[derive(Clone)]
pub(super) struct SessionStop {
    /// Nobody needs it any more.
    pub(super) session: CancellationToken,
    /// The runner stops.
    pub(super) runner: CancellationToken,
}

/// The process of a session.
pub(super) struct SessionProcess {
    pub(super) child: ProgramChild,
    pub(super) group: Arc<ProcessGroup>,
    pub(super) processes: Arc<Processes>,
    pub(super) session: Arc<Session>,
    pub(super) plugin: Arc<KagedPlugin>,
    pub(super) tenant: Arc<str>,
    pub(super) ending: watch::Sender<Option<Arc<ProgramFault>>>,
    /// One of the places for programs, until everything has ended.
    pub(super) _place: OwnedSemaphorePermit,
}

impl SessionProcess {
    /// Waits for the end, or causes it.
    pub(super) async fn supervise(
        mut self,
        output: PluginOutput,
        storage: Storage,
        mut faults: mpsc::UnboundedReceiver<ProgramFault>,
        stop: SessionStop,
    ) {
        let session = Arc::clone(&self.session);
        let PluginOutput { requests, mut end, mut input } = output;
        let serving = tokio::spawn(storage.serve(requests, session.connection.clone()));
        let fault = tokio::select! {
            ended = &mut end => {
                session.set_failing();
                self.output_fault(ended.unwrap_or(OutputEnd::Closed)).await
            }
            _ = &mut input => {
                session.set_failing();
                self.exit_fault("it closed its standard input").await
            }
            exit = self.child.wait() => {
                session.set_failing();
                let fault = exit.map(|exit| ProgramFault::ended(exit, &self.group));
                self.read_to_end(&mut end).await;
                fault.unwrap_or_else(|error| ProgramFault::Refused(error.to_string()))
            }
            () = session.watch_health(self.plugin.health_interval()) => {
                ProgramFault::Refused(format!("it answered none of {MAX_MISSED_PINGS} pings"))
            }
            Some(fault) = faults.recv() => fault,
            () = stop.session.cancelled() => {
                self.shut_down(&stop.runner).await;
                self.read_to_end(&mut end).await;
                ProgramFault::Refused("nobody needed it any more".into())
            }
        };
        let excess = self.group.excess().map(|excess| ProgramFault::Excess(excess.to_owned()));
        let fault = excess.unwrap_or(fault);
        if !stop.session.is_cancelled() {
            let (plugin, tenant, reason) = (self.plugin.name(), &*self.tenant, fault.to_string());
            tracing::warn!(plugin, tenant, reason, "a plugin's process ends");
        }
        let _ = self.ending.send(Some(Arc::new(fault)));
        session.connection.end();
        serving.abort();
        self.processes.end(&self.group, self.child.into_child()).await;
    }

    /// Has what the plugin wrote before its end be read. Its children may keep the output open, so they end too.
    async fn read_to_end(&self, end: &mut JoinHandle<OutputEnd>) {
        self.processes.kill(&self.group);
        let _ = timeout(MAX_EXIT, end).await;
    }

    async fn output_fault(&mut self, end: OutputEnd) -> ProgramFault {
        match end {
            OutputEnd::TooLong(max) => ProgramFault::TooLong(max),
            OutputEnd::TooEarly => {
                ProgramFault::Refused("it sent a message before it answered `initialize`".into())
            }
            OutputEnd::Closed => self.exit_fault("it closed its standard output").await,
        }
    }

    /// The fault of a plugin that closed a pipe, if it isn't about to end.
    async fn exit_fault(&mut self, otherwise: &str) -> ProgramFault {
        match timeout(MAX_EXIT, self.child.wait()).await {
            Ok(Ok(exit)) => ProgramFault::ended(exit, &self.group),
            _ => ProgramFault::Refused(otherwise.into()),
        }
    }

    /// Tells the plugin to end, and waits until it has.
    async fn shut_down(&mut self, runner: &CancellationToken) {
        let connection = &self.session.connection;
        let end = async {
            let _ = connection.notify("shutdown", b"{}").await;
            let _ = connection.end_input().await;
            let _ = self.child.wait().await;
            true
        };
        let runner_stops = async {
            runner.cancelled().await;
            sleep(MAX_LAST_END).await;
        };
        let has_ended = tokio::select! {
            has_ended = end => has_ended,
            () = sleep(self.plugin.shutdown_timeout()) => false,
            () = runner_stops => false,
        };
        if !has_ended {
            self.processes.terminate(&self.group);
            let _ = timeout(MAX_TERMINATION, self.child.wait()).await;
        }
    }
}
