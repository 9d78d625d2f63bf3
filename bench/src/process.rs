//! Processes that are called: started, their CPU time, and their end by pid in every case.

use std::{
    io::{BufRead, BufReader},
    process::{self, Command, Stdio},
    time::Duration,
};

use crate::BenchError;

/// Unit of `/proc/PID/stat`: USER_HZ, 100 on every architecture that Rust runs on.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// A process of this binary in one of its roles. Dropped, it is killed and waited for.
pub(crate) struct RoleProcess {
    child: process::Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl RoleProcess {
    /// Starts a role; it listens when this returns.
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

    /// CPU time it used so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        cpu(self.child.id())
    }
}

impl RoleProcess {
    /// A size of `/proc/PID/status`, by its name with the colon, in bytes (proc_pid_status(5)).
    pub(crate) fn memory(&self, name: &str) -> Result<u64, BenchError> {
        memory(self.child.id(), name)
    }
}

fn cpu(pid: u32) -> Result<Duration, BenchError> {
    let file = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&file)?;
    // The name in parentheses may hold spaces; utime and stime are fields 14 and 15 (proc_pid_stat(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u32>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(CLOCK_TICK * (user + system)),
        _ => Err(format!("{file} is not as expected").into()),
    }
}

/// CPU time that this process used so far, user and system.
pub(crate) fn own_cpu() -> Result<Duration, BenchError> {
    cpu(process::id())
}

/// CPU time of this thread so far: what it takes whoever else the machine works for (`/proc/PID/schedstat`, in nanoseconds).
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

/// What is resident of this process, in bytes.
pub(crate) fn own_memory() -> Result<u64, BenchError> {
    memory(process::id(), "VmRSS:")
}

/// The most that ever was, in bytes.
pub(crate) fn own_peak() -> Result<u64, BenchError> {
    memory(process::id(), "VmHWM:")
}

/// What a process of this binary in one of its roles says until it ends.
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
        // Nobody is left to be told.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
