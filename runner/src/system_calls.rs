//! The system calls that a program may not make (seccomp). With some of them it could leave its process group, and so
//! outlive its call; with others it could act on what belongs to other tenants and Landlock doesn't restrict.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, sock_filter,
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

/// Not to change or watch files beyond their content: Landlock restricts only opening, making and moving them, and
/// cutting them only from Linux 6.2 on. A file that may only be read can be changed so too, by its owner.
const FILES: &[i64] = &[
    libc::SYS_truncate,
    // Its flags can't be seen here.
    libc::SYS_openat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
];
/// The same, where the system still has the older calls.
#[cfg(target_arch = "x86_64")]
const OLD_FILES: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_inotify_init,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FILES: &[i64] = &[];
// Newer than what libc knows on every architecture. The numbers are the same on all.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

/// No memory, semaphores and queues that all processes of a user share, or that `limits.memory` doesn't count; and no keys
/// of the user.
const SHARED: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_memfd_create,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Not to list the mounts of the machine, which Landlock hides in `/proc`.
const MOUNTS: &[i64] = &[SYS_STATMOUNT, SYS_LISTMOUNT];
// As new as those above.
const SYS_STATMOUNT: i64 = 457;
const SYS_LISTMOUNT: i64 = 458;

/// A condition on one argument, of which 32 bits count.
fn condition(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))
}

/// A rule about one argument.
fn argument(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(index, operator, value)?])
}

/// What may be done to the program's own process only: the call, and the argument that names the process.
const OF_ITSELF: &[(i64, u8)] = &[
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setaffinity, 0),
];
/// The first argument of `setpriority` and of `ioprio_set` that means all processes of the user.
const PRIO_USER: i32 = 2;
const IOPRIO_WHO_USER: i32 = 3;
/// The type of a socket, without its flags.
const SOCKET_TYPE: u64 = 0xf;

/// The conditions under which the sandbox denies calls.
fn conditions() -> Result<Vec<(i64, SeccompRule)>, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut denied = Vec::new();
    // No Unix sockets: the runner's own is one. Pairs remain, except of datagrams, which can be sent elsewhere.
    denied.push((libc::SYS_socket, argument(0, Eq, libc::AF_UNIX)?));
    // No list of the machine's sockets, which Landlock hides in `/proc` too.
    let sockets = vec![condition(0, Eq, libc::AF_NETLINK)?, condition(2, Eq, libc::NETLINK_SOCK_DIAG)?];
    denied.push((libc::SYS_socket, SeccompRule::new(sockets)?));
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
        denied.push((libc::SYS_socketpair, argument(1, MaskedEq(SOCKET_TYPE), kind)?));
    }
    // To open a file for reading must not empty it.
    let mask = MaskedEq(u64::from((libc::O_TRUNC | libc::O_ACCMODE).cast_unsigned()));
    denied.push((libc::SYS_openat, argument(2, mask.clone(), libc::O_TRUNC)?));
    #[cfg(target_arch = "x86_64")]
    denied.push((libc::SYS_open, argument(1, mask, libc::O_TRUNC)?));
    // Times of a path; those of an open file have none.
    let path = SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Qword, Ne, 0)?])?;
    denied.push((libc::SYS_utimensat, path));
    for &(call, process) in OF_ITSELF {
        denied.push((call, argument(process, Ne, 0)?));
    }
    denied.push((libc::SYS_setpriority, argument(0, Eq, PRIO_USER)?));
    denied.push((libc::SYS_ioprio_set, argument(0, Eq, IOPRIO_WHO_USER)?));
    Ok(denied)
}

fn filter(is_sandboxed: bool) -> Result<BpfProgram, FilterError> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = ALWAYS.iter().map(|&call| (call, Vec::new())).collect();
    // Limits of other processes, such as the runner.
    denied.insert(libc::SYS_prlimit64, vec![argument(0, SeccompCmpOp::Ne, 0)?]);
    if is_sandboxed {
        denied.extend([FILES, OLD_FILES, SHARED, MOUNTS].concat().into_iter().map(|call| (call, Vec::new())));
        for (call, rule) in conditions()? {
            denied.entry(call).or_default().push(rule);
        }
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(denied, SeccompAction::Allow, refusal, architecture)?;
    let mut program: BpfProgram = filter.try_into()?;
    if cfg!(target_arch = "x86_64") {
        program.splice(ARCHITECTURE_CHECK..ARCHITECTURE_CHECK, no_x32());
    }
    Ok(program)
}

/// How many instructions check the architecture, at the start of a filter.
const ARCHITECTURE_CHECK: usize = 3;
/// The bit of the numbers of x32, which is another way to make the same calls (`__X32_SYSCALL_BIT` of Linux).
const X32: u32 = 0x4000_0000;

/// Denies the calls of x32, as seccomp(2) recommends: they have the architecture of x86-64 and other numbers.
fn no_x32() -> [sock_filter; 3] {
    let instruction = |code: u32, jf, k| sock_filter { code: code as u16, jt: 0, jf, k };
    [
        // The number of the call is the first of `seccomp_data`.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
    ]
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
