//! `hookgate revision`: the registry's history, and rollback.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    Exit, output,
    registry::{
        ReadArgs, WriteArgs,
        client::{Registry, Write},
        confirm, ended, render, render_write,
    },
};

#[derive(Debug, Subcommand)]
pub(crate) enum RevisionCommand {
    /// Lists the latest revisions, newest first: time, author, changes and reason.
    #[command(after_help = "Example: hookgate revision list --limit 5\n\n\
                            Exit codes: 0 listed, 1 the gateway can't be reached or refuses, 2 invalid usage.")]
    List(Box<ListRevisionsArgs>),
    /// Shows the changes of one revision.
    #[command(after_help = "Example: hookgate revision show 7\n\n\
                            Exit codes: 0 shown, 1 there is no such revision, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Show(Box<ShowRevisionArgs>),
    /// Shows the difference between two revisions.
    #[command(after_help = "Example: hookgate revision diff 3 7\n\n\
                            Exit codes: 0 shown, 1 there is no such revision, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Diff(Box<Diff>),
    /// Rolls everything that the API owns back to a revision, by writing a new revision.
    ///
    /// Shows what would change and asks for confirmation. Objects of the configuration file don't change.
    #[command(
        after_help = "Example: hookgate revision rollback 3 --reason 'the new rule blocks too much'\n\n\
                            Exit codes: 0 written or unchanged, 1 there is no such revision, refused, or you \
                            declined, 2 invalid usage, or the result would be invalid."
    )]
    Rollback(Box<Rollback>),
}

/// How many revisions.
#[derive(Debug, Args)]
pub(crate) struct ListRevisionsArgs {
    /// Number of revisions; 1 to 500.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=500))]
    limit: u64,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The revision to show.
#[derive(Debug, Args)]
pub(crate) struct ShowRevisionArgs {
    /// Number of the revision.
    number: u64,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The two revisions.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// First revision.
    number: u64,
    /// Second revision. Default: the current contents.
    other: Option<u64>,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The rollback.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The revision to roll back to.
    number: u64,
    /// Writes only if this is the latest revision. Default: the latest revision read just before.
    #[arg(long, value_name = "NUMBER")]
    expected_revision: Option<u64>,
    /// Skips the confirmation prompt.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    meant: WriteArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

pub(crate) async fn run(command: RevisionCommand) -> Exit {
    ended(match command {
        RevisionCommand::List(list) => {
            get(list.asked, &format!("/admin/v1/revisions?limit={}", list.limit), render::revisions).await
        }
        RevisionCommand::Show(show) => {
            get(show.asked, &format!("/admin/v1/revisions/{}", show.number), render::revision).await
        }
        RevisionCommand::Diff(diff) => {
            let Diff { number, other, asked } = *diff;
            let to = other.map(|other| format!("?to={other}")).unwrap_or_default();
            get(asked, &format!("/admin/v1/revisions/{number}/diff{to}"), difference).await
        }
        RevisionCommand::Rollback(rollback) => self::rollback(*rollback).await,
    })
}

/// Gets `path`, and prints the answer.
async fn get(asked: ReadArgs, path: &str, table: fn(&Value) -> String) -> Result<Exit, Exit> {
    let registry = Registry::connect(asked).await?;
    let answer = registry.get(path).await?;
    Ok(answer.print(registry.output, || table(&answer.body), Exit::ok()))
}

fn difference(body: &Value) -> String {
    let changes = render_write::changes(&body["changes"]);
    if changes.is_empty() { "No difference.\n".to_owned() } else { changes }
}

async fn rollback(rollback: Rollback) -> Result<Exit, Exit> {
    let Rollback { number, expected_revision, yes, meant, asked } = rollback;
    let registry = Registry::connect(asked).await?;
    let last = match expected_revision {
        Some(expected) => expected,
        None => last(&registry).await?,
    };
    let write =
        Write::post(format!("/admin/v1/revisions/{number}/rollback"), None).with_expected_revision(last);
    let tried = registry.write(&write, &meant.reason, true).await?;
    let shown = || render_write::table(&tried.body);
    if meant.dry_run || render_write::is_empty(&tried.body) {
        return Ok(tried.print(registry.output, shown, render_write::exit(&tried.body)));
    }
    if registry.output == output::Output::Table {
        output::show(&render_write::difference(&tried.body), Exit::ok());
    }
    confirm(&format!("Roll back to revision {number}?"), yes, registry.output)?;
    let done = registry.write(&write, &meant.reason, false).await?;
    Ok(done.print(registry.output, || render_write::end(&done.body), render_write::exit(&done.body)))
}

/// Number of the latest revision, or 0 if there is none.
async fn last(registry: &Registry) -> Result<u64, Exit> {
    let answer = registry.get("/admin/v1/revisions?limit=1").await?;
    Ok(answer.body["revisions"][0]["number"].as_u64().unwrap_or_default())
}
