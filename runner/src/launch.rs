//! What happens in a program's process before the program: limits, access rights, and the end with the runner.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::{
    process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit},
    thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities},
};
use serde::{Deserialize, Serialize};

use crate::{
    kaged::{StorageSpec, serve_storage},
    system_calls::{self, FilterError},
    task_limit::TaskLimit,
    tree_limits::TreeLimits,
};

/// The first argument of a process that is to become a program. The second one is for [`launch`].
pub const LAUNCH: &str = "launch-program";

/// The version of Landlock whose rights are used. On an older kernel, those that it knows.
const LANDLOCK: ABI = ABI::V6;
/// What every program may read and execute.
pub(crate) const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];
/// What every program may read of `/etc`: what libraries and languages look up, and no one's keys.
const ETC: [&str; 34] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/profile",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];
/// What every program may read of `/proc`: numbers that languages ask for, and of its own process what shows no mounts,
/// sockets and cgroups of the machine.
const PROC: [&str; 29] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/self/auxv",
    "/proc/self/cmdline",
    "/proc/self/comm",
    "/proc/self/environ",
    "/proc/self/fd",
    "/proc/self/io",
    "/proc/self/limits",
    "/proc/self/maps",
    "/proc/self/oom_score_adj",
    "/proc/self/smaps",
    "/proc/self/smaps_rollup",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/fs/pipe-max-size",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/random/uuid",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/vm/overcommit_memory",
];
/// The devices that every program may use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Enough for one thread more.
const PROBE_MEMORY: u64 = 256 << 20;
/// Most open files of a process.
const MAX_FILES: u64 = 256;

/// A process to start. Its environment and its folder are those of the process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchSpec {
    pub(crate) target: LaunchTarget,
    pub(crate) limits: TreeLimits,
    pub(crate) task_limit: TaskLimit,
    /// Bytes of each file that it writes. `None` for any size.
    pub(crate) file_size: Option<u64>,
    /// `None` lets the program use every file that the runner may use.
    pub(crate) sandbox: Option<Sandbox>,
    /// A file that is made for the program if it is missing, with an empty JSON object.
    pub(crate) state_file: Option<PathBuf>,
}

/// What the process becomes once it is restricted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchTarget {
    /// A program with its arguments.
    Program(Vec<String>),
    /// The storage of a plugin. It executes nothing, so it needs no access to this executable, which an upgrade may have
    /// replaced.
    Storage(StorageSpec),
    /// Nothing: whether the kernel limits tasks is tried.
    Probe,
}

/// The process's own files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) home: PathBuf,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The argument is not one that the runner passes.
    #[error("`launch-program` is how `hookgate runner stdio` starts programs: {0}")]
    Spec(serde_json::Error),
    /// A limit can't be set.
    #[error("the limits can't be set: {0}")]
    Limits(io::Error),
    /// The access rights can't be restricted.
    #[error("the access rights can't be restricted: {0}")]
    Sandbox(#[from] RulesetError),
    /// The system calls can't be restricted.
    #[error("the system calls can't be restricted: {0}")]
    SystemCalls(#[from] FilterError),
    /// The state file can't be made.
    #[error("the state file {} can't be made: {source}", path.display())]
    StateFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The program can't be executed.
    #[error("`{program}` can't be executed: {source}")]
    Execute {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The storage can't be served.
    #[error("the storage can't be served: {0}")]
    Storage(io::Error),
    /// A process with a limit of one task could start another one.
    #[error("the kernel doesn't limit the processes of this user")]
    Unlimited,
}

/// Turns this process into what `spec` describes. Returns without an error only if that is a storage, at its end.
///
/// # Errors
/// If that fails.
pub fn launch(spec: &str) -> Result<(), LaunchError> {
    let spec: LaunchSpec = serde_json::from_str(spec).map_err(LaunchError::Spec)?;
    restrict(&spec)?;
    match &spec.target {
        LaunchTarget::Program(command) => Err(execute(command)),
        LaunchTarget::Storage(storage) => serve_storage(storage).map_err(LaunchError::Storage),
        LaunchTarget::Probe => try_task(),
    }
}

/// Succeeds if this process can't have a second task when the limit is one.
fn try_task() -> Result<(), LaunchError> {
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    setrlimit(Resource::Nproc, one).map_err(|error| LaunchError::Limits(error.into()))?;
    match thread::Builder::new().spawn(|| ()) {
        Ok(_) => Err(LaunchError::Unlimited),
        Err(_) => Ok(()),
    }
}

/// Tries whether the kernel keeps a process of this user from having more than one task.
///
/// # Errors
/// If it doesn't, with the reason.
pub(crate) fn probe(task_limit: TaskLimit) -> io::Result<()> {
    let limits = TreeLimits { cpu: Duration::from_secs(1), memory: PROBE_MEMORY, processes: 1 };
    let (target, sandbox) = (LaunchTarget::Probe, None);
    let spec = LaunchSpec { target, limits, task_limit, file_size: None, sandbox, state_file: None };
    let process = command(&spec)?.as_std_mut().env_clear().stdin(Stdio::null()).output()?;
    if process.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(process.stderr.trim_ascii())))
}

