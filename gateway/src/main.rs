//! The `hookgate` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use hookgate::{
    cli::{self, Cli, Exit},
    telemetry,
};

/// Has what was logged before a panic written.
struct FlushLog;

impl Drop for FlushLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            telemetry::flush_log(cli::LAST_WORDS);
        }
    }
}

fn main() -> ExitCode {
    let _flush = FlushLog;
    let exit = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let exit = runtime.block_on(Cli::parse().run());
            // What still reads a file or asks for a name may hang for good, and nobody needs it any longer.
            runtime.shutdown_background();
            exit
        }
        Err(error) => Exit::failure(format!("the runtime could not be started: {error}")),
    };
    exit.report()
}
