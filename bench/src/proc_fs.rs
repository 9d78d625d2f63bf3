//! CPU time and memory of processes as the operating system counts them in `/proc`.

use std::{collections::HashMap, ffi::OsString, fs, process, time::Duration};

use crate::BenchError;

/// Unit of `/proc/PID/stat`: USER_HZ, 100 on every architecture that Rust runs on.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// The CPU time of each thread of a process. `/proc/PID/task/TID/schedstat` counts nanoseconds, where
/// `/proc/PID/stat` counts steps of 10 ms. A thread that ends is no longer counted; the threads that serve
/// calls don't end.
pub(crate) struct ThreadTimes(HashMap<OsString, u64>);

impl ThreadTimes {
    /// The times so far of the process `pid`.
    pub(crate) fn of_process(pid: u32) -> Result<Self, BenchError> {
        let mut times = HashMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            // A thread may have ended since the folder was read.
            if let Ok(schedstat) = fs::read_to_string(task.path().join("schedstat")) {
                times.insert(task.file_name(), nanoseconds_on_cpu(&schedstat)?);
            }
        }
        Ok(ThreadTimes(times))
    }

    /// The CPU time, user and system, that all threads took since `before`.
    pub(crate) fn since(&self, before: &ThreadTimes) -> Duration {
        let took = |(thread, now): (&OsString, &u64)| {
            now.saturating_sub(before.0.get(thread).copied().unwrap_or_default())
        };
        Duration::from_nanos(self.0.iter().map(took).sum())
    }
}

/// The first field of a `schedstat` file: time on a CPU.
fn nanoseconds_on_cpu(schedstat: &str) -> Result<u64, BenchError> {
    let first = schedstat.split_whitespace().next().ok_or("a schedstat file is empty")?;
    Ok(first.parse()?)
}

/// The CPU time of this process so far, user and system.
pub(crate) fn own_cpu() -> Result<Duration, BenchError> {
    let file = "/proc/self/stat";
    let stat = fs::read_to_string(file)?;
    // The name in parentheses may contain spaces; utime and stime are fields 14 and 15 (proc_pid_stat(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u32>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(CLOCK_TICK * (user + system)),
        _ => Err(format!("{file} is not as expected").into()),
    }
}

/// The CPU time of this thread so far, which doesn't depend on the machine's other load.
pub(crate) fn thread_cpu() -> Result<Duration, BenchError> {
    Ok(Duration::from_nanos(nanoseconds_on_cpu(&fs::read_to_string("/proc/thread-self/schedstat")?)?))
}

/// A size from `/proc/PID/status`, by its name with the colon, in bytes (proc_pid_status(5)).
pub(crate) fn memory(pid: u32, name: &str) -> Result<u64, BenchError> {
    let file = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&file)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_a_thread_that_began_in_between_is_counted() {
        let times = |threads: &[(&str, u64)]| {
            ThreadTimes(threads.iter().map(|(thread, time)| ((*thread).into(), *time)).collect())
        };
        let (before, after) = (times(&[("1", 100), ("2", 50)]), times(&[("1", 130), ("3", 7)]));
        assert_eq!(after.since(&before), Duration::from_nanos(37));
    }

    #[test]
    fn this_process_takes_cpu_time() {
        let before = ThreadTimes::of_process(process::id()).unwrap();
        let mut sum = 0_u64;
        while ThreadTimes::of_process(process::id()).unwrap().since(&before).is_zero() {
            sum = std::hint::black_box(sum + 1);
        }
    }
}
