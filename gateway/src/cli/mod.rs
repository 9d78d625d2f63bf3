//! The command line: what can be asked of the binary, and what its exit code means.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use clap_complete::Shell;

mod ask;
mod call;
mod config;
mod demo;
mod difference;
mod errors;
mod output;
mod paint;
mod payload;
mod plugin;
mod probe;
mod serve;
mod shell;
mod token;
mod whoami;

use output::Output;

use crate::config::Span;

/// Plugin gateway for AI agents.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Example: hookgate serve --config hookgate.yaml\n\n\
                  Exit codes: 0 ok, 1 failure, 2 bad configuration or usage, 3 a block or a plugin's \
                  cancel, 4 no decision, or a required plugin is missing.")]
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
    #[command(after_help = "Example: hookgate demo --keep")]
    Demo {
        /// Leaves it running until Ctrl-C, and prints how to call it.
        #[arg(long)]
        keep: bool,
    },
    /// Checks and shows configurations.
    #[command(subcommand)]
    Config(config::Command),
    /// Explains the error codes of answers: meaning, status, who failed, what to do.
    ///
    /// The same table is docs/errors.md.
    #[command(after_help = "Example: hookgate errors PLUGIN_TIMEOUT\n\n\
                            Exit codes: 0 explained, 2 there is no such code.")]
    Errors {
        /// The code; absent: all of them.
        code: Option<String>,
        /// The form of the answer.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Looks at tokens, and makes them where the configuration holds a shared secret.
    #[command(subcommand)]
    Token(token::Command),
    /// Asks a gateway what it makes of a token: tenant, operator, scopes, expiry, and the steps its calls pass.
    #[command(
        after_help = "Example: hookgate whoami --addr http://127.0.0.1:8080 --token-file token.txt\n\n\
                            Exit codes: 0 shown, 1 the token is refused or no gateway answers, 2 wrong usage."
    )]
    Whoami {
        /// Time for the answer; 1ms to 60s.
        #[arg(long, default_value = "15s", value_parser = ask::patience)]
        timeout: Span,
        /// The form of the answer; json is the answer as it came.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
        #[command(flatten)]
        gateway: ask::Gateway,
    },
    /// Calls a gateway at one extension point, as an agent does, and shows the decision.
    ///
    /// The payload comes from flags, or whole from a file or standard input. JSON passes byte for byte.
    #[command(
        after_help = "Example: hookgate call before_tool_call --tool fs.read --args '{\"path\": \"/etc/hosts\"}'\n\n\
                            Exit codes: 0 continue, 2 wrong usage, 3 block, 4 no decision: an error, or no answer."
    )]
    Call(Box<call::Call>),
    /// Asks a gateway whether it is ready, for containers without a shell.
    ///
    /// Prints nothing when it is. Waits for 3 s at most.
    #[command(after_help = "Example: hookgate probe --addr 127.0.0.1:9090\n\n\
                            Exit codes: 0 ready (with --live: alive), 1 not, or no answer.")]
    Probe {
        /// Its `server.ops_addr`.
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9090")]
        addr: String,
        /// Asks /livez, whether the process answers at all, instead of /readyz.
        #[arg(long)]
        live: bool,
    },
    /// Prints a script that completes this command line in a shell.
    #[command(after_help = "Example: hookgate completions bash > /etc/bash_completion.d/hookgate")]
    Completions {
        /// Whose.
        shell: Shell,
    },
    /// Writes a manual page for every subcommand.
    #[command(after_help = "Example: hookgate man /usr/local/share/man/man1\n\n\
                            Exit codes: 0 written, 1 the folder can't be written.")]
    Man {
        /// The folder, which is made if need be.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Cli {
    /// Does what is asked.
    pub async fn run(self) -> Exit {
        match self.command {
            Command::Serve { config } => serve::run(&config).await,
            Command::Plugin(command) => plugin::run(command).await,
            Command::Demo { keep } => demo::run(keep).await,
            Command::Config(command) => config::run(command),
            Command::Errors { code, output } => errors::run(code.as_deref(), output),
            Command::Token(command) => token::run(command).await,
            Command::Whoami { timeout, output, gateway } => whoami::run(&gateway, timeout, output).await,
            Command::Call(call) => call::run(&call).await,
            Command::Probe { addr, live } => probe::run(&addr, live).await,
            Command::Completions { shell } => shell::completions(shell),
            Command::Man { folder } => shell::man(&folder),
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

    /// `code`, and nothing to say: standard output has it all.
    fn told(code: u8) -> Self {
        Exit { code, message: None }
    }

    /// 4: a required plugin is missing.
    pub fn plugin_missing(message: impl Into<String>) -> Self {
        Exit { code: 4, message: Some(message.into()) }
    }

    /// 4: nobody said yes or no.
    fn no_decision(message: impl Into<String>) -> Self {
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
