//! The `hookgate` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use hookgate::cli::{Cli, Exit};

fn main() -> ExitCode {
    let exit = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(Cli::parse().run()),
        Err(error) => Exit::failure(format!("the runtime could not be started: {error}")),
    };
    exit.report()
}
