//! The processes of all programs: starts them, and ends each with everything that it started.

use std::{
    collections::HashMap,
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process_group, set_child_subreaper, waitpgid, waitpid},
};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use crate::{task_limit::TaskLimit, tree_limits::TreeLimits};

/// How long the next look waits whether a program has ended that was told to.
const END_INTERVAL: Duration = Duration::from_millis(5);
/// Most looks, which is 10 s: a process that waits for a disk can't be ended.
const MAX_LOOKS: u32 = 2000;

/// The process group of a program, which the program can't leave.
pub(crate) struct ProcessGroup {
    /// The process id of the program, and so the id of the group.
    leader: Pid,
    limits: TreeLimits,
    /// The limit that it broke.
    excess: OnceLock<String>,
    /// Its cgroup, if it has one of its own.
    cgroup: Option<PathBuf>,
}

impl ProcessGroup {
    /// The process id of the program.
    pub(crate) fn leader(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    pub(crate) fn limits(&self) -> TreeLimits {
        self.limits
    }

    /// The limit that it broke, which it is ended for.
    pub(crate) fn excess(&self) -> Option<&str> {
        if let Some(cgroup) = &self.cgroup
            && self.excess.get().is_none()
            && let Some(excess) = self.limits.excess_in(cgroup)
        {
            self.set_excess(excess);
        }
        self.excess.get().map(String::as_str)
    }

    pub(crate) fn set_excess(&self, excess: String) {
        // The first counts.
        let _ = self.excess.set(excess);
    }

    /// Ends all its processes. A fork at the same time doesn't get away. Returns whether there is one left.
    fn kill(&self) -> bool {
        // Ended processes that nobody has waited for count too.
        kill_process_group(self.leader, Signal::KILL) != Err(Errno::SRCH)
    }
}

/// The programs that have not ended.
#[derive(Default)]
pub(crate) struct Processes {
    groups: Mutex<ProcessGroups>,
    task_limit: TaskLimit,
}

#[derive(Default)]
struct ProcessGroups {
    /// By the process id of the program.
    running: HashMap<i32, Arc<ProcessGroup>>,
    /// Whether no program may be started any more.
    is_closed: bool,
}

impl ProcessGroups {
    /// Whether the id of the group is still its own.
    fn has(&self, group: &Arc<ProcessGroup>) -> bool {
        self.running.get(&group.leader()).is_some_and(|held| Arc::ptr_eq(held, group))
    }
}

impl Processes {
    pub(crate) fn new(task_limit: TaskLimit) -> Self {
        Processes { groups: Mutex::default(), task_limit }
    }

    /// What limits the tasks of each program.
    pub(crate) fn task_limit(&self) -> &TaskLimit {
        &self.task_limit
    }

    /// Makes orphans children of this process, so that none gets away.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn adopt_orphans() -> io::Result<()> {
        Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
    }

    fn groups(&self) -> MutexGuard<'_, ProcessGroups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The programs that have not ended, by their process ids.
    pub(crate) fn running(&self) -> HashMap<i32, Arc<ProcessGroup>> {
        self.groups().running.clone()
    }

    /// Starts a process that leads a process group of its own.
    ///
    /// # Errors
    /// If it can't be started.
    pub(crate) fn spawn(
        &self,
        command: &mut Command,
        limits: TreeLimits,
    ) -> io::Result<(Child, Arc<ProcessGroup>)> {
        command.process_group(0).kill_on_drop(true);
        // Held, so that nobody takes the new child for an orphan.
        let mut groups = self.groups();
        if groups.is_closed {
            return Err(io::Error::other("the runner stops"));
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let leader = pid.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("it has no process id"))?;
        let cgroup = self.task_limit.cgroup(leader);
        let group = Arc::new(ProcessGroup { leader, limits, excess: OnceLock::new(), cgroup });
        groups.running.insert(group.leader(), Arc::clone(&group));
        Ok((child, group))
    }