fn restrict(spec: &LaunchSpec) -> Result<(), LaunchError> {
    // What the runner itself inherited, and the program is not to.
    close_fds::set_fds_cloexec(3, &[]);
    // First: a cgroup is made with the runner's rights, and a user namespace must not take over the limits that follow.
    spec.task_limit.apply(spec.limits).map_err(LaunchError::Limits)?;
    limit(spec).map_err(|error| LaunchError::Limits(error.into()))?;
    if let Some(sandbox) = &spec.sandbox {
        restrict_files(sandbox)?;
    }
    // Also forbids new privileges, so that no program gains any by executing another.
    system_calls::restrict(spec.sandbox.is_some())?;
    // With the program's rights only: what is in its folder may be a link that it made.
    match &spec.state_file {
        Some(path) => {
            make_state_file(path).map_err(|source| LaunchError::StateFile { path: path.clone(), source })
        }
        None => Ok(()),
    }
}

fn make_state_file(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match File::create_new(path).and_then(|mut file| file.write_all(b"{}")) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn limit(spec: &LaunchSpec) -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The first second too many ends it by SIGXCPU, which nobody else sends. SIGKILL is for one that catches it.
    let cpu = spec.limits.cpu.as_secs();
    let cpu = Rlimit { current: Some(cpu), maximum: Some(cpu.saturating_add(1)) };
    setrlimit(Resource::Cpu, cpu)?;
    for (resource, most) in [
        (Resource::Data, Some(spec.limits.memory)),
        (Resource::Fsize, spec.file_size),
        (Resource::Nofile, Some(MAX_FILES)),
        (Resource::Core, Some(0)),
    ] {
        let Some(most) = most else { continue };
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // Those of root.
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

fn restrict_files(Sandbox { readable, home }: &Sandbox) -> Result<(), RulesetError> {
    let read = AccessFs::from_read(LANDLOCK);
    let list: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let all = AccessFs::from_all(LANDLOCK) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let rules = ruleset()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(ETC, list))?
        .add_rules(path_beneath_rules(PROC, list))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules([home], all))?;
    rules.restrict_self().map(drop)
}

/// No file may be used, and no process outside be signalled.
fn ruleset() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()
}

/// Whether this kernel can keep programs from signalling others (Landlock's sixth version, Linux 6.12).
pub(crate) fn restricts_signals() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create).is_ok()
}

/// Checks that this kernel can restrict access rights.
///
/// # Errors
/// If it can't.
pub(crate) fn check_sandbox() -> Result<(), RulesetError> {
    ruleset().map(drop)
}

fn execute(command: &[String]) -> LaunchError {
    let (program, arguments) =
        command.split_first().map_or(("", &[][..]), |(program, arguments)| (program.as_str(), arguments));
    let source = Command::new(program).args(arguments).exec();
    LaunchError::Execute { program: program.to_owned(), source }
}

/// The command that starts a process: this executable, whose `main` calls [`launch`] for [`LAUNCH`].
///
/// # Errors
/// If `spec` is no JSON.
pub(crate) fn command(spec: &LaunchSpec) -> io::Result<tokio::process::Command> {
    let spec = serde_json::to_string(spec).map_err(io::Error::other)?;
    // Not its path: an upgrade may have replaced the file.
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command.args([LAUNCH, &spec]);
    Ok(command)
}
