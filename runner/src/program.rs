//! One process of a program: takes calls as lines, and ends with everything that it started.

use std::{
    io,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::IgnoredAny;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout, Command},
    runtime::Handle,
    task::JoinHandle,
    time::timeout,
};

use crate::{
    call_log::CallProgress,
    dialect::ReplyLine,
    exit::{ProgramChild, ProgramExit},
    output::{OutputLog, StderrTail},
    plugin_entry::ProcessMode,
    pool::ProgramPlace,
    process_list::ProcessStat,
    processes::{ProcessGroup, Processes},
    tree_limits::TreeLimits,
};

/// Most bytes that a program may write between two calls.
const MAX_EARLY_BYTES: usize = 64 << 10;
/// How long a program may take to end after its standard input has ended.
const MAX_END: Duration = Duration::from_secs(1);

/// Why a program gave no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramFault {
    /// It ended, or closed its standard output.
    #[error("the program ended {how} before it replied{limit}")]
    Ended {
        how: String,
        /// The limit that probably ended it, as the end of the sentence. Empty if none did.
        limit: String,
        /// Its exit code, if it ended by itself.
        code: Option<i32>,
    },
    #[error("the program's reply is longer than {0} bytes (`limits.output`)")]
    TooLong(u64),
    #[error("the program {} within {limit:?} (`limits.time`){}", progress.when_late(), progress.remedy())]
    TimedOut { limit: Duration, progress: ReplyProgress },
    #[error("the program was ended: {0}")]
    Excess(String),
    /// It doesn't do what its dialect demands, or isn't needed.
    #[error("the program was ended: {0}")]
    Refused(String),
}

impl ProgramFault {
    /// The fault of a program that ended.
    pub(crate) fn ended(exit: ProgramExit, group: &ProcessGroup) -> Self {
        let max = group.limits().cpu;
        let used = exit.used_cpu(max);
        let limit =
            used.map(|used| format!(": it had used {used:?} of CPU time, and `limits.cpu` is {max:?}"));
        ProgramFault::Ended { how: exit.how(), limit: limit.unwrap_or_default(), code: exit.code() }
    }

    /// Whether the program ended by itself with the status 0.
    pub(crate) fn is_clean_end(&self) -> bool {
        matches!(self, ProgramFault::Ended { code: Some(0), .. })
    }

    /// The same fault; if the time is over, of a call that could take `limit` with all its attempts.
    pub(crate) fn with_limit(self, limit: Duration) -> Self {
        match self {
            ProgramFault::TimedOut { progress, .. } => ProgramFault::TimedOut { limit, progress },
            other => other,
        }
    }

    /// Whether the program ended, however.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, ProgramFault::Ended { .. })
    }

    /// Whether the program ended by itself with another status.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, ProgramFault::Ended { code: Some(code), .. } if *code != 0)
    }
}

/// How far a reply has come that isn't complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyProgress {
    Nothing,
    Part,
    /// Only the end of the line is missing, or with a process for each call, the end of the program.
    Unended(ProcessMode),
}

impl ReplyProgress {
    /// The progress of a program that wrote `output`.
    pub(crate) fn new(output: &[u8], process: ProcessMode) -> Self {
        if output.is_empty() {
            return ReplyProgress::Nothing;
        }
        match serde_json::from_slice::<IgnoredAny>(output) {
            Ok(_) => ReplyProgress::Unended(process),
            Err(_) => ReplyProgress::Part,
        }
    }

    /// What the program had done when the gateway gave the call up.
    pub(crate) fn when_abandoned(self) -> &'static str {
        match self {
            ReplyProgress::Nothing => "the program had not replied: does it write each reply at once?",
            ReplyProgress::Part => "the program had written only a part of its reply",
            ReplyProgress::Unended(ProcessMode::Persistent) => {
                "the program had replied, but not ended the line"
            }
            ReplyProgress::Unended(ProcessMode::PerCall) => {
                "the program had replied, but not ended: with `process: per_call` it must end after its reply"
            }
        }
    }

    fn when_late(self) -> &'static str {
        match self {
            ReplyProgress::Nothing => "did not reply",
            ReplyProgress::Part => "wrote only a part of its reply",
            ReplyProgress::Unended(ProcessMode::Persistent) => "replied, but did not end the line",
            ReplyProgress::Unended(ProcessMode::PerCall) => "replied, but did not end",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            ReplyProgress::Unended(ProcessMode::PerCall) => {
                ": with `process: per_call` it must end after its reply"
            }
            _ => "",
        }
    }
}

/// A running program. Dropping it ends it, with everything that it started.
pub(crate) struct Program {
    /// `None` only while it is dropped.
    process: Option<RunningProcess>,
    /// When its last call began.
    used: Instant,
    stderr: StderrTail,
}

struct RunningProcess {
    child: ProgramChild,
    /// `None` after a call that was answered before it was read: no other can follow it.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// What it wrote since its last reply, and what can be no reply: noise of the next call.
    early: Vec<u8>,
    group: Arc<ProcessGroup>,
    processes: Arc<Processes>,
    place: ProgramPlace,
}