    /// Ends the processes of a group. Returns whether there is one left. Does nothing if its id is another one's by now.
    pub(crate) fn kill(&self, group: &Arc<ProcessGroup>) -> bool {
        self.groups().has(group) && group.kill()
    }

    /// Asks the processes of a group to end, which they may ignore.
    pub(crate) fn terminate(&self, group: &Arc<ProcessGroup>) {
        if self.groups().has(group) {
            let _ = kill_process_group(group.leader, Signal::TERM);
        }
    }

    /// Ends a program and everything that it started.
    pub(crate) async fn end(&self, group: &Arc<ProcessGroup>, mut child: Child) {
        self.kill(group);
        let _ = child.wait().await;
        for _ in 0..MAX_LOOKS {
            if !self.kill(group) {
                break;
            }
            // This process is the parent of what the program left.
            while let Ok(Some(_)) = waitpgid(group.leader, WaitOptions::NOHANG) {}
            sleep(END_INTERVAL).await;
        }
        let mut groups = self.groups();
        if groups.has(group) {
            groups.running.remove(&group.leader());
            let _ = group.cgroup.as_ref().map(fs::remove_dir);
        }
    }

    /// Waits for a process that has ended after its parent, so that nothing is left of it. A program's own process is left
    /// to those who wait for it.
    pub(crate) fn reap_orphan(&self, pid: i32) {
        if !self.groups().running.contains_key(&pid) {
            let _ = Pid::from_raw(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
        }
    }

    /// Waits until all programs have ended.
    pub(crate) async fn all_ended(&self) {
        while !self.running().is_empty() {
            sleep(END_INTERVAL).await;
        }
    }

    /// Ends all programs. None is started again.
    pub(crate) fn close(&self) {
        self.groups().is_closed = true;
        for group in self.running().values() {
            self.kill(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::{
        io::{AsyncBufReadExt as _, BufReader},
        time::timeout,
    };

    use super::*;
    use crate::process_list::ProcessStat;

    const LIMITS: TreeLimits = TreeLimits { cpu: Duration::MAX, memory: 1 << 30, processes: 16 };

    /// A shell with two children in the background, one of which ignores SIGTERM.
    async fn family(processes: &Processes) -> (Child, Arc<ProcessGroup>) {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & (trap '' TERM; sleep 1000) & echo; wait"]);
        let (mut child, group) =
            processes.spawn(command.stdout(Stdio::piped()), LIMITS).expect("a shell can be started");
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut String::new()).await.expect("it writes a line");
        (child, group)
    }

    fn alive(group: &ProcessGroup) -> usize {
        ProcessStat::all().filter(|process| process.group == group.leader() && !process.is_zombie).count()
    }

    #[tokio::test]
    async fn a_program_ends_with_its_children_and_none_is_started_after_the_close() {
        Processes::adopt_orphans().expect("the kernel permits it");
        let processes = Processes::default();
        let (child, group) = family(&processes).await;
        assert!(alive(&group) >= 3);
        timeout(Duration::from_secs(10), processes.end(&group, child)).await.expect("it ends");
        assert_eq!(alive(&group), 0);

        let (child, group) = family(&processes).await;
        processes.close();
        timeout(Duration::from_secs(10), processes.end(&group, child)).await.expect("it ends");
        assert_eq!((alive(&group), processes.running().len()), (0, 0));
        assert!(processes.spawn(&mut Command::new("true"), LIMITS).is_err());
    }

    #[tokio::test]
    async fn a_group_whose_id_is_another_ones_is_left_alone() {
        let processes = Processes::default();
        let (child, group) = family(&processes).await;
        let before =
            ProcessGroup { leader: group.leader, limits: LIMITS, excess: OnceLock::new(), cgroup: None };
        let before = Arc::new(before);
        assert!(!processes.kill(&before));
        assert!(alive(&group) >= 3);
        processes.end(&group, child).await;
    }
}
