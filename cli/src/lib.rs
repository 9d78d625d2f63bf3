//! The command line: its subcommands and exit codes.
// The layers of a call are one future: rustc computes its layout deeper than the default limit.
#![recursion_limit = "256"]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{ArgGroup, Parser, Subcommand};
use clap_complete::Shell;

mod call;
mod call_hook;
mod client;
mod config;
mod conformance;
mod demo;
mod dev;
mod document;
mod env;
mod errors;
mod events;
mod explain;
mod import;
mod init;
mod keygen;
mod model_client;
mod new;
mod output;
mod payload;
mod payload_diff;
mod plugin;
mod probe;
mod process_ops;
mod profile;
mod proto;
mod registry;
mod runner;
mod serve;
mod shell;
mod shell_quote;
mod signals;
mod starter;
mod status;
mod token;
mod tools;
mod whoami;

use hookgate::{
    app,
    config::{Problems, Span},
    telemetry,
};
use output::Output;
#[cfg(target_os = "linux")]
pub use runner::become_program;

/// How long a failing process waits for its last words to be written, since a reader may be slow.
pub const MAX_FAILURE_LOG_FLUSH: Duration = Duration::from_secs(2);

/// Plugin gateway for AI agents.
#[derive(Debug, Parser)]
#[command(name = "hookgate", version, about, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Example: hookgate serve --config hookgate.yaml\n\n\
                  Exit codes: 0 ok, 1 failure, 2 invalid configuration or usage, 3 a block or a plugin's cancel, 4 \
                  no decision, or a required plugin is missing.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway until SIGTERM or Ctrl-C.
    ///
    /// Reloads a changed file automatically, and at once on SIGHUP. A second Ctrl-C exits at once.
    #[command(group(ArgGroup::new("what").args(["config", "dev"]).required(true).multiple(true)))]
    #[command(after_help = "Example: hookgate serve --config hookgate.yaml\n\n\
                            Exit codes: 0 ended by a signal, 1 it can't listen, 2 invalid configuration or usage, 4 \
                            a required plugin is missing.")]
    Serve {
        /// The configuration, see docs/configuration.md. Optional with --dev, which has a small one built in.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Development mode: listens on loopback only, accepts every tenant, signs with a throw-away key, and prints
        /// a token and a call to paste.
        #[arg(long)]
        dev: bool,
    },
    /// Creates a starter folder: a commented configuration, a key for development, .gitignore.
    ///
    /// Prints the next commands. If one of the files already exists, nothing is written.
    #[command(after_help = "Example: hookgate init gateway\n\n\
                            Exit codes: 0 written, 1 a file already exists or the folder can't be written.")]
    Init {
        /// The folder, created if missing.
        #[arg(value_name = "DIR", default_value = ".")]
        folder: PathBuf,
    },
    /// Imports plugins from the configuration of another system.
    #[command(subcommand, after_help = "Example: hookgate import dexto agent.yml --out-dir gateway")]
    Import(import::ImportCommand),
    /// Creates a project to begin with.
    #[command(subcommand, after_help = "Example: hookgate new plugin no-shell --lang rust")]
    New(new::NewCommand),
    /// Runs reference plugins, tests your own, and manages the plugins of a registry.
    #[command(
        subcommand,
        after_help = "Example: hookgate plugin test unix:///run/plugins/tenant-auth.sock before_tool_call --tool fs.read"
    )]
    Plugin(plugin::PluginCommand),
    /// Runs programs that read and write lines of JSON as plugins.
    #[command(subcommand)]
    Runner(runner::RunnerCommand),
    /// Checks a plugin in any language against the protocol, over the wire.
    ///
    /// Makes the calls of a gateway, without one: the handshake, digests, replies, calls at the same time, cancelled
    /// calls, unusual and large payloads, Shutdown. Each check names its section of docs/protocol.md, and a failed one
    /// what to do. With `-- COMMAND` it starts the plugin, and checks a restart too.
    #[command(
        after_help = "Example: hookgate conformance unix:///tmp/no-shell.sock --config '{\"refused_tools\": [\"shell.exec\"]}' \
                      -- ./no-shell\n\nExit codes: 0 no check failed, 1 a check failed, 2 invalid usage, or the plugin's \
                      schema rejects the config."
    )]
    Conformance(Box<conformance::Conformance>),
    /// Manages the tenants of a registry.
    #[command(subcommand, after_help = "Example: hookgate tenant set acme --label plan=gold")]
    Tenant(registry::tenant::TenantCommand),
    /// Manages the bindings of a registry: which plugin runs for which tenants.
    #[command(
        subcommand,
        after_help = "Example: hookgate binding set policy --plugin content-policy --all --priority 10 --mode observe"
    )]
    Binding(registry::binding::BindingCommand),
    /// Manages the upstreams of a registry: the providers of models for the LLM proxy.
    #[command(subcommand, after_help = "Example: hookgate upstream list")]
    Upstream(registry::upstream::UpstreamCommand),
    /// Manages the rules of a registry that say where a model's requests go.
    #[command(subcommand, after_help = "Example: hookgate model set fast --match fast --upstream vllm")]
    Model(registry::model::ModelCommand),
    /// Shows the revisions of a registry, and rolls back to one.
    #[command(subcommand, after_help = "Example: hookgate revision list")]
    Revision(registry::revision::RevisionCommand),
    /// Writes the objects of a file to a registry, atomically in one revision.
    ///
    /// Shows what would change and asks for confirmation. Concurrent changes are never overwritten. References in a
    /// plugin's config and in an upstream's credential stay references; all others are resolved by this command.
    #[command(
        after_help = "Example: hookgate apply --file registry.yaml --prune --selector team=billing --reason 'release 7'\n\n\
                            Exit codes: 0 written or unchanged, 1 refused, changed by someone else meanwhile, or you \
                            declined, 2 invalid usage, an invalid file, or an invalid result."
    )]
    Apply(Box<registry::apply::Apply>),
    /// Shows what `hookgate apply` would change.
    #[command(after_help = "Example: hookgate diff --file registry.yaml\n\n\
                            Exit codes: 0 no difference, 1 differences, 2 invalid usage, an invalid file, or the \
                            difference can't be computed.")]
    Diff(Box<registry::apply::ApplyArgs>),
    /// Runs an agent's calls through real plugins; needs no file and no service.
    ///
    /// Starts a gateway with two built-in plugins and two plugin processes, calls all four extension points for two
    /// tenants over HTTP and gRPC, and compares every answer with the expected one.
    #[command(after_help = "Example: hookgate demo --keep\n\n\
                            Exit codes: 0 every answer is as expected, 1 an answer differs, or the demo can't \
                            start.")]
    Demo {
        /// Keeps the gateway running until Ctrl-C, and prints how to call it.
        #[arg(long)]
        keep: bool,
    },
    /// Checks and shows configurations.
    #[command(subcommand, after_help = "Example: hookgate config check hookgate.yaml")]
    Config(config::ConfigCommand),
    /// Explains error codes: meaning, status, who failed, what to do.
    ///
    /// docs/errors.md contains the same table. A code is also found by its name in OpenAI's API, such as model_not_found.
    #[command(after_help = "Example: hookgate errors PLUGIN_TIMEOUT\n\n\
                            Exit codes: 0 explained, 2 there is no such code.")]
    Errors {
        /// The code. Default: all codes.
        code: Option<String>,
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Explains which steps a tenant's call runs and why: bindings, conditions, time budget.
    ///
    /// Reads a configuration, or asks a running gateway, which knows its plugins. No plugin is called, and no config
    /// value is shown. Attributes that you don't give are absent from the call, and conditions on them count as
    /// matched.
    ///
    /// With --surface llm it explains what the LLM proxy does for the tenant: how answers are
    /// streamed and why, which models there are, what is refused, and the entry of `llm.allow` that lets it pass. No
    /// provider is asked.
    #[command(
        after_help = "Example: hookgate explain --config hookgate.yaml --tenant acme --point before_tool_call \
                            --tool fs.read\n\n\
                            Exit codes: 0 explained, 1 the gateway can't be reached or refuses, 2 invalid \
                            configuration or usage."
    )]
    Explain(Box<explain::ExplainArgs>),
    /// Shows recent events of a gateway process, and with --follow new ones: plugins going up and down, new
    /// snapshots, refused callers, and calls that did not simply continue.
    ///
    /// These are the log lines that have an `event`, regardless of `log.level`. They come from one process: with
    /// several replicas, the one that answers.
    #[command(after_help = "Example: hookgate events --follow --event 'plugin.*' --token-file token.txt\n\n\
                            Exit codes: 0 shown, or ended by Ctrl-C, 1 the gateway can't be reached or refuses, 2 \
                            invalid usage.")]
    Events(Box<events::EventsArgs>),
    /// Shows the state of a running gateway: readiness, the active revision, what is pending or rejected and why, and
    /// its database.
    ///
    /// It describes one process: with several replicas, the one that answers.
    #[command(after_help = "Example: hookgate status --addr unix:///run/hookgate/admin.sock\n\n\
                            Exit codes: 0 shown, ready or not, 1 the gateway can't be reached or refuses, 2 invalid \
                            usage.")]
    Status(status::StatusArgs),
    /// Makes a running gateway reload its configuration, and waits for the result.
    ///
    /// Does the same as SIGHUP, and reports the result. It affects one process: with several replicas, the one that
    /// answers.
    #[command(
        after_help = "Example: hookgate reload --addr unix:///run/hookgate/admin.sock --reason 'new key'\n\n\
                            Exit codes: 0 the configuration is active, 1 it is pending or rejected, or the gateway \
                            can't be reached, 2 invalid usage."
    )]
    Reload(process_ops::Reload),
    /// Inspects tokens, and makes them if the configuration holds a shared secret.
    #[command(subcommand, after_help = "Example: hookgate token mint --config hookgate.yaml --tenant acme")]
    Token(token::TokenCommand),
    /// Prints what makes an unmodified client use the gateway for its models: the variables for a shell.
    ///
    /// A POSIX shell sets them with `eval "$(hookgate env ...)"`. They contain a token, made like that of `hookgate token
    /// mint`. The configuration must have `llm`, with an upstream of the client's API and a rule for a model that the
    /// tenant may name.
    #[command(after_help = "Example: hookgate env openai --config hookgate.yaml --tenant acme\n\n\
                            Exit codes: 0 printed, 1 the token can't be made, or the gateway has no models for the \
                            client, 2 invalid configuration or usage.")]
    Env(Box<env::EnvArgs>),
    /// Asks a gateway about a token: tenant, operator, scopes, expiry, and the steps of its calls.
    #[command(
        after_help = "Example: hookgate whoami --addr http://127.0.0.1:8080 --token-file token.txt\n\n\
                            Exit codes: 0 shown, 1 the token is refused or the gateway can't be reached, 2 invalid \
                            usage."
    )]
    Whoami {
        /// How long to wait for the answer; 1ms to 60s.
        #[arg(long, default_value = "15s", value_parser = client::patience)]
        timeout: Span,
        /// Output format; json prints the answer unchanged.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
        #[command(flatten)]
        gateway: client::DataPortArgs,
    },
    /// Lists the tools that the tenant's plugins provide, as an agent gets them.
    ///
    /// An agent offers them to its model. Of the descriptions, it shows the first lines; `--output json` has them whole,
    /// with the schemas of the arguments.
    #[command(after_help = "Example: hookgate tools --addr http://127.0.0.1:8080 --token-file token.txt\n\n\
                            Exit codes: 0 listed, 1 the token is refused or the gateway can't be reached, 2 invalid \
                            usage.")]
    Tools {
        /// How long to wait for the answer; 1ms to 60s.
        #[arg(long, default_value = "15s", value_parser = client::patience)]
        timeout: Span,
        /// Output format; json prints the answer unchanged.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
        #[command(flatten)]
        gateway: client::DataPortArgs,
    },
    /// Manages named gateway profiles: addresses, and where the tokens are.
    ///
    /// They are in `hookgate/config.yaml` under XDG_CONFIG_HOME, else under ~/.config.
    #[command(
        subcommand,
        after_help = "Example: hookgate profile set local --admin unix:///run/hookgate/admin.sock"
    )]
    Profile(profile::ProfileCommand),
    /// Calls a gateway at one extension point, as an agent would, and shows the decision.
    ///
    /// The payload comes from flags, or as a whole from a file or standard input. JSON is passed on byte for byte.
    #[command(
        after_help = "Example: hookgate call before_tool_call --tool fs.read --args '{\"path\": \"/etc/hosts\"}'\n\n\
                            Exit codes: 0 continue, 2 invalid usage, 3 block, 4 no decision: an error, or no \
                            answer, 5 a plugin's result, only with --takes-results."
    )]
    Call(Box<call::CallArgs>),
    /// Calls a gateway at one lifecycle hook, as an agent would, and shows what plugins contribute.
    ///
    /// Contributions are shown in the order of the chain. Long values are cut short; `--output json` has them whole.
    #[command(
        after_help = "Example: hookgate call-hook recall --body '{\"message\": \"Where did we leave off?\"}'\n\n\
                            Exit codes: 0 answered, even if no plugin contributes, 2 invalid usage, 4 no result: an \
                            error, or no answer."
    )]
    CallHook(Box<call_hook::HookCallArgs>),
    /// Checks whether a gateway is ready, for containers without a shell.
    ///
    /// Prints nothing if it is. Waits at most 3 s.
    #[command(after_help = "Example: hookgate probe --addr 127.0.0.1:9090\n\n\
                            Exit codes: 0 ready (with --live: alive), 1 not ready or no answer, 2 invalid usage.")]
    Probe {
        /// The gateway's `server.ops_addr`.
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9090")]
        addr: String,
        /// Asks /livez (is the process alive) instead of /readyz.
        #[arg(long)]
        live: bool,
    },
    /// Exports the .proto files, for plugins and agents in languages without an SDK.
    #[command(subcommand, after_help = "Example: hookgate proto export proto")]
    Proto(proto::ProtoCommand),
    /// Prints a shell completion script.
    #[command(after_help = "Example: hookgate completions bash > /etc/bash_completion.d/hookgate\n\n\
                            Exit codes: 0 printed, 2 invalid usage.")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes a manual page for every subcommand.
    #[command(after_help = "Example: hookgate man /usr/local/share/man/man1\n\n\
                            Exit codes: 0 written, 1 the folder can't be written.")]
    Man {
        /// The folder, created if missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Cli {
    /// Runs the command.
    pub async fn run(self) -> Exit {
        match self.command {
            Command::Serve { config, dev } => serve::run(config.as_deref(), dev).await,
            Command::Init { folder } => init::run(&folder),
            Command::Import(command) => import::run(&command),
            Command::New(command) => new::run(&command),
            Command::Plugin(command) => plugin::run(command).await,
            Command::Runner(command) => runner::run(command).await,
            Command::Conformance(asked) => conformance::run(*asked).await,
            Command::Tenant(command) => registry::tenant::run(command).await,
            Command::Binding(command) => registry::binding::run(command).await,
            Command::Upstream(command) => registry::upstream::run(command).await,
            Command::Model(command) => registry::model::run(command).await,
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
            Command::Env(args) => env::run(*args).await,
            Command::Whoami { timeout, output, gateway } => whoami::run(&gateway, timeout, output).await,
            Command::Tools { timeout, output, gateway } => tools::run(&gateway, timeout, output).await,
            Command::Profile(command) => profile::run(command),
            Command::Call(call) => call::run(&call).await,
            Command::CallHook(call) => call_hook::run(&call).await,
            Command::Probe { addr, live } => probe::run(&addr, live).await,
            Command::Proto(command) => proto::run(&command),
            Command::Completions { shell } => shell::completions(shell),
            Command::Man { folder } => shell::man(&folder),
        }
    }
}