/// Whether a program can take a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramState {
    Ready,
    /// It wrote something that no call asked for.
    OutOfStep,
    /// It has ended or is about to, or has used its CPU time.
    Over,
}

impl Program {
    /// Starts a program, whose standard error goes to `log`.
    ///
    /// # Errors
    /// If it can't be started.
    pub(crate) fn start(
        mut command: Command,
        limits: TreeLimits,
        processes: &Arc<Processes>,
        place: ProgramPlace,
        log: OutputLog,
    ) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, group) = processes.spawn(&mut command, limits)?;
        let missing = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let stderr = log.follow(child.stderr.take().ok_or_else(missing)?);
        let (child, processes) = (ProgramChild::new(child), Arc::clone(processes));
        let process = RunningProcess { child, stdin, stdout, early: Vec::new(), group, processes, place };
        Ok(Program { process: Some(process), used: Instant::now(), stderr })
    }

    fn process(&mut self) -> &mut RunningProcess {
        self.process.as_mut().expect("it is there until the drop")
    }

    /// Writes a call and reads up to the reply, a line. The program goes on. After a fault it can't be used any more.
    pub(crate) async fn exchange_line(
        &mut self,
        call: &[u8],
        reply: ReplyLine,
        max_reply: u64,
        limit: Duration,
        progress: &mut CallProgress,
    ) -> Result<Bytes, ProgramFault> {
        self.used = Instant::now();
        let output = self.begin_call(progress);
        let exchange = async |process: &mut RunningProcess, output: &mut Vec<u8>| {
            process.lines(call, reply, max_reply, output).await
        };
        self.process().within(limit, ProcessMode::Persistent, output, exchange).await
    }

    /// Writes a call, ends the program's standard input, and reads everything until the program has ended with the
    /// status 0.
    pub(crate) async fn exchange_all(
        mut self,
        call: &[u8],
        max_reply: u64,
        limit: Duration,
        progress: &mut CallProgress,
    ) -> Result<Bytes, ProgramFault> {
        let output = self.begin_call(progress);
        let exchange = async |process: &mut RunningProcess, output: &mut Vec<u8>| {
            process.everything(call, max_reply, output).await
        };
        self.process().within(limit, ProcessMode::PerCall, output, exchange).await
    }

    /// Follows the program in `progress`, and returns the place for its output.
    fn begin_call<'a>(&self, progress: &'a mut CallProgress) -> &'a mut Vec<u8> {
        *progress = CallProgress { output: Vec::new(), stderr: Some(self.stderr.following()) };
        &mut progress.output
    }

    /// Whether it can take a call with such a `reply`, with at most `cpu` of CPU time used.
    pub(crate) async fn state(&mut self, reply: ReplyLine, cpu: Duration) -> ProgramState {
        let process = self.process();
        while process.has_output() {
            let Ok(output @ [_, ..]) = process.stdout.fill_buf().await else { return ProgramState::Over };
            let bytes = output.len();
            process.early.extend_from_slice(output);
            process.stdout.consume(bytes);
            if process.early.len() > MAX_EARLY_BYTES {
                return ProgramState::OutOfStep;
            }
        }
        if !process.early.is_empty() && reply.may_be_in(&process.early) {
            return ProgramState::OutOfStep;
        }
        let is_over = process.child.has_ended()
            || process.group.excess().is_some()
            || process.stdin.is_none()
            || ProcessStat::read(process.group.leader()).is_none_or(|stat| stat.cpu > cpu);
        if is_over { ProgramState::Over } else { ProgramState::Ready }
    }

    /// When its last call began.
    pub(crate) fn used(&self) -> Instant {
        self.used
    }

    /// Ends its standard input, and the program if it doesn't end by itself.
    pub(crate) async fn finish(mut self) {
        let process = self.process();
        process.stdin = None;
        let _ = timeout(MAX_END, process.child.wait()).await;
    }

    /// Ends it and everything that it started, also if nobody waits for that. Returns its place.
    pub(crate) fn end(mut self) -> Option<JoinHandle<ProgramPlace>> {
        self.start_end()
    }

    fn start_end(&mut self) -> Option<JoinHandle<ProgramPlace>> {
        let RunningProcess { child, group, processes, place, .. } = self.process.take()?;
        // Without a runtime, the process ends, and its program with it.
        Handle::try_current().ok().map(|runtime| {
            runtime.spawn(async move {
                processes.end(&group, child.into_child()).await;
                place
            })
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.start_end();
    }
}

impl RunningProcess {
    /// Whether it wrote something that has not been read, or closed its output. Asks the kernel: a timer that waits for
    /// nothing takes up to a millisecond, and without one the runtime may not know yet.
    fn has_output(&self) -> bool {
        let mut output = [PollFd::new(self.stdout.get_ref(), PollFlags::IN)];
        !self.stdout.buffer().is_empty() || poll(&mut output, Some(&Timespec::default())) != Ok(0)
    }

    /// Exchanges a call and its reply, which goes to `output`.
    async fn within(
        &mut self,
        limit: Duration,
        process: ProcessMode,
        output: &mut Vec<u8>,
        exchange: impl AsyncFnOnce(&mut Self, &mut Vec<u8>) -> Result<(), ProgramFault>,
    ) -> Result<Bytes, ProgramFault> {
        let exchanged = timeout(limit, exchange(self, output)).await;
        let fault = match exchanged {
            Ok(Ok(())) => return Ok(std::mem::take(output).into()),
            Ok(Err(fault)) => fault,
            Err(_) => ProgramFault::TimedOut { limit, progress: ReplyProgress::new(output, process) },
        };
        Err(self.group.excess().map_or(fault, |excess| ProgramFault::Excess(excess.to_owned())))
    }

    /// Writes a call and reads lines up to its reply, all to `output`.
    async fn lines(
        &mut self,
        call: &[u8],
        reply: ReplyLine,
        max_reply: u64,
        output: &mut Vec<u8>,
    ) -> Result<(), ProgramFault> {
        let Some(mut stdin) = self.stdin.take() else { return Err(self.ended().await) };
        output.append(&mut self.early);
        let RunningProcess { child, stdout, group, processes, .. } = self;
        // One byte more than a reply, and the end of the line.
        let mut stdout = stdout.take(max_reply + 2);
        let write = async { stdin.write_all(call).await.and(stdin.flush().await) };
        let read_lines = async {
            loop {
                let begin = output.len();
                let read = stdout.read_until(b'\n', output).await?;
                if read == 0 || !output.ends_with(b"\n") || reply.is_reply(output[begin..].trim_ascii()) {
                    return Ok(());
                }
            }
        };
        let read = until_end(read_lines, child, || processes.kill(group));
        let (read, is_written) = read_while(read, write).await;
        if is_written {
            self.stdin = Some(stdin);
        }
        let last = output.split_inclusive(|byte| *byte == b'\n').next_back().unwrap_or_default();
        let is_whole = last.ends_with(b"\n") && reply.is_reply(last.trim_ascii());
        if !is_whole && output.len() as u64 > max_reply {
            return Err(ProgramFault::TooLong(max_reply));
        }
        if read.is_err() || !is_whole {
            return Err(self.ended().await);
        }
        output.pop();
        if output.len() as u64 > max_reply { Err(ProgramFault::TooLong(max_reply)) } else { Ok(()) }
    }

    async fn everything(
        &mut self,
        call: &[u8],
        max_reply: u64,
        reply: &mut Vec<u8>,
    ) -> Result<(), ProgramFault> {
        let Some(mut stdin) = self.stdin.take() else { return Err(self.ended().await) };
        let RunningProcess { child, stdout, group, processes, .. } = self;
        let mut stdout = stdout.take(max_reply + 1);
        // It drops the standard input, which so ends.
        let write = async move { stdin.write_all(call).await.and(stdin.flush().await) };
        let read = until_end(stdout.read_to_end(reply), child, || processes.kill(group));
        let (read, _) = read_while(read, write).await;
        if reply.len() as u64 > max_reply {
            return Err(ProgramFault::TooLong(max_reply));
        }
        match (read, self.child.wait().await) {
            (Ok(_), Ok(exit)) if exit.code() == Some(0) && !reply.is_empty() => Ok(()),
            (_, Ok(exit)) => Err(ProgramFault::ended(exit, &self.group)),
            (_, Err(_)) => Err(self.ended().await),
        }
    }

    /// The fault of a program that closed its standard output.
    async fn ended(&mut self) -> ProgramFault {
        match timeout(MAX_END, self.child.wait()).await {
            Ok(Ok(exit)) => ProgramFault::ended(exit, &self.group),
            _ => ProgramFault::Ended { how: "its standard output".into(), limit: String::new(), code: None },
        }
    }
}

/// Reads what a program writes. If the program ends, `end_children` ends those of its children that keep its standard
/// output open.
async fn until_end<T>(
    read: impl Future<Output = io::Result<T>>,
    child: &mut ProgramChild,
    end_children: impl FnOnce() -> bool,
) -> io::Result<T> {
    tokio::pin!(read);
    tokio::select! {
        biased;
        read = &mut read => return read,
        _ = child.wait() => end_children(),
    };
    read.await
}

/// Reads a reply while the call is written. A program may reply before it has read its call, and then never read the rest.
/// Also returns whether all was written.
async fn read_while<T>(
    read: impl Future<Output = io::Result<T>>,
    write: impl Future<Output = io::Result<()>>,
) -> (io::Result<T>, bool) {
    tokio::pin!(read);
    let is_written = tokio::select! {
        biased;
        written = write => written.is_ok(),
        read = &mut read => return (read, false),
    };
    (read.await, is_written)
}
