//! The gateway as its user starts it: `hookgate serve` with a configuration file, as its own process.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{BenchError, http_probe, proc_fs, process::KilledChild};

/// The time between two looks at /readyz.
const READY_INTERVAL: Duration = Duration::from_millis(2);
/// The maximum time until a gateway is ready; builds without optimisation take long with many bindings.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running gateway.
pub(crate) struct GatewayProcess {
    child: KilledChild,
    /// Of its own, because a gateway reads its file again when it changes.
    _directory: TempDir,
    /// `host:port` of the data port.
    pub(crate) data_addr: String,
    /// From the start of the process until /readyz answered 200.
    pub(crate) start_time: Duration,
}

impl GatewayProcess {
    /// Starts `binary` with `config` and waits until it is ready.
    pub(crate) fn start(binary: &Path, config: &Value) -> Result<Self, BenchError> {
        GatewayProcess::start_as(Command::new(binary), config)
    }

    /// The same for a `command` that takes the gateway's arguments.
    pub(crate) fn start_as(mut command: Command, config: &Value) -> Result<Self, BenchError> {
        let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
        let file = directory.path().join("hookgate.yaml");
        std::fs::write(&file, config.to_string())?; // JSON is YAML
        command.args(["serve", "--config"]).arg(&file).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The measured configuration is the file's.
        let own = std::env::vars_os().map(|(name, _)| name);
        own.filter(|name| name.to_string_lossy().starts_with("HOOKGATE")).for_each(|name| {
            command.env_remove(name);
        });
        let begun = Instant::now();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
        let stderr = child.stderr.take().ok_or("standard error is not piped")?;
        let (data_addr, start_time) = (String::new(), Duration::ZERO);
        let mut gateway =
            GatewayProcess { child: KilledChild(child), _directory: directory, data_addr, start_time };
        let addresses = read_addresses(BufReader::new(stderr))?;
        wait_until_ready(&addresses.ops, begun + READY_TIMEOUT)?;
        gateway.start_time = begun.elapsed();
        gateway.data_addr = addresses.data;
        Ok(gateway)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// A size from `/proc/PID/status`, by its name with the colon, in bytes.
    pub(crate) fn memory(&self, name: &str) -> Result<u64, BenchError> {
        proc_fs::memory(self.id(), name)
    }
}

struct ListenAddresses {
    data: String,
    ops: String,
}

/// Reads the log up to the line with the addresses. A thread reads the rest, so that the gateway never waits
/// for a reader.
fn read_addresses(mut log: BufReader<ChildStderr>) -> Result<ListenAddresses, BenchError> {
    let mut text = String::new();
    loop {
        let begin = text.len();
        if log.read_line(&mut text)? == 0 {
            return Err(format!("the gateway ended before it listened:\n{text}").into());
        }
        let Ok(line) = serde_json::from_str::<Value>(&text[begin..]) else { continue };
        if line["message"] == "listening"
            && let (Some(data), Some(ops)) = (line["data_addr"].as_str(), line["ops_addr"].as_str())
        {
            thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Ok(ListenAddresses { data: data.to_owned(), ops: ops.to_owned() });
        }
    }
}

fn wait_until_ready(ops: &str, until: Instant) -> Result<(), BenchError> {
    loop {
        let answer = http_probe::get(ops, "/readyz")?;
        if answer.is_ok {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("the gateway isn't ready: {}", answer.text).into());
        }
        thread::sleep(READY_INTERVAL);
    }
}

/// The gateway's binary: `given`, or the one that was built beside this binary.
pub(crate) fn binary(given: Option<&Path>) -> Result<PathBuf, BenchError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("hookgate"),
    };
    // Absolute, because the gateway starts in another directory.
    path.canonicalize().map_err(|error| {
        let remedy =
            "build it with the same profile (`cargo build -p hookgate-cli`), or name it with --gateway";
        format!("there is no gateway at {}: {error}; {remedy}", path.display()).into()
    })
}
