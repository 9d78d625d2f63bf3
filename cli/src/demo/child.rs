//! A reference plugin as a child process of the demo: `hookgate plugin run NAME` on a Unix socket. Dropping it kills
//! the process and waits for its end, however the demo ends.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{self, Stdio},
    time::Duration,
};

use tokio::{net::UnixStream, time};

/// How long a plugin may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct PluginProcess {
    name: &'static str,
    socket: PathBuf,
    /// Its standard error.
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

    /// Kills it like a crash, and waits until its pid is gone, which is quick because nothing catches SIGKILL.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        let gone = self.process.kill().and_then(|()| self.process.wait());
        gone.map(drop).map_err(|error| format!("{} can't be killed: {error}", self.name))
    }

    async fn listens(&mut self) -> Result<(), String> {
        // Only a connection shows that the socket is being listened on.
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
        // There is nobody left to tell.
        let _ = self.kill();
    }
}

/// Where the plugin `name` listens.
fn socket(name: &str, directory: &Path) -> PathBuf {
    directory.join(format!("{name}.sock"))
}
