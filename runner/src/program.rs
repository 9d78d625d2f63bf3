//! One process of a program: takes calls as lines, and ends with everything that it started.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    runtime::Handle,
    time::timeout,
};

use crate::{
    process_tree::ProcessStat,
    processes::{Processes, TreeLimits, WatchedProcess, kill_group},
};

/// How long a program may take to end after its standard input has ended.
const MAX_END: Duration = Duration::from_secs(1);

/// Why a program gave no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramFault {
    /// It ended, or closed its standard output.
    #[error("the program ended {how} before it replied")]
    Ended {
        how: String,
        /// Whether it ended by itself with the status 0.
        is_clean: bool,
    },
    #[error("the program's reply is longer than {0} bytes")]
    TooLong(u64),
    #[error("the program did not reply within {0:?}")]
    TimedOut(Duration),
    #[error("the program was ended: {0}")]
    Excess(String),
}

/// A running program. Dropping it ends it, with everything that it started.
pub(crate) struct Program {
    /// `None` only while it is dropped.
    process: Option<RunningProcess>,
    processes: Arc<Processes>,
    /// When its last call began.
    used: Instant,
}

struct RunningProcess {
    child: Child,
    pid: i32,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    watched: Arc<WatchedProcess>,
}

impl Program {
    /// Starts a program, and returns its standard error too.
    ///
    /// # Errors
    /// If it can't be started.
    pub(crate) fn start(
        mut command: Command,
        limits: TreeLimits,
        processes: &Arc<Processes>,
    ) -> io::Result<(Self, ChildStderr)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, pid, watched) = processes.spawn(&mut command, limits)?;
        let missing = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let process = RunningProcess { child, pid, stdin, stdout, watched };
        Ok((
            Program { process: Some(process), processes: Arc::clone(processes), used: Instant::now() },
            stderr,
        ))
    }

    fn process(&mut self) -> &mut RunningProcess {
        self.process.as_mut().expect("it is there until the drop")
    }

    /// Writes a call and reads the reply, a line. The program goes on. After a fault it can't be used any more.
    pub(crate) async fn exchange_line(
        &mut self,
        call: &[u8],
        max_reply: u64,
        limit: Duration,
    ) -> Result<Bytes, ProgramFault> {
        self.used = Instant::now();
        self.process().within(limit, async |process| process.line(call, max_reply).await).await
    }

    /// Writes a call, ends the program's standard input, and reads everything until the program has ended with the
    /// status 0.
    pub(crate) async fn exchange_all(
        mut self,
        call: &[u8],
        max_reply: u64,
        limit: Duration,
    ) -> Result<Bytes, ProgramFault> {
        let process = self.process();
        process.within(limit, async |process| process.everything(call, max_reply).await).await
    }

    /// Whether it can take a call: it runs, wrote nothing unasked, and has used at most `cpu` of CPU time.
    pub(crate) async fn is_usable(&mut self, cpu: Duration) -> bool {
        let process = self.process();
        if !matches!(process.child.try_wait(), Ok(None)) || process.watched.excess().is_some() {
            return false;
        }
        // Ready only if it wrote something or closed its output.
        if timeout(Duration::ZERO, process.stdout.fill_buf()).await.is_ok() {
            return false;
        }
        ProcessStat::read(process.pid).is_some_and(|stat| stat.cpu <= cpu)
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
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(RunningProcess { child, pid, .. }) = self.process.take() else { return };
        // Not if it was waited for: the id may be another process's by now.
        if child.id().is_some() {
            kill_group(pid);
        }
        let processes = Arc::clone(&self.processes);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { processes.end(pid, child).await });
        }
    }
}

impl RunningProcess {
    async fn within<T>(
        &mut self,
        limit: Duration,
        exchange: impl AsyncFnOnce(&mut Self) -> Result<T, ProgramFault>,
    ) -> Result<T, ProgramFault> {
        let exchanged = timeout(limit, exchange(self)).await;
        let fault = match exchanged {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(fault)) => fault,
            Err(_) => ProgramFault::TimedOut(limit),
        };
        Err(self.watched.excess().map_or(fault, |excess| ProgramFault::Excess(excess.to_owned())))
    }

    async fn line(&mut self, call: &[u8], max_reply: u64) -> Result<Bytes, ProgramFault> {
        let Some(mut stdin) = self.stdin.take() else { return Err(self.ended().await) };
        // One byte more than a reply, and the end of the line.
        let mut stdout = (&mut self.stdout).take(max_reply + 2);
        let mut line = Vec::new();
        let (written, read) = tokio::join!(
            async { stdin.write_all(call).await.and(stdin.flush().await) },
            stdout.read_until(b'\n', &mut line),
        );
        self.stdin = Some(stdin);
        let is_whole = line.ends_with(b"\n");
        if !is_whole && line.len() as u64 > max_reply {
            return Err(ProgramFault::TooLong(max_reply));
        }
        if written.is_err() || read.is_err() || !is_whole {
            return Err(self.ended().await);
        }
        line.pop();
        if line.len() as u64 > max_reply { Err(ProgramFault::TooLong(max_reply)) } else { Ok(line.into()) }
    }

    async fn everything(&mut self, call: &[u8], max_reply: u64) -> Result<Bytes, ProgramFault> {
        let Some(mut stdin) = self.stdin.take() else { return Err(self.ended().await) };
        let mut stdout = (&mut self.stdout).take(max_reply + 1);
        let mut reply = Vec::new();
        // A program may end without reading its call.
        let ((), read) = tokio::join!(
            async {
                let _ = stdin.write_all(call).await.and(stdin.flush().await);
                drop(stdin);
            },
            stdout.read_to_end(&mut reply),
        );
        if reply.len() as u64 > max_reply {
            return Err(ProgramFault::TooLong(max_reply));
        }
        match (read, self.child.wait().await) {
            (Ok(_), Ok(status)) if status.success() && !reply.is_empty() => Ok(reply.into()),
            (_, Ok(status)) => Err(ended_with(status)),
            (_, Err(_)) => Err(self.ended().await),
        }
    }

    /// The fault of a program that closed its standard output.
    async fn ended(&mut self) -> ProgramFault {
        match timeout(MAX_END, self.child.wait()).await {
            Ok(Ok(status)) => ended_with(status),
            _ => ProgramFault::Ended { how: "its standard output".into(), is_clean: false },
        }
    }
}

fn ended_with(status: ExitStatus) -> ProgramFault {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("with the exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "without a status".into(),
    };
    ProgramFault::Ended { how, is_clean: status.success() }
}
