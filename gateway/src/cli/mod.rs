//! The command line: what can be asked of the binary, and what its exit code means.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod demo;
mod plugin;
mod serve;

/// Plugin gateway for AI agents.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 ok, 1 failure, 2 bad configuration or usage, 4 a required plugin is missing."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway until SIGTERM or Ctrl-C.
    ///
    /// A second Ctrl-C ends it at once.
    #[command(after_help = "Example: hookgate serve --config hookgate.yaml")]
    Serve {
        /// The configuration, see docs/configuration.md.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Runs a reference plugin.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Shows an agent's calls passing real plugins; needs no file and no service.
    ///
    /// Starts a gateway with two plugins in its process and two as processes of their own, calls all four extension
    /// points for two tenants over HTTP and gRPC, and compares every answer with what it should be. Exit code 1: an
    /// answer differs.
    Demo {
        /// Leaves it running until Ctrl-C, and prints how to call it.
        #[arg(long)]
        keep: bool,
    },
}

impl Cli {
    /// Does what is asked.
    pub async fn run(self) -> Exit {
        match self.command {
            Command::Serve { config } => serve::run(&config).await,
            Command::Plugin(command) => plugin::run(command).await,
            Command::Demo { keep } => demo::run(keep).await,
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Exit {
    code: u8,
    message: Option<String>,
}

impl Exit {
    /// 0: done.
    pub fn ok() -> Self {
        Exit { code: 0, message: None }
    }

    /// 1: it could not be done.
    pub fn failure(message: impl Into<String>) -> Self {
        Exit { code: 1, message: Some(message.into()) }
    }

    /// 2: the configuration or the arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Exit { code: 2, message: Some(message.into()) }
    }

    /// 4: a required plugin is missing.
    pub fn plugin_missing(message: impl Into<String>) -> Self {
        Exit { code: 4, message: Some(message.into()) }
    }

    /// Prints what went wrong, and gives back the exit code.
    #[allow(clippy::print_stderr)] // standard error is where a command says why it failed
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            eprintln!("hookgate: {message}");
        }
        ExitCode::from(self.code)
    }
}
