//! Plugins, tenants and bindings over the admin API: read, changed, tried out, and the way back. What may be written is the
//! gateway's to say; here it is asked, upon the version that was read, and what it says is laid out.

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
pub(super) mod plugin;
mod render;
mod render_write;
pub(super) mod revision;
mod selector;
mod set;
pub(super) mod tenant;

use client::{Registry, Write};

/// The gateway, and the form of its answer.
#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    /// Output format; json prints the answer unchanged.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

/// How a write is meant.
#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// Shows what would be written, without writing it.
    #[arg(long)]
    dry_run: bool,
    /// Reason, shown in the revision history; at most 500 bytes.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// A write of one object.
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

/// One object to show.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Name of the object.
    name: String,
    #[command(flatten)]
    asked: ReadArgs,
}

/// One object to switch on or off.
#[derive(Debug, Args)]
pub(super) struct SwitchArgs {
    /// Name of the object.
    name: String,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

/// One object to remove.
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
    let ObjectWriteArgs { expected_version, meant, asked } = write;
    let registry = Registry::connect(asked).await?;
    let version = client::version(&registry.existing(kind, &name).await?.body);
    let write = Write::delete(kind, &name)
        .with_expected_version(expected_version.unwrap_or(version))
        .with_bindings(force);
    registry.done(&write, &meant).await
}

async fn switch(kind: ObjectKind, SwitchArgs { name, write }: SwitchArgs, on: bool) -> Result<Exit, Exit> {
    let ObjectWriteArgs { expected_version, meant, asked } = write;
    let registry = Registry::connect(asked).await?;
    let version = client::version(&registry.existing(kind, &name).await?.body);
    let write = Write::switch(kind, &name, on).with_expected_version(expected_version.unwrap_or(version));
    registry.done(&write, &meant).await
}

/// What came of it, whether it was done or not.
fn ended(done: Result<Exit, Exit>) -> Exit {
    done.unwrap_or_else(|exit| exit)
}

/// Asks the person at the terminal; `yes`: needn't.
///
/// # Errors
/// They said no, or there is nobody to ask.
fn confirm(question: &str, yes: bool, output: Output) -> Result<(), Exit> {
    if yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if output != Output::Table || !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Exit::usage(
            "nothing was written, for nobody can be asked: give --yes to write it, or --dry-run to look at it",
        ));
    }
    // Where it can't be asked, there is no answer either.
    let _ = write!(stderr, "{} [y/N] ", printable(question)).and_then(|()| stderr.flush());
    let mut answer = String::new();
    let is_yes = stdin.read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    if is_yes { Ok(()) } else { Err(Exit::failure("nothing was written")) }
}
