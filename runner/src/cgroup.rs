//! Cgroups (version 2) of programs, below the runner's own, where the runner may make them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

/// Where the cgroups of the machine, or of the container, are.
const ROOT: &str = "/sys/fs/cgroup";
/// The runner's cgroup below the one that it was started in.
const RUNNER: &str = "hookgate-runner";

/// Makes the runner's cgroup one that can have a limited cgroup for each program, and returns it.
///
/// # Errors
/// If the runner may not do that, or isn't alone in its cgroup.
pub(crate) fn prepare() -> io::Result<PathBuf> {
    let parent = current()?;
    let runner = parent.join(RUNNER);
    fs::create_dir_all(&runner)?;
    let controllers = parent.join("cgroup.subtree_control");
    // A cgroup whose children have limits can have no processes itself, so the runner goes first.
    let prepared = enter(&runner).and_then(|()| fs::write(&controllers, "+pids"));
    if let Err(error) = prepared {
        let _ = enter(&parent);
        let _ = fs::remove_dir(&runner);
        return Err(error);
    }
    // Not every runner is given this controller. The watch limits memory too.
    let _ = fs::write(&controllers, "+memory");
    Ok(parent)
}

/// The cgroup of this process.
fn current() -> io::Result<PathBuf> {
    let error = || io::Error::other("the runner's cgroup (version 2) isn't found");
    let cgroups = fs::read_to_string("/proc/self/cgroup")?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(error)?;
    let current = Path::new(ROOT).join(path);
    // In a container, the mount may show the cgroups of the machine, and the path be one of the container.
    let pids = fs::read_to_string(current.join("cgroup.procs"))?;
    let own = process::id().to_string();
    pids.lines().any(|pid| pid == own).then_some(current).ok_or_else(error)
}

/// The cgroup of the program whose process id is `leader`.
pub(crate) fn of_program(parent: &Path, leader: i32) -> PathBuf {
    parent.join(format!("program-{leader}"))
}

/// Moves this process to a cgroup of its own.
pub(crate) fn enter_own(parent: &Path, tasks: u64, memory: u64) -> io::Result<()> {
    let own = of_program(parent, process::id().cast_signed());
    fs::create_dir_all(&own)?;
    fs::write(own.join("pids.max"), tasks.to_string())?;
    if own.join("memory.max").exists() {
        fs::write(own.join("memory.max"), memory.to_string())?;
        fs::write(own.join("memory.oom.group"), "1")?;
        // Absent where nothing is swapped.
        let _ = fs::write(own.join("memory.swap.max"), "0");
    }
    enter(&own)
}

fn enter(cgroup: &Path) -> io::Result<()> {
    fs::write(cgroup.join("cgroup.procs"), "0")
}

/// How often the kernel has refused a process or thread.
pub(crate) fn refused_tasks(cgroup: &Path) -> u64 {
    fs::read_to_string(cgroup.join("pids.events")).map_or(0, |events| count(&events, "max"))
}

/// How many processes the kernel has ended because their memory was full.
pub(crate) fn memory_kills(cgroup: &Path) -> u64 {
    fs::read_to_string(cgroup.join("memory.events")).map_or(0, |events| count(&events, "oom_kill"))
}

/// The count of an event in a file such as `pids.events`.
fn count(events: &str, name: &str) -> u64 {
    let mut lines = events.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name).and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_counted_by_its_whole_name() {
        let events = "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 4\n";
        assert_eq!(["max", "oom", "oom_kill"].map(|name| count(events, name)), [3, 2, 1]);
        assert_eq!(count(events, "none"), 0);
    }
}
