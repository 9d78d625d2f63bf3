//! The processes of the machine, as `/proc` shows them.

use std::{fs, time::Duration};

/// One process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessStat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// The id of its process group.
    pub(crate) group: i32,
    /// Whether it has ended, and only its exit status is left.
    pub(crate) is_zombie: bool,
    /// None, once it has ended.
    pub(crate) threads: u64,
    /// CPU time of its threads.
    pub(crate) cpu: Duration,
    /// Memory in use, in bytes.
    pub(crate) resident: u64,
}

impl ProcessStat {
    /// All processes, one after the other.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| ProcessStat::read(entry.file_name().to_str()?.parse().ok()?))
    }

    /// `None` if there is no such process.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// Reads the line of `/proc/PID/stat` (proc_pid_stat(5)).
fn parse(pid: i32, line: &str) -> Option<ProcessStat> {
    // The name in parentheses may itself contain spaces and parentheses.
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    // The first field after the name is the third of the line.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |number| field(number)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)?;
    Some(ProcessStat {
        pid,
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        is_zombie: matches!(field(3)?, "Z" | "X"),
        threads: number(20)?,
        cpu: Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)),
        resident: number(24)? * rustix::param::page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_shifts_nothing() {
        let line =
            "7 (a ) R (b) S 3 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 4096 2 18446744073709551615";
        let stat = parse(7, line).expect("it is a line of stat");
        assert_eq!((stat.parent, stat.group, stat.threads), (3, 7, 1));
        assert_eq!((stat.is_zombie, stat.cpu), (false, Duration::from_secs(3)));
        assert_eq!(stat.resident, 2 * rustix::param::page_size() as u64);
    }

    #[test]
    fn a_process_is_in_its_group_and_a_child_of_its_parent() {
        let own = ProcessStat::read(std::process::id().cast_signed()).expect("it runs");
        let listed = ProcessStat::all().find(|process| process.pid == own.pid).expect("it runs");
        assert_eq!((listed.parent, listed.group), (own.parent, own.group));
        assert!(listed.threads > 0 && !listed.is_zombie);
    }
}
