//! `hookgate config`: what is wrong with a configuration, what holds in it, and what it may say.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Exit, output, output::Output};
use hookgate::config::{self, Config, Span};

mod check;
mod connect;
mod show;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Says everything that is wrong with a configuration.
    ///
    /// Does all that `serve` does before it listens: reads the file, the environment, keys and certificates, and builds
    /// the routing. Nothing is listened on and, without --connect, nobody is called and no registry is read.
    #[command(after_help = "Example: hookgate config check hookgate.yaml --connect\n\n\
                            Exit codes: 0 valid, 2 invalid; with --connect also 4 a plugin that the file requires \
                            isn't ready, 1 another plugin or one of several endpoints isn't ready, or the store \
                            can't be reached.")]
    Check {
        /// The configuration, see docs/configuration.md.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Connects to every plugin as well: dials, describes, initialises, asks for its health, and lets go of it. Reads
        /// the registry that `store` names first, with its plugins, and writes nothing there.
        #[arg(long)]
        connect: bool,
        /// How long plugins may take to answer that.
        #[arg(long, value_name = "TIME", default_value = "10s", requires = "connect")]
        wait: Span,
        /// Output format; json and yaml print a list of mistakes, with --connect an object of `mistakes`, `store` and
        /// `plugins`.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Shows the configuration that holds: file, environment and defaults, each value with where it comes from.
    ///
    /// Nothing is shown that may be a secret: references stand as they were written, and `***` for secrets and for text
    /// and numbers in a plugin's or tenant's `config`.
    #[command(after_help = "Example: hookgate config show --config hookgate.yaml --output yaml\n\n\
                            Exit codes: 0 shown, 2 invalid configuration.")]
    Show {
        /// The configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The form: json has objects of `value` and `origin`, yaml the origins as comments.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Prints the JSON Schema of hookgate.yaml, for editors.
    ///
    /// Editors with a YAML language server find it through a first line `# yaml-language-server:
    /// $schema=hookgate.schema.json` in the configuration.
    #[command(after_help = "Example: hookgate config schema > hookgate.schema.json\n\n\
                            Exit codes: 0 printed, 2 invalid usage.")]
    Schema,
}

pub(super) async fn run(command: ConfigCommand) -> Exit {
    match command {
        ConfigCommand::Check { file, connect: true, wait, output } => {
            connect::run(&file, wait.0, output).await
        }
        ConfigCommand::Check { file, output, .. } => check::run(&file, output).await,
        ConfigCommand::Show { config, output } => show::run(&config, output),
        ConfigCommand::Schema => schema(),
    }
}

/// What is said of a registry that a start would read, and a command that looks at the file alone doesn't.
pub(super) fn unread(config: &Config) -> Option<String> {
    let store = config.store.as_ref()?;
    Some(format!("the registry at {} was not looked at", store.url.display()))
}

fn schema() -> Exit {
    output::print(&format!("{:#}\n", config::schema()), Exit::ok())
}
