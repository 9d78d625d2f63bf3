//! How a program's process ends, and which of its limits ended it.

use std::{io, os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration};

use rustix::process::Signal;
use tokio::{
    process::Child,
    signal::unix::{SignalKind, signal},
};

use crate::process_list::ProcessStat;

/// A program's process.
pub(crate) struct ProgramChild {
    child: Child,
    /// CPU time that it had used at its end.
    cpu: Option<Duration>,
}

/// The end of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramExit {
    status: ExitStatus,
    cpu: Option<Duration>,
}

impl ProgramChild {
    pub(crate) fn new(child: Child) -> Self {
        ProgramChild { child, cpu: None }
    }

    pub(crate) async fn wait(&mut self) -> io::Result<ProgramExit> {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            // Its CPU time is gone once its status was taken.
            self.cpu = cpu_at_end(pid).await?;
        }
        Ok(ProgramExit { status: self.child.wait().await?, cpu: self.cpu })
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn into_child(self) -> Child {
        self.child
    }
}

impl ProgramExit {
    /// Its exit code, if it ended by itself.
    pub(crate) fn code(self) -> Option<i32> {
        self.status.code()
    }

    /// `with the exit code 3`.
    pub(crate) fn how(self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("with the exit code {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "without a status".into(),
        }
    }

    /// The CPU time that it had used, if the kernel ended it for that. It can differ from `max`, on a busy machine by
    /// much, because the kernel charges a whole tick to the process that runs when the tick ends. A program that catches
    /// SIGXCPU is ended by SIGKILL, which others send too. Then the CPU time must be near `max`.
    pub(crate) fn used_cpu(self, max: Duration) -> Option<Duration> {
        let signal = self.status.signal()?;
        let is_limit = signal == Signal::XCPU.as_raw();
        let is_kill = signal == Signal::KILL.as_raw();
        self.cpu.filter(|cpu| is_limit || (is_kill && *cpu >= max / 4 * 3))
    }
}

/// Waits until a child has ended, and returns the CPU time that it had used. Leaves its status.
async fn cpu_at_end(pid: i32) -> io::Result<Option<Duration>> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        match ProcessStat::read(pid) {
            Some(stat) if !stat.is_zombie => ended.recv().await,
            stat => return Ok(stat.map(|stat| stat.cpu)),
        };
    }
}
