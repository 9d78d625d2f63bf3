//! Child processes of this binary: starts one in a role, talks to it, and always ends it.

use std::{
    io::{BufRead, BufReader, Write as _},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::BenchError;

/// A child process, which is killed when dropped.
pub(crate) struct KilledChild(pub(crate) process::Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        // Errors can't be reported here.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl KilledChild {
    /// Looks every `interval` whether the process is ready, and returns what `ready` then says.
    ///
    /// # Errors
    /// The process has ended, or isn't ready within `limit`.
    pub(crate) fn wait_until_ready<T>(
        &mut self,
        interval: Duration,
        limit: Duration,
        ready: impl Fn() -> Option<T>,
    ) -> Result<T, BenchError> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Err(format!("it ended before it was ready: {status}").into());
            }
            if let Some(ready) = ready() {
                return Ok(ready);
            }
            if Instant::now() > until {
                return Err("it isn't ready".into());
            }
            thread::sleep(interval);
        }
    }
}

/// A process of this binary in one of its roles.
pub(crate) struct RoleProcess {
    child: KilledChild,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The first line that it prints: the address that it listens on.
    pub(crate) address: String,
}

impl RoleProcess {
    /// Starts a role and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, BenchError> {
        Self::start_as(Command::new(std::env::current_exe()?), arguments)
    }

    /// The same for one that stands for other machines: it takes no core from what is measured.
    pub(crate) fn start_at_low_priority(arguments: &[&str]) -> Result<Self, BenchError> {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe()?);
        Self::start_as(command, arguments)
    }

    fn start_as(mut command: Command, arguments: &[&str]) -> Result<Self, BenchError> {
        command.arg("role").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().ok_or("standard input is not piped")?;
        let stdout = child.stdout.take().ok_or("standard output is not piped")?;
        let (child, stdout) = (KilledChild(child), BufReader::new(stdout));
        let mut process = RoleProcess { child, stdin, stdout, address: String::new() };
        process.address = process.line().map_err(|error| format!("{arguments:?}: {error}"))?;
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends an empty line and returns the line that it answers.
    pub(crate) fn ask(&mut self) -> Result<String, BenchError> {
        self.stdin.write_all(b"\n")?;
        self.line()
    }

    fn line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.is_empty() {
            return Err("the process ended early".into());
        }
        Ok(line.trim().to_owned())
    }
}

/// Runs a role to its end and returns its output.
pub(crate) fn output_of(arguments: &[&str]) -> Result<String, BenchError> {
    let mut command = Command::new(std::env::current_exe()?);
    let said = command.arg("role").args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !said.status.success() {
        return Err(format!("{arguments:?} failed").into());
    }
    Ok(String::from_utf8(said.stdout)?)
}
