//! Reads and writes the objects of a registry over the admin API. The gateway validates every write; this module
//! sends it with the version that was read as a precondition, and renders the result.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;

use crate::{
    Exit,
    client::AdminPortArgs,
    output::{Output, printable},
};
use hookgate::core::object::ObjectKind;

pub(super) mod apply;
pub(super) mod approve;
pub(super) mod binding;
mod client;
pub(super) mod model;
pub(super) mod plugin;
mod render;
mod render_write;
pub(super) mod revision;
mod selector;
mod set;
pub(super) mod tenant;
pub(super) mod upstream;
mod upstream_check;

use client::{Registry, Write};

/// The gateway and the output format.
#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    /// Output format; json prints the answer unchanged.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

/// Options of every write.
#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// Shows what would be written, without writing it.
    #[arg(long)]
    dry_run: bool,
    /// Reason, shown in the revision history; at most 500 bytes.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Options of a write of one object.
#[derive(Debug, Args)]
pub(super) struct ObjectWriteArgs {
    /// Writes only if the object has this version; 0 means that it must not exist. Default: the version read just
    /// before.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u64>,
    #[command(flatten)]
    meant: WriteArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The object to show.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Name of the object.
    name: String,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The object to enable or disable.
#[derive(Debug, Args)]
pub(super) struct SwitchArgs {
    /// Name of the object.
    name: String,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

/// The object to remove.
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// Name of the object.
    name: String,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

async fn show(kind: ObjectKind, show: ShowArgs) -> Result<Exit, Exit> {
    let registry = Registry::connect(show.asked).await?;
    let answer = registry.existing(kind, &show.name).await?;
    Ok(answer.print(registry.output, || render::object(kind, &answer.body), Exit::ok()))
}

async fn remove(kind: ObjectKind, Remove { name, write }: Remove, force: bool) -> Result<Exit, Exit> {
    overwrite(kind, &name, Write::delete(kind, &name).with_bindings(force), write).await
}

async fn switch(kind: ObjectKind, SwitchArgs { name, write }: SwitchArgs, on: bool) -> Result<Exit, Exit> {
    overwrite(kind, &name, Write::switch(kind, &name, on), write).await
}

/// Sends a write of an object that must exist.
async fn overwrite(kind: ObjectKind, name: &str, write: Write, how: ObjectWriteArgs) -> Result<Exit, Exit> {
    let ObjectWriteArgs { expected_version, meant, asked } = how;
    let registry = Registry::connect(asked).await?;
    let version = client::version(&registry.existing(kind, name).await?.body);
    let write = write.with_expected_version(expected_version.unwrap_or(version));
    registry.done(&write, &meant).await
}

fn ended(done: Result<Exit, Exit>) -> Exit {
    done.unwrap_or_else(|exit| exit)
}

/// Asks the person at the terminal, unless `yes` is set.
///
/// # Errors
/// The answer was no, or there is no terminal.
fn confirm(question: &str, yes: bool, output: Output) -> Result<(), Exit> {
    if yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if output != Output::Table || !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Exit::usage(
            "nothing was written: there is no terminal to ask on; give --yes to write it, or --dry-run to preview \
             it",
        ));
    }
    // If the question can't be printed, reading the answer fails too.
    let _ = write!(stderr, "{} [y/N] ", printable(question)).and_then(|()| stderr.flush());
    let mut answer = String::new();
    let is_yes = stdin.read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    if is_yes { Ok(()) } else { Err(Exit::failure("nothing was written")) }
}
