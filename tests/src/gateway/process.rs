//! A child process: its log, signals and exit.

use std::{
    io::BufReader,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use super::{Log, PATIENCE};

/// How long a process may take to stop by itself before it is killed.
const FAREWELL: Duration = Duration::from_secs(8);

/// How a process ended.
#[derive(Debug)]
pub struct ProcessExit {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    /// Everything it wrote to standard error.
    pub log: Log,
}

#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    log: Log,
    end: Arc<ExitStatusCell>,
}

#[derive(Debug, Default)]
struct ExitStatusCell {
    status: Mutex<Option<ExitStatus>>,
    came: Condvar,
}

impl ExitStatusCell {
    fn status(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.status.lock().expect("no holder of this lock panics")
    }

    fn wait(&self, patience: Duration) -> Option<ExitStatus> {
        let waited = self.came.wait_timeout_while(self.status(), patience, |status| status.is_none());
        *waited.expect("no holder of this lock panics").0
    }
}

impl Process {
    pub(super) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the gateway can be run");
        let stderr = child.stderr.take().expect("standard error is piped");
        let (log, end) = (Log::default(), Arc::new(ExitStatusCell::default()));
        let process = Process { id: child.id(), log: log.clone(), end: Arc::clone(&end) };
        thread::spawn(move || log.read(BufReader::new(stderr)));
        thread::spawn(move || report_end(child, &end));
        process
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn exit(&self) -> Option<ExitStatus> {
        *self.end.status()
    }

    pub(super) async fn ended(&self) -> Option<i32> {
        let end = Arc::clone(&self.end);
        let status =
            tokio::task::spawn_blocking(move || end.wait(PATIENCE)).await.expect("waiting does not panic");
        let status = status.unwrap_or_else(|| panic!("it still runs after {PATIENCE:?}:\n{}", self.log));
        status.code()
    }

    pub(super) async fn exited(&self) -> ProcessExit {
        let code = self.ended().await;
        self.log.closed().await;
        ProcessExit { code, log: self.log.clone() }
    }

    /// Sends a signal by name, unless the process has ended: its id may belong to another process then.
    pub(super) fn signal(&self, name: &str) {
        let status = self.end.status();
        if status.is_none() {
            // The shell's built-in `kill` exists even where the program doesn't, and no unsafe code is
            // needed.
            let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id)]).status();
            sent.expect("a shell can be run");
        }
    }
}

fn report_end(mut child: Child, end: &ExitStatusCell) {
    let status = child.wait().expect("a child can be waited for");
    *end.status() = Some(status);
    end.came.notify_all();
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal("TERM");
        if self.end.wait(FAREWELL).is_none() {
            self.signal("KILL");
            self.end.wait(FAREWELL);
        }
        if thread::panicking() {
            #[allow(clippy::print_stderr)] // the runner shows it beside the failure
            {
                eprintln!("the gateway's log:\n{}", self.log);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command)
    }

    #[tokio::test]
    async fn a_process_ends_with_its_code_and_its_whole_log() {
        let exit = shell("echo one >&2; echo two >&2; exit 4").exited().await;
        let texts: Vec<_> = exit.log.lines().into_iter().map(|line| line.text).collect();
        assert_eq!((exit.code, texts), (Some(4), vec!["one".to_owned(), "two".to_owned()]));
    }

    #[tokio::test]
    async fn signals_reach_a_process_once_it_runs() {
        for (signal, code) in [("TERM", Some(7)), ("KILL", None)] {
            let process = shell("trap 'exit 7' TERM; echo up >&2; while :; do sleep 0.02; done");
            process.log().wait_for(|line| line.text == "up").await;
            assert!(process.exit().is_none());
            process.signal(signal);
            assert_eq!(process.exited().await.code, code, "{signal}");
            process.signal("KILL"); // its id is no longer ours: nothing is sent
        }
    }

    #[tokio::test]
    async fn a_process_ends_when_it_is_dropped() {
        let process = shell("trap 'echo bye >&2; exit 0' TERM; echo up >&2; while :; do sleep 0.02; done");
        process.log().wait_for(|line| line.text == "up").await;
        let log = process.log().clone();
        drop(process);
        log.wait_for(|line| line.text == "bye").await;
    }
}
