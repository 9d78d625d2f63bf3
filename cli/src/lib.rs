//! The command line: what can be asked of the binary, and what its exit code means.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{ArgGroup, Parser, Subcommand};
use clap_complete::Shell;

mod call;
mod client;
mod config;
mod demo;
mod dev;
mod document;
mod errors;
mod events;
mod explain;
mod init;
mod keygen;
mod output;
mod paint;
mod payload;
mod payload_diff;
mod plugin;
mod probe;
mod process_ops;
mod profile;
mod proto;
mod registry;
mod serve;
mod shell;
mod shell_quote;
mod status;
mod token;
mod whoami;

use hookgate::{
    app,
    config::{Problems, Span},
    telemetry,
};
use output::Output;

/// Time for what a process that fails says last to be written. Nothing waits for its end, and a reader may be slow.
pub const MAX_FAILURE_LOG_FLUSH: Duration = Duration::from_secs(2);

/// Plugin gateway for AI agents.
#[derive(Debug, Parser)]
#[command(name = "hookgate", version, about, max_term_width = 100, arg_required_else_help = true)]
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
    /// A changed file is taken into use by itself, and at once on SIGHUP. A second Ctrl-C ends it at once.
    #[command(group(ArgGroup::new("what").args(["config", "dev"]).required(true).multiple(true)))]
    #[command(after_help = "Example: hookgate serve --config hookgate.yaml\n\n\
                            Exit codes: 0 ended by a signal, 1 it can't listen, 2 bad configuration or usage, 4 a \
                            required plugin is missing.")]
    Serve {
        /// The configuration, see docs/configuration.md; with --dev a small one is built in.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// For development: makes a key that ends with it, accepts every tenant, listens on loopback only, and prints a
        /// token and a call to paste.
        #[arg(long)]
        dev: bool,
    },
    /// Writes a folder to start from: a commented configuration, a key for development, .gitignore.
    ///
    /// Prints the next commands. Nothing that is there is overwritten: then nothing is written at all.
    #[command(after_help = "Example: hookgate init gateway\n\n\
                            Exit codes: 0 written, 1 a file is there already or the folder can't be written.")]
    Init {
        /// The folder, which is made if need be.
        #[arg(value_name = "DIR", default_value = ".")]
        folder: PathBuf,
    },
    /// Runs a reference plugin, tries out a plugin of your own, and writes the plugins of a registry.
    #[command(
        subcommand,
        after_help = "Example: hookgate plugin test unix:///run/plugins/tenant-auth.sock before_tool_call --tool fs.read"
    )]
    Plugin(plugin::PluginCommand),
    /// Shows and writes the tenants of a registry.
    #[command(subcommand, after_help = "Example: hookgate tenant set acme --label plan=gold")]
    Tenant(registry::tenant::TenantCommand),
    /// Shows and writes the bindings of a registry: which plugin runs for whom.
    #[command(
        subcommand,
        after_help = "Example: hookgate binding set policy --plugin content-policy --all --priority 10 --mode observe"
    )]
    Binding(registry::binding::BindingCommand),
    /// Shows the revisions of a registry, and goes back to one.
    #[command(subcommand, after_help = "Example: hookgate revision list")]
    Revision(registry::revision::RevisionCommand),
    /// Writes the plugins, tenants and bindings of a file to a registry, in one revision, all or none of them.
    ///
    /// Shows first what would change, and asks. What others write meanwhile is not overwritten. References in plugins'
    /// config stay references; others are resolved here.
    #[command(
        after_help = "Example: hookgate apply --file registry.yaml --prune --selector team=billing --reason 'release 7'\n\n\
                            Exit codes: 0 written, or there is nothing to change, 1 refused, overtaken, or you said no, \
                            2 wrong usage, or mistakes in the file or in what would come of it."
    )]
    Apply(Box<registry::apply::Apply>),
    /// Shows what `hookgate apply` would change.
    #[command(after_help = "Example: hookgate diff --file registry.yaml\n\n\
                            Exit codes: 0 nothing, 1 something, 2 wrong usage, mistakes, or nobody can tell.")]
    Diff(Box<registry::apply::ApplyArgs>),
    /// Shows an agent's calls passing real plugins; needs no file and no service.
    ///
    /// Starts a gateway with two plugins in its process and two as processes of their own, calls all four extension
    /// points for two tenants over HTTP and gRPC, and compares every answer with what it should be.
    #[command(after_help = "Example: hookgate demo --keep\n\n\
                            Exit codes: 0 every answer is as it should be, 1 one differs, or it can't start.")]
    Demo {
        /// Leaves it running until Ctrl-C, and prints how to call it.
        #[arg(long)]
        keep: bool,
    },
    /// Checks and shows configurations.
    #[command(subcommand, after_help = "Example: hookgate config check hookgate.yaml")]
    Config(config::ConfigCommand),
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
    /// Says why a call of a tenant runs what it runs: steps, conditions, time.
    ///
    /// Out of a configuration, or out of a running gateway, which knows its plugins. Nobody is called, and no value of a
    /// configuration is shown. What isn't said of the call it doesn't carry, and conditions on it count as met.
    #[command(
        after_help = "Example: hookgate explain --config hookgate.yaml --tenant acme --point before_tool_call \
                            --tool fs.read\n\n\
                            Exit codes: 0 explained, 1 the gateway is out of reach or refuses, 2 the configuration or \
                            the usage is wrong."
    )]
    Explain(Box<explain::ExplainArgs>),
    /// Shows what happened lately in a gateway's process, and with --follow what does: plugins that come and go, tables,
    /// refused callers, and calls that did not simply continue.
    ///
    /// The same as the lines of the log with an `event`, whatever `log.level` is. Of one process: with several replicas
    /// it is the one that answers.
    #[command(after_help = "Example: hookgate events --follow --event 'plugin.*' --token-file token.txt\n\n\
                            Exit codes: 0 shown, or ended by Ctrl-C, 1 no gateway answers, or it refuses, 2 wrong usage.")]
    Events(Box<events::EventsArgs>),
    /// Shows how a running gateway is: whether it is ready, what is active, what isn't and why, and how its database stands.
    ///
    /// Of one process: with several replicas it is the one that answers.
    #[command(after_help = "Example: hookgate status --addr unix:///run/hookgate/admin.sock\n\n\
                            Exit codes: 0 shown, ready or not, 1 no gateway answers, or it refuses, 2 wrong usage.")]
    Status(status::StatusArgs),
    /// Has a running gateway read its configuration again, and waits for what comes of it.
    ///
    /// What SIGHUP does, with an answer. Of one process: with several replicas it is the one that answers.
    #[command(
        after_help = "Example: hookgate reload --addr unix:///run/hookgate/admin.sock --reason 'new key'\n\n\
                            Exit codes: 0 it is active, 1 it is waiting for something, is rejected, or no gateway answers, 2 \
                            wrong usage."
    )]
    Reload(process_ops::Reload),
    /// Looks at tokens, and makes them where the configuration holds a shared secret.
    #[command(subcommand, after_help = "Example: hookgate token mint --config hookgate.yaml --tenant acme")]
    Token(token::TokenCommand),
    /// Asks a gateway what it makes of a token: tenant, operator, scopes, expiry, and the steps its calls pass.
    #[command(
        after_help = "Example: hookgate whoami --addr http://127.0.0.1:8080 --token-file token.txt\n\n\
                            Exit codes: 0 shown, 1 the token is refused or no gateway answers, 2 wrong usage."
    )]
    Whoami {
        /// Time for the answer; 1ms to 60s.
        #[arg(long, default_value = "15s", value_parser = client::patience)]
        timeout: Span,
        /// The form of the answer; json is the answer as it came.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
        #[command(flatten)]
        gateway: client::DataPortArgs,
    },
    /// Keeps gateways that are asked often by name: where they are, and where their tokens are.
    ///
    /// In `hookgate/config.yaml` of XDG_CONFIG_HOME, else of ~/.config.
    #[command(
        subcommand,
        after_help = "Example: hookgate profile set local --admin unix:///run/hookgate/admin.sock"
    )]
    Profile(profile::ProfileCommand),
    /// Calls a gateway at one extension point, as an agent does, and shows the decision.
    ///
    /// The payload comes from flags, or whole from a file or standard input. JSON passes byte for byte.
    #[command(
        after_help = "Example: hookgate call before_tool_call --tool fs.read --args '{\"path\": \"/etc/hosts\"}'\n\n\
                            Exit codes: 0 continue, 2 wrong usage, 3 block, 4 no decision: an error, or no answer."
    )]
    Call(Box<call::CallArgs>),
    /// Asks a gateway whether it is ready, for containers without a shell.
    ///
    /// Prints nothing when it is. Waits for 3 s at most.
    #[command(after_help = "Example: hookgate probe --addr 127.0.0.1:9090\n\n\
                            Exit codes: 0 ready (with --live: alive), 1 not, or no answer, 2 wrong usage.")]
    Probe {
        /// Its `server.ops_addr`.
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9090")]
        addr: String,
        /// Asks /livez, whether the process answers at all, instead of /readyz.
        #[arg(long)]
        live: bool,
    },
    /// Hands out the contract, for plugins and agents in languages without an SDK.
    #[command(subcommand, after_help = "Example: hookgate proto export proto")]
    Proto(proto::ProtoCommand),
    /// Prints a script that completes this command line in a shell.
    #[command(after_help = "Example: hookgate completions bash > /etc/bash_completion.d/hookgate\n\n\
                            Exit codes: 0 printed, 2 wrong usage.")]
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
            Command::Serve { config, dev } => serve::run(config.as_deref(), dev).await,
            Command::Init { folder } => init::run(&folder),
            Command::Plugin(command) => plugin::run(command).await,
            Command::Tenant(command) => registry::tenant::run(command).await,
            Command::Binding(command) => registry::binding::run(command).await,
            Command::Revision(command) => registry::revision::run(command).await,
            Command::Apply(apply) => registry::apply::apply(*apply).await,
            Command::Diff(wanted) => registry::apply::diff(*wanted).await,
            Command::Demo { keep } => demo::run(keep).await,
            Command::Config(command) => config::run(command).await,
            Command::Errors { code, output } => errors::run(code.as_deref(), output),
            Command::Explain(asked) => explain::run(*asked).await,
            Command::Events(asked) => events::run(&asked).await,
            Command::Status(asked) => status::run(&asked).await,
            Command::Reload(how) => process_ops::reload(&how).await,
            Command::Token(command) => token::run(command).await,
            Command::Whoami { timeout, output, gateway } => whoami::run(&gateway, timeout, output).await,
            Command::Profile(command) => profile::run(command),
            Command::Call(call) => call::run(&call).await,
            Command::Probe { addr, live } => probe::run(&addr, live).await,
            Command::Proto(command) => proto::run(&command),
            Command::Completions { shell } => shell::completions(shell),
            Command::Man { folder } => shell::man(&folder),
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Exit {
    code: u8,
    /// As it is printed.
    message: Option<String>,
}

