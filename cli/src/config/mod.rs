//! `hookgate config`: checks a configuration, shows the effective one, and prints its schema.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Exit, output, output::Output};
use hookgate::config::{self, Config, Span};

mod check;
mod connect;
mod show;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Reports every mistake in a configuration.
    ///
    /// Does everything that `serve` does before it listens: reads the file, the environment, keys and certificates,
    /// and builds the routing. It opens no port and, without --connect, contacts no plugin and no registry.
    #[command(alias = "validate")]
    #[command(after_help = "Example: hookgate config check hookgate.yaml --connect\n\n\
                            Exit codes: 0 valid, 2 invalid; with --connect also 4 a plugin that the file requires \
                            isn't ready, 1 another plugin or one of several endpoints isn't ready, or the store \
                            can't be reached.")]
    Check {
        /// The configuration, see docs/configuration.md.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also connects to every plugin: Describe, Initialize, health check and Shutdown. First reads the registry
        /// of `store`, including its plugins, without writing to it.
        #[arg(long)]
        connect: bool,
        /// How long to wait for the plugins.
        #[arg(long, value_name = "TIME", default_value = "10s", requires = "connect")]
        wait: Span,
        /// Output format; json and yaml print a list of mistakes, with --connect an object of `mistakes`, `store` and
        /// `plugins`.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Shows the effective configuration: file, environment and defaults, each value with its origin.
    ///
    /// Secrets are not shown: references are printed as written, and `***` replaces secrets as well as text and
    /// numbers in a plugin's or tenant's `config`.
    #[command(after_help = "Example: hookgate config show --config hookgate.yaml --output yaml\n\n\
                            Exit codes: 0 shown, 2 invalid configuration.")]
    Show {
        /// The configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Output format: json prints objects of `value` and `origin`, yaml the origins as comments.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Prints the JSON Schema of hookgate.yaml, for editors.
    ///
    /// Editors with a YAML language server find it through the line `# yaml-language-server:
    /// $schema=hookgate.schema.json` at the top of the configuration.
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

/// The note of commands that read only the file, about the registry that a start would read too.
pub(super) fn unread(config: &Config) -> Option<String> {
    let store = config.store.as_ref()?;
    Some(format!("the registry at {} was not read", store.url.display()))
}

fn schema() -> Exit {
    output::print(&format!("{:#}\n", config::schema()), Exit::ok())
}
