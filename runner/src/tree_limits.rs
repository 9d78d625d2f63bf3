//! What a program and its children may use together, and what they use.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{cgroup, process_list::ProcessStat};

/// How many threads a process may have for each that `limits.processes` permits: Node has 11.
const THREADS: u64 = 16;
/// How many more threads a program may have: libraries for numbers start one for each core.
const MORE_THREADS: u64 = 128;

/// What a program and its children may use together.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct TreeLimits {
    /// CPU time of each process, in whole seconds. The kernel ends a process that used it.
    pub(crate) cpu: Duration,
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) processes: usize,
}

impl TreeLimits {
    /// Most tasks, which are processes with all their threads. The kernel counts only these.
    pub(crate) fn max_tasks(self) -> u64 {
        (self.processes as u64).saturating_mul(THREADS).saturating_add(MORE_THREADS)
    }

    /// Most bytes in a cgroup, where the memory of the kernel counts too.
    pub(crate) fn max_memory(self) -> u64 {
        self.memory.saturating_add(self.memory / 4)
    }

    /// The limit that the processes of a cgroup broke.
    pub(crate) fn excess_in(self, cgroup: &Path) -> Option<String> {
        if cgroup::refused_tasks(cgroup) > 0 {
            return Some(self.excess_tasks());
        }
        (cgroup::memory_kills(cgroup) > 0).then(|| self.excess_memory())
    }

    fn excess_processes(self) -> String {
        format!("it had more than {} processes (`limits.processes`)", self.processes)
    }

    fn excess_tasks(self) -> String {
        format!("{}, or {} threads", self.excess_processes(), self.max_tasks())
    }

    fn excess_memory(self) -> String {
        format!("it used more than {} bytes of memory (`limits.memory`)", self.memory)
    }
}

/// What processes use together.
#[derive(Debug, Default)]
pub(crate) struct TreeUsage {
    processes: usize,
    tasks: u64,
    memory: u64,
}

impl TreeUsage {
    pub(crate) fn add(&mut self, process: &ProcessStat) {
        // One that has ended is a task until its parent has waited for it.
        self.tasks += process.threads.max(1);
        if !process.is_zombie {
            self.processes += 1;
            self.memory += process.resident;
        }
    }

    /// The limit that is exceeded. The kernel permits no more than [`TreeLimits::max_tasks`], so they are too many.
    pub(crate) fn excess(&self, limits: TreeLimits) -> Option<String> {
        if self.processes > limits.processes {
            return Some(limits.excess_processes());
        }
        if self.tasks >= limits.max_tasks() {
            return Some(limits.excess_tasks());
        }
        (self.memory > limits.memory).then(|| limits.excess_memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TreeLimits = TreeLimits { cpu: Duration::MAX, memory: 1 << 30, processes: 2 };

    /// What `count` processes with so many threads use.
    fn usage(count: usize, threads: u64, is_zombie: bool) -> TreeUsage {
        let process = ProcessStat {
            pid: 7,
            parent: 1,
            group: 7,
            is_zombie,
            threads,
            cpu: Duration::ZERO,
            resident: 1 << 20,
        };
        let mut usage = TreeUsage::default();
        (0..count).for_each(|_| usage.add(&process));
        usage
    }

    #[test]
    fn processes_are_counted_and_threads_only_where_the_kernel_permits_no_more() {
        let processes = "it had more than 2 processes (`limits.processes`)";
        assert_eq!(usage(2, 16, false).excess(LIMITS), None);
        assert_eq!(usage(3, 1, false).excess(LIMITS).as_deref(), Some(processes));
        let threads = format!("{processes}, or 160 threads");
        assert_eq!(usage(1, 160, false).excess(LIMITS), Some(threads.clone()));
        // Nobody waits for them.
        assert_eq!(usage(159, 0, true).excess(LIMITS), None);
        assert_eq!(usage(160, 0, true).excess(LIMITS), Some(threads));
    }
}
