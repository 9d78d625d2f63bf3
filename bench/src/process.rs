//! Child processes to call: starts them, reads their CPU time and memory, and always ends them.

use std::{
    io::{BufRead, BufReader},
    process::{self, Command, Stdio},
    time::Duration,
};

use crate::BenchError;

/// Unit of `/proc/PID/stat`: USER_HZ, 100 on every architecture that Rust runs on.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// A process of this binary in one of its roles. It is killed when dropped.
pub(crate) struct RoleProcess {
    child: process::Child,
    /// The address that it listens on.
    pub(crate) address: String,
}

impl RoleProcess {
    /// Starts a role and waits until it listens.
    pub(crate) async fn start(arguments: &[&str]) -> Result<Self, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("role").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = RoleProcess { child: command.spawn()?, address: String::new() };
        let stdout = process.child.stdout.take().ok_or("standard output is not piped")?;
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        process.address = line.await??.trim().to_owned();
        if process.address.is_empty() {
            Err(format!("{arguments:?} ended early").into())
        } else {
            Ok(process)
        }
    }

    /// Its CPU time so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        cpu(self.child.id())
    }
}

impl RoleProcess {
    /// A size from `/proc/PID/status`, by its name with the colon, in bytes (proc_pid_status(5)).
    pub(crate) fn memory(&self, name: &str) -> Result<u64, BenchError> {
        memory(self.child.id(), name)
    }
}

fn cpu(pid: u32) -> Result<Duration, BenchError> {
    let file = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&file)?;
    // The name in parentheses may contain spaces; utime and stime are fields 14 and 15 (proc_pid_stat(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u32>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(CLOCK_TICK * (user + system)),
        _ => Err(format!("{file} is not as expected").into()),
    }
}

/// The CPU time of this process so far, user and system.
pub(crate) fn own_cpu() -> Result<Duration, BenchError> {
    cpu(process::id())
}

/// The CPU time of this thread so far, which doesn't depend on the machine's other load
/// (`/proc/PID/schedstat`, in nanoseconds).
pub(crate) fn thread_cpu() -> Result<Duration, BenchError> {
    let file = "/proc/thread-self/schedstat";
    let times = std::fs::read_to_string(file)?;
    let on_cpu = times.split_whitespace().next().ok_or_else(|| format!("{file} is not as expected"))?;
    Ok(Duration::from_nanos(on_cpu.parse()?))
}

fn memory(pid: u32, name: &str) -> Result<u64, BenchError> {
    let file = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&file)?;
    let kib = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    let kib: u64 = kib.ok_or_else(|| format!("{file} has no {name}"))?.parse()?;
    Ok(kib << 10)
}

/// The resident memory of this process, in bytes.
pub(crate) fn own_memory() -> Result<u64, BenchError> {
    memory(process::id(), "VmRSS:")
}

/// The peak of resident memory, in bytes.
pub(crate) fn own_peak() -> Result<u64, BenchError> {
    memory(process::id(), "VmHWM:")
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

impl Drop for RoleProcess {
    fn drop(&mut self) {
        // Errors can't be reported here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
