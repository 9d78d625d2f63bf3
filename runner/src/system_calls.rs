//! The system calls that a program may not make (seccomp). With some of them it could leave its process group, and so
//! outlive its call; with others it could act on what belongs to other tenants and Landlock doesn't restrict.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Why system calls can't be restricted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(String);

impl From<BackendError> for FilterError {
    fn from(error: BackendError) -> Self {
        FilterError(error.to_string())
    }
}

impl From<seccompiler::Error> for FilterError {
    fn from(error: seccompiler::Error) -> Self {
        FilterError(error.to_string())
    }
}

/// Not to leave the process group, which is ended as a whole; and io_uring, whose operations no filter sees.
const ALWAYS: &[i64] = &[libc::SYS_setsid, libc::SYS_setpgid, libc::SYS_io_uring_setup];

/// Not to change or watch files by their path: Landlock restricts only opening, making and moving them. The calls that
/// take an open file remain.
const PATHS: &[i64] = &[
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
];
/// The same, where the system still has the older calls.
#[cfg(target_arch = "x86_64")]
const OLD_PATHS: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_inotify_init,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_PATHS: &[i64] = &[];
/// Newer than what libc knows on every architecture. The number is the same on all.
const SYS_FCHMODAT2: i64 = 452;

/// No memory that all processes of a user share, or that `limits.memory` doesn't count; and no keys of the user.
const SHARED: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_memfd_create,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// A condition on one argument, of which 32 bits count.
fn argument(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompRule, BackendError> {
    let value = u64::from(value.cast_unsigned());
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?])
}

fn filter(is_sandboxed: bool) -> Result<BpfProgram, FilterError> {
    use SeccompCmpOp::{Eq, Ne};
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = ALWAYS.iter().map(|&call| (call, Vec::new())).collect();
    // Limits of other processes, such as the runner.
    denied.insert(libc::SYS_prlimit64, vec![argument(0, Ne, 0)?]);
    if is_sandboxed {
        denied.extend([PATHS, OLD_PATHS, SHARED].concat().into_iter().map(|call| (call, Vec::new())));
        // No Unix sockets: the runner's own is one. Pairs remain.
        denied.insert(libc::SYS_socket, vec![argument(0, Eq, libc::AF_UNIX)?]);
        // Times of a path; those of an open file have none.
        let path = SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Qword, Ne, 0)?])?;
        denied.insert(libc::SYS_utimensat, vec![path]);
        // Priorities of others.
        for call in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
            denied.insert(call, vec![argument(1, Ne, 0)?]);
        }
        for call in [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr] {
            denied.insert(call, vec![argument(0, Ne, 0)?]);
        }
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    Ok(SeccompFilter::new(denied, SeccompAction::Allow, refusal, architecture)?.try_into()?)
}

/// Restricts this process and what it executes. It gains no privileges any more.
///
/// # Errors
/// If the kernel or the architecture doesn't know such filters.
pub(crate) fn restrict(is_sandboxed: bool) -> Result<(), FilterError> {
    Ok(apply_filter(&filter(is_sandboxed)?)?)
}

/// Checks that there is a filter for this architecture.
///
/// # Errors
/// If there is none.
pub(crate) fn check() -> Result<(), FilterError> {
    filter(true).map(drop)
}
