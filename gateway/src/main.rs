//! The `hookgate` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use hookgate::cli::{Cli, Exit};

fn main() -> ExitCode {
    let exit = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let exit = runtime.block_on(Cli::parse().run());
            // Dropped, it would wait for threads that are held up: by a name that nobody resolves, for one.
            runtime.shutdown_background();
            exit
        }
        Err(error) => Exit::failure(format!("the runtime could not be started: {error}")),
    };
    exit.report()
}
