//! The plugin as a child process, if the command line says how to start it. Its output goes to standard error.
//! Dropping it kills it with all processes that it started.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    process::{Child, Command},
    time,
};

pub(super) struct CommandProcess {
    /// The program and its arguments.
    words: Vec<String>,
    child: Option<Child>,
}

impl CommandProcess {
    pub(super) fn new(words: Vec<String>) -> Self {
        CommandProcess { words, child: None }
    }

    /// Starts the program.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let (program, arguments) = self.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // Standard output is for the report alone.
        command.args(arguments).stdin(Stdio::null()).stdout(io::stderr()).kill_on_drop(true);
        // A group of its own: the program may be a launcher, and the plugin its child.
        command.process_group(0);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// How the process ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.is_some() && self.ended().is_none()
    }

    /// Sends SIGTERM. Kills the process if it is still there after `limit`, and returns whether that was necessary.
    pub(super) async fn stop(&mut self, limit: Duration) -> io::Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        if let Some(pid) = pid(child) {
            kill_process(pid, Signal::TERM)?;
        }
        let in_time = match time::timeout(limit, child.wait()).await {
            Ok(ended) => ended.map(|_| true)?,
            Err(_) => false,
        };
        self.kill();
        self.child = None;
        Ok(!in_time)
    }

    /// Kills the process and all that it started, unless it has ended.
    fn kill(&self) {
        if let Some(pid) = self.child.as_ref().and_then(pid) {
            // It fails only if they have ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for CommandProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The pid of a child that wasn't waited for yet. No other process can have it until then.
fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
}
