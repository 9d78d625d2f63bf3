//! Plugins as separate processes, and their standard error.

use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_tests::gateway::binary;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(35);

/// A plugin's process. It is killed on drop.
pub(crate) struct PluginProcess {
    child: Child,
    /// The address that it logs.
    pub(crate) address: String,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl PluginProcess {
    /// Runs a reference plugin with these environment variables.
    pub(crate) async fn reference(name: &str, listen: &str, environment: &[(&str, &str)]) -> Self {
        tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        let mut command = Command::new(binary());
        command.args(["plugin", "run", name, "--listen", listen]).envs(environment.iter().copied());
        let process = Self::run(command).await;
        let lines = process.lines();
        let listens = lines.iter().find(|line| line["message"] == "plugin listens");
        assert_eq!(listens.expect("it was waited for")["plugin"], name);
        process
    }

    /// Runs a command that serves a plugin, and waits until it listens.
    pub(crate) async fn run(mut command: Command) -> Self {
        command.kill_on_drop(true).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be run");
        let mut stderr = BufReader::new(child.stderr.take().expect("standard error is piped")).lines();
        let lines = Arc::new(Mutex::new(Vec::<Value>::new()));
        let read = Arc::clone(&lines);
        let listening = async {
            loop {
                let line =
                    stderr.next_line().await.expect("the log is text").expect("it listens before it ends");
                let line: Value = serde_json::from_str(&line).expect("without a terminal the log is JSON");
                let is_it = line["message"] == "plugin listens";
                let address = line["address"].as_str().map(str::to_owned);
                read.lock().unwrap().push(line);
                if is_it {
                    return address.expect("it says where");
                }
            }
        };
        let address = timeout(PATIENCE, listening).await.expect("it listens in time");
        // Keep reading, so that the process never blocks on a full pipe.
        let read = Arc::clone(&lines);
        tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                read.lock().unwrap().push(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        PluginProcess { child, address, lines }
    }

    /// The standard output of a command with a pipe for it.
    pub(crate) fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("standard output is piped")
    }

    /// The lines of standard error so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for a line with this message.
    pub(crate) async fn wait_for(&self, message: &str) -> Value {
        let written = async {
            loop {
                if let Some(line) = self.lines().into_iter().find(|line| line["message"] == message) {
                    return line;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, written).await.expect("the line is written in time")
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        let pid = self.child.id().expect("it runs");
        let mut shell = Command::new("sh");
        assert!(shell.args(["-c", &format!("kill -TERM {pid}")]).status().await.unwrap().success());
        timeout(PATIENCE, self.child.wait()).await.expect("it ends in time").unwrap()
    }
}

/// The address of a socket in `directory`.
pub(crate) fn unix(directory: &Path, name: &str) -> String {
    format!("unix://{}/{name}.sock", directory.display())
}
