//! Envoy as its own process, with as many workers as the gateway has.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    BenchError,
    envoy_config::{self, LISTENER},
    http_probe,
    process::KilledChild,
};

/// The time between two looks at the admin port.
const READY_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum time until Envoy is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running Envoy.
pub(crate) struct EnvoyProcess {
    child: KilledChild,
    _directory: TempDir,
    /// `host:port` of the listener.
    pub(crate) address: String,
}

impl EnvoyProcess {
    /// Starts `binary` with `ext_proc` servers at the ports `plugins`, and waits until it is ready.
    pub(crate) fn start(binary: &Path, plugins: &[u16]) -> Result<Self, BenchError> {
        let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
        let config = directory.path().join("envoy.json");
        fs::write(&config, envoy_config::bootstrap(plugins).to_string())?;
        // The default of the gateway's `server.workers`, too.
        let workers = thread::available_parallelism()?.to_string();
        let mut command = Command::new(binary);
        command.args(["--disable-hot-restart", "--log-level", "error", "--concurrency", &workers]);
        command.arg("--config-path").arg(&config);
        command.arg("--admin-address-path").arg(directory.path().join("admin"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(directory.path().join("log"))?);
        let child = command.spawn().map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut child = KilledChild(child);
        let listening = child.wait_until_ready(READY_INTERVAL, READY_TIMEOUT, || listener(directory.path()));
        let address = listening.map_err(|error| {
            let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            format!("Envoy: {error}\n{log}")
        })?;
        Ok(EnvoyProcess { child, _directory: directory, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }
}

/// The address of the listener, once the Envoy with this directory is ready. Any failure before that means "not yet".
fn listener(directory: &Path) -> Option<String> {
    let admin = fs::read_to_string(directory.join("admin")).ok()?;
    if !http_probe::get(&admin, "/ready").ok()?.is_ok {
        return None;
    }
    let listeners = http_probe::get(&admin, "/listeners").ok()?.text;
    let address = listeners.lines().find_map(|line| line.strip_prefix(LISTENER)?.strip_prefix("::"))?;
    Some(address.trim().to_owned())
}
