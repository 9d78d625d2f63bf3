//! The processes of all programs: starts them, watches their limits, and ends each with everything that it started.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitpid,
};
use tokio::{
    process::{Child, Command},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::process_tree::ProcessTree;

/// How often limits are checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How long the end of a program may take until the next attempt.
const KILL_INTERVAL: Duration = Duration::from_millis(5);
/// Most attempts to end a program.
const KILL_ATTEMPTS: u32 = 200;

/// What a program and its children may use together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeLimits {
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) processes: usize,
}

/// A main process that is watched.
pub(crate) struct WatchedProcess {
    limits: TreeLimits,
    /// The limit that it broke.
    excess: OnceLock<String>,
}

impl WatchedProcess {
    /// What it was ended for.
    pub(crate) fn excess(&self) -> Option<&str> {
        self.excess.get().map(String::as_str)
    }
}

/// The main processes by their id.
#[derive(Default)]
pub(crate) struct Processes(Mutex<HashMap<i32, Arc<WatchedProcess>>>);

impl Processes {
    /// Makes orphans children of this process, so that none gets away.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn adopt_orphans() -> io::Result<()> {
        Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<i32, Arc<WatchedProcess>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process that leads a process group of its own.
    ///
    /// # Errors
    /// If it can't be started.
    pub(crate) fn spawn(
        &self,
        command: &mut Command,
        limits: TreeLimits,
    ) -> io::Result<(Child, i32, Arc<WatchedProcess>)> {
        let watched = Arc::new(WatchedProcess { limits, excess: OnceLock::new() });
        command.process_group(0).kill_on_drop(true);
        // Held, so that the watcher doesn't take the new child for an orphan.
        let mut running = self.running();
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
        running.insert(pid, Arc::clone(&watched));
        Ok((child, pid, watched))
    }

    /// Ends a program and everything that it started. If `child` has been waited for, the watcher ends what is left.
    pub(crate) async fn end(&self, root: i32, mut child: Child) {
        for _ in 0..if child.id().is_some() { KILL_ATTEMPTS } else { 0 } {
            let alive = ProcessTree::read().below(root);
            kill_group(root);
            alive.iter().for_each(|process| kill(process.pid));
            if alive.is_empty() {
                break;
            }
            sleep(KILL_INTERVAL).await;
        }
        let _ = child.wait().await;
        self.running().remove(&root);
    }

    /// Ends programs that use too much, and processes that left their program. Never returns.
    pub(crate) async fn watch(&self) {
        let mut ticks = interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let running = self.running();
            let tree = ProcessTree::read();
            for (&root, watched) in running.iter() {
                let alive = tree.below(root);
                let memory: u64 = alive.iter().map(|process| process.resident).sum();
                let limits = watched.limits;
                let excess = if alive.len() > limits.processes {
                    format!("it had more than {} processes", limits.processes)
                } else if memory > limits.memory {
                    format!("it used more than {} bytes of memory", limits.memory)
                } else {
                    continue;
                };
                let _ = watched.excess.set(excess);
                kill_group(root);
                alive.iter().for_each(|process| kill(process.pid));
            }
            end_orphans(&tree, &running);
        }
    }

    /// Waits until all programs have ended, and ends what they left.
    pub(crate) async fn all_ended(&self) {
        loop {
            let is_last = self.running().is_empty();
            if end_orphans(&ProcessTree::read(), &self.running()) == 0 && is_last {
                return;
            }
            sleep(KILL_INTERVAL).await;
        }
    }
}

/// Ends the children of this process that are no programs: a program's process whose parent has ended. Returns how many.
fn end_orphans(tree: &ProcessTree, running: &HashMap<i32, Arc<WatchedProcess>>) -> usize {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let orphans = tree.children(own).filter(|child| !running.contains_key(&child.pid));
    let ended = orphans.map(|orphan| {
        kill_group(orphan.pid);
        kill(orphan.pid);
        let _ = Pid::from_raw(orphan.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    });
    ended.count()
}

/// Ends a process group if there is one. A fork at the same time doesn't get away.
pub(crate) fn kill_group(leader: i32) {
    let _ = Pid::from_raw(leader).map(|pid| kill_process_group(pid, Signal::KILL));
}

fn kill(pid: i32) {
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
}
