//! Watches the limits of programs, and ends those that use too much.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{getpid, setpriority_process},
    system::sysinfo,
};

use crate::{
    process_list::ProcessStat,
    processes::{ProcessGroup, Processes},
    task_limit::TaskLimit,
    tree_limits::TreeUsage,
};

/// How often all processes are counted.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);
/// How often they are counted at most while the machine's tasks become more, if the kernel doesn't limit those of programs.
const GROWTH_INTERVAL: Duration = Duration::from_millis(10);
/// How many more tasks are growth.
const MIN_GROWTH: u16 = 16;

/// The thread that watches.
struct Watch {
    counted: Instant,
    /// How many tasks the machine had then.
    tasks: u16,
}

/// Watches `processes` in a thread of its own, as long as anybody has them.
///
/// # Errors
/// If the thread can't be started.
pub(crate) fn start(processes: &Arc<Processes>) -> io::Result<()> {
    let interval = match processes.task_limit() {
        TaskLimit::WatchOnly => GROWTH_INTERVAL,
        TaskLimit::Cgroup(_) | TaskLimit::UserNamespace => COUNT_INTERVAL,
    };
    let processes = Arc::downgrade(processes);
    let watch = move || {
        // A fork bomb keeps every core busy. Only a privileged runner may do this.
        let _ = setpriority_process(None, -20);
        let mut watch = Watch { counted: Instant::now(), tasks: 0 };
        while let Some(processes) = processes.upgrade() {
            watch.look(&processes);
            drop(processes);
            thread::sleep(interval);
        }
    };
    thread::Builder::new().name("watch".into()).spawn(watch).map(drop)
}

impl Watch {
    /// Counts the processes of all programs if it is time for that.
    fn look(&mut self, processes: &Processes) {
        let groups = processes.running();
        if groups.is_empty() {
            return;
        }
        let tasks = sysinfo().procs;
        // The number may wrap, or become less.
        let is_growing = (MIN_GROWTH..u16::MAX / 2).contains(&tasks.wrapping_sub(self.tasks));
        if is_growing || self.counted.elapsed() >= COUNT_INTERVAL {
            (self.tasks, self.counted) = (tasks, Instant::now());
            count(processes, groups);
        }
    }
}

/// Ends those of `groups` that use too much.
fn count(processes: &Processes, mut groups: HashMap<i32, Arc<ProcessGroup>>) {
    let own = getpid().as_raw_nonzero().get();
    let mut usage = HashMap::<i32, TreeUsage>::new();
    for process in ProcessStat::all() {
        if process.parent == own && process.is_zombie {
            processes.reap_orphan(process.pid);
        }
        let Some(group) = groups.get(&process.group) else { continue };
        let usage = usage.entry(process.group).or_default();
        usage.add(&process);
        // At once: the rest of a fork bomb takes long to count, and it grows meanwhile.
        if let Some(excess) = usage.excess(group.limits()) {
            group.set_excess(excess);
            processes.kill(group);
            groups.remove(&process.group);
        }
    }
    // Those to which the kernel refused something.
    for group in groups.values().filter(|group| group.excess().is_some()) {
        processes.kill(group);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        process::Command,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::tree_limits::TreeLimits;

    #[tokio::test]
    async fn a_program_with_too_many_processes_is_ended_also_without_the_kernel() {
        let processes = Arc::new(Processes::new(TaskLimit::WatchOnly));
        start(&processes).expect("a thread can be started");
        let limits = TreeLimits { cpu: Duration::MAX, memory: 1 << 30, processes: 8 };
        // At most 1023 others.
        let forks = "import os, time; [os.fork() for _ in range(10)]; time.sleep(1000)";
        let mut command = Command::new("python3");
        let (child, group) = processes.spawn(command.args(["-c", forks]), limits).expect("it can be started");
        let excess = async {
            while group.excess().is_none() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), excess).await.expect("it is found");
        assert_eq!(group.excess(), Some("it had more than 8 processes (`limits.processes`)"));
        processes.end(&group, child).await;
        assert!(ProcessStat::all().all(|process| process.group != group.leader()));
    }
}
