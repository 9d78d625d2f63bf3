//! The `hookgate` binary: arguments in, exit code out.
// The layers of a call are one future: rustc computes its layout deeper than the default limit.
#![recursion_limit = "256"]

use std::{io, process::ExitCode};

use clap::Parser;
use hookgate::telemetry;
use hookgate_cli::{Cli, Exit, MAX_FAILURE_LOG_FLUSH};
use tokio::signal::unix::{SignalKind, signal};

/// SIGXFSZ, on every system that this is built for.
const FILE_TOO_LARGE: i32 = 25;

/// Flushes the log before a panic ends the process.
struct FlushLog;

impl Drop for FlushLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            telemetry::flush_log(MAX_FAILURE_LOG_FLUSH);
        }
    }
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(exit) = hookgate_cli::become_program() {
        return exit.report();
    }
    let _flush = FlushLog;
    let exit = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let exit = runtime.block_on(run());
            // A blocking file read or name lookup may hang forever, and its result is no longer needed.
            runtime.shutdown_background();
            exit
        }
        Err(error) => Exit::failure(format!("the runtime could not be started: {error}")),
    };
    exit.report()
}

async fn run() -> Exit {
    match survive_large_files() {
        Ok(()) => Cli::parse().run().await,
        Err(error) => Exit::failure(format!("signals can't be listened for: {error}")),
    }
}

/// Makes a write beyond RLIMIT_FSIZE fail like a write to a full disk. Without a handler the signal would end the
/// process; the handler stays installed even though nobody listens.
fn survive_large_files() -> io::Result<()> {
    signal(SignalKind::from_raw(FILE_TOO_LARGE)).map(drop)
}
