//! How the kernel limits the tasks of a program: its processes with all their threads.
//!
//! The kernel's limit is higher than that of the watch (`watch.rs`), which counts exactly but late. It only keeps a
//! fork bomb from growing until the watch ends it.

use std::{fs, io, path::PathBuf};

use rustix::{
    process::{Pid, Resource, Rlimit, getegid, geteuid, setrlimit},
    thread::UnshareFlags,
};
use serde::{Deserialize, Serialize};

use crate::{cgroup, launch, tree_limits::TreeLimits};

/// What limits tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TaskLimit {
    /// A cgroup for each program, below this one. It limits memory too, if the runner may do that.
    Cgroup(PathBuf),
    /// A user namespace for each program, with RLIMIT_NPROC. Without the namespace, that limit counts the processes of the
    /// user, also those of other programs.
    UserNamespace,
    /// Not the kernel.
    #[default]
    WatchOnly,
}

impl TaskLimit {
    /// The first that works on this machine. Says it in the log.
    pub(crate) fn from_machine() -> Self {
        let no_cgroup = match cgroup::prepare() {
            Ok(parent) => {
                tracing::info!(by = "cgroup", parent = %parent.display(), "the kernel limits processes of programs");
                return TaskLimit::Cgroup(parent);
            }
            Err(error) => error,
        };
        match launch::probe(TaskLimit::UserNamespace) {
            Ok(()) => {
                tracing::info!(by = "user namespace", %no_cgroup, "the kernel limits processes of programs");
                TaskLimit::UserNamespace
            }
            Err(no_namespace) => {
                tracing::info!(
                    by = "watch",
                    %no_cgroup,
                    %no_namespace,
                    "only the runner's watch limits processes of programs: delegate a cgroup to the runner, or permit user \
                     namespaces and run it as a user other than root"
                );
                TaskLimit::WatchOnly
            }
        }
    }

    /// The cgroup of the program whose process id is `leader`, if each has its own.
    pub(crate) fn cgroup(&self, leader: Pid) -> Option<PathBuf> {
        match self {
            TaskLimit::Cgroup(parent) => Some(cgroup::of_program(parent, leader.as_raw_nonzero().get())),
            TaskLimit::UserNamespace | TaskLimit::WatchOnly => None,
        }
    }

    /// Limits this process and all that it starts. It must have only one thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn apply(&self, limits: TreeLimits) -> io::Result<()> {
        let tasks = limits.max_tasks();
        match self {
            TaskLimit::Cgroup(parent) => cgroup::enter_own(parent, tasks, limits.max_memory()),
            TaskLimit::UserNamespace => {
                enter_namespace()?;
                let limit = Rlimit { current: Some(tasks), maximum: Some(tasks) };
                Ok(setrlimit(Resource::Nproc, limit)?)
            }
            TaskLimit::WatchOnly => Ok(()),
        }
    }
}

/// Moves this process to a user namespace where it keeps its user and group, so that it has access to the same files.
fn enter_namespace() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    #[expect(deprecated, reason = "it is unsafe only for `UnshareFlags::FILES`")]
    rustix::thread::unshare(UnshareFlags::NEWUSER)?;
    // Otherwise the kernel doesn't let an ordinary user map its group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}