impl Exit {
    /// 0: done.
    pub fn ok() -> Self {
        Exit { code: 0, message: None }
    }

    /// 1: it could not be done.
    pub fn failure(message: impl Into<String>) -> Self {
        Exit::with_message(1, message.into())
    }

    /// 2: the configuration or the arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Exit::with_message(2, message.into())
    }

    /// 2: what is wrong with the configuration, each mistake behind its place in the file.
    pub fn problems(problems: &Problems) -> Self {
        Exit::listed(2, problems.to_string())
    }

    /// `code`, and nothing to say: standard output has it all.
    fn already_reported(code: u8) -> Self {
        Exit { code, message: None }
    }

    /// Several things that are wrong, each with where it is: the name before the first alone would set that apart.
    fn listed(code: u8, list: String) -> Self {
        Exit { code, message: Some(list) }
    }

    /// 4: a required plugin is missing.
    pub fn plugin_missing(message: impl Into<String>) -> Self {
        Exit::with_message(4, message.into())
    }

    /// A sentence, behind the name of who says it.
    fn with_message(code: u8, message: String) -> Self {
        Exit { code, message: Some(format!("hookgate: {message}")) }
    }

    /// 4: nobody said yes or no.
    fn no_decision(message: impl Into<String>) -> Self {
        Exit::with_message(4, message.into())
    }

    /// Prints what went wrong, behind what was logged, and gives back the exit code. Returns though nobody reads it, as
    /// behind `2>&1 | head`: the exit code says it too.
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            telemetry::say(&message);
        }
        telemetry::flush_log(if self.code == 0 { app::MAX_LOG_FLUSH } else { MAX_FAILURE_LOG_FLUSH });
        ExitCode::from(self.code)
    }
}
