//! A reference plugin as a child process of the demo: `hookgate plugin run NAME` on a Unix socket. Dropped, it is
//! killed by its pid and waited for, however the demo ends.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{self, Stdio},
    time::Duration,
};

use tokio::{net::UnixStream, time};

/// A plugin that does not listen by then never will.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct PluginProcess {
    name: &'static str,
    socket: PathBuf,
    /// What it writes to standard error.
    log: PathBuf,
    process: process::Child,
}

impl PluginProcess {
    /// Starts the plugin `name` with its socket and its log in `directory`, and waits until it listens.
    pub(super) async fn start(name: &'static str, directory: &Path) -> Result<Self, String> {
        let (socket, log) = (socket(name, directory), directory.join(format!("{name}.log")));
        let spawn = || {
            process::Command::new(std::env::current_exe()?)
                .args(["plugin", "run", name, "--listen"])
                .arg(format!("unix://{}", socket.display()))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::options().append(true).create(true).open(&log)?)
                .spawn()
        };
        let process = spawn().map_err(|error| format!("{name} can't be started: {error}"))?;
        let mut child = PluginProcess { name, socket, log, process };
        match time::timeout(START_TIMEOUT, child.listens()).await {
            Ok(listens) => listens.map(|()| child),
            Err(_) => Err(format!("{name} doesn't listen after {START_TIMEOUT:?}\n{}", child.output())),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it as a crash would, and waits until its pid is gone. It is a matter of a moment: nothing catches
    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        let gone = self.process.kill().and_then(|()| self.process.wait());
        gone.map(drop).map_err(|error| format!("{} can't be killed: {error}", self.name))
    }

    async fn listens(&mut self) -> Result<(), String> {
        // Nothing tells that a socket is listened at but a connection.
        while UnixStream::connect(&self.socket).await.is_err() {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(format!("{} ended with {status}\n{}", self.name, self.output()));
            }
            time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.kill();
    }
}

/// Where the plugin `name` listens.
fn socket(name: &str, directory: &Path) -> PathBuf {
    directory.join(format!("{name}.sock"))
}
