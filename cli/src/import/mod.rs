//! `hookgate import`: writes files for the gateway from the configuration of another system. All files or none, never
//! over another file.

use clap::Subcommand;

use crate::Exit;

mod agent_file;
mod builtins;
mod dexto;
mod plan;
mod references;
mod report;
mod written_files;

#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// Imports the plugins of a Dexto agent's file.
    ///
    /// Writes a folder with hookgate.yaml, and runner.yaml for the plugins that have a module: `hookgate-runner`, of the
    /// package @hookgate/runner, serves these unmodified. Tells what is not carried over or works differently, and
    /// the next commands. If a plugin can't be carried over, or one of the files already exists, nothing is written.
    #[command(after_help = "Example: hookgate import dexto agent.yml --out-dir gateway\n\n\
                            Exit codes: 0 written, 1 a file already exists or the folder can't be written, 2 invalid \
                            usage, or a mistake in the agent's file.")]
    Dexto(Box<dexto::ImportDextoArgs>),
}

pub(super) fn run(command: &ImportCommand) -> Exit {
    let ImportCommand::Dexto(args) = command;
    dexto::run(args)
}