/// Result of a command.
#[derive(Debug)]
pub struct Exit {
    code: u8,
    /// Printed to standard error.
    message: Option<String>,
}

impl Exit {
    /// 0: success.
    pub fn ok() -> Self {
        Exit { code: 0, message: None }
    }

    /// 1: failure.
    pub fn failure(message: impl Into<String>) -> Self {
        Exit::with_message(1, message.into())
    }

    /// 2: invalid configuration or arguments.
    pub fn usage(message: impl Into<String>) -> Self {
        Exit::with_message(2, message.into())
    }

    /// 2: mistakes in the configuration, each with its place in the file.
    pub fn problems(problems: &Problems) -> Self {
        Exit::listed(2, problems.to_string())
    }

    /// `code` without a message: standard output already has it all.
    fn already_reported(code: u8) -> Self {
        Exit { code, message: None }
    }

    /// Several problems, each with its place. Printed without the program's name, which would set the first one
    /// apart.
    fn listed(code: u8, list: String) -> Self {
        Exit { code, message: Some(list) }
    }

    /// 4: a required plugin is missing.
    pub fn plugin_missing(message: impl Into<String>) -> Self {
        Exit::with_message(4, message.into())
    }

    /// A sentence, printed after the program's name.
    fn with_message(code: u8, message: String) -> Self {
        Exit { code, message: Some(format!("hookgate: {message}")) }
    }

    /// 4: no decision at a point, or no result of a hook.
    fn no_decision(message: impl Into<String>) -> Self {
        Exit::with_message(4, message.into())
    }

    /// Prints the error after the log lines and returns the exit code. Returns even if nobody reads the output, as in
    /// `2>&1 | head`: the exit code tells it too.
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            telemetry::say(&message);
        }
        telemetry::flush_log(if self.code == 0 { app::MAX_LOG_FLUSH } else { MAX_FAILURE_LOG_FLUSH });
        ExitCode::from(self.code)
    }
}
