//! `hookgate model`: the rules of a registry that say where a model's requests go.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{
    Exit, payload,
    registry::{
        ObjectWriteArgs, Remove, ShowArgs, ended, render,
        selector::ListArgs,
        set::{self, ObjectChanges},
    },
};
use hookgate::core::object::ObjectKind;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Lists the rules, in the order in which they are tried.
    #[command(after_help = "Example: hookgate model list --upstream openai\n\n\
                            Exit codes: 0 listed, 1 the gateway can't be reached or refuses, 2 invalid usage.")]
    List(Box<ListModelsArgs>),
    /// Shows one rule and its definition.
    #[command(after_help = "Example: hookgate model show fast\n\n\
                            Exit codes: 0 shown, 1 there is no such rule, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Show(Box<ShowArgs>),
    /// Creates a rule, or changes the given members.
    ///
    /// A new rule needs --match and --upstream.
    #[command(
        after_help = "Example: hookgate model set fast --match fast --upstream vllm --as Qwen/Qwen3-32B --priority 5\n\n\
                            Exit codes: 0 written or unchanged, 1 refused, or the version has changed, 2 invalid \
                            usage, or the result would be invalid."
    )]
    Set(Box<SetModelArgs>),
    /// Removes a rule.
    #[command(alias = "delete")]
    #[command(after_help = "Example: hookgate model remove fast --dry-run\n\n\
                            Exit codes: 0 removed, 1 there is no such rule, or it can't be removed, 2 invalid \
                            usage, or the result would be invalid.")]
    Remove(Box<Remove>),
}

/// Filters.
#[derive(Debug, Args)]
pub(crate) struct ListModelsArgs {
    /// Only rules that name this upstream.
    #[arg(long)]
    upstream: Option<String>,
    #[command(flatten)]
    all: ListArgs,
}

/// The members to write.
#[derive(Debug, Args)]
pub(crate) struct SetModelArgs {
    /// Name of the rule.
    name: String,
    /// Glob on the model that a request names.
    #[arg(long = "match", value_name = "GLOB")]
    pattern: Option<String>,
    /// The upstream that gets the requests.
    #[arg(long)]
    upstream: Option<String>,
    /// The model's name at the provider.
    #[arg(long = "as", value_name = "MODEL")]
    upstream_model: Option<String>,
    /// Position among the rules: the lowest is tried first. Rules of a file have 10, 20 and so on; a rule without a
    /// priority has 5000.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// A label, for lists and for `hookgate apply --prune`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// File with further members, written as in the configuration; null removes a member; - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

pub(crate) async fn run(command: ModelCommand) -> Exit {
    ended(match command {
        ModelCommand::List(list) => self::list(*list).await,
        ModelCommand::Show(show) => super::show(ObjectKind::Model, *show).await,
        ModelCommand::Set(set) => self::set(*set).await,
        ModelCommand::Remove(remove) => super::remove(ObjectKind::Model, *remove, false).await,
    })
}

async fn list(list: ListModelsArgs) -> Result<Exit, Exit> {
    let (registry, models) = list.all.find(ObjectKind::Model, [("upstream", list.upstream)]).await?;
    Ok(registry.print(&models, || render::models(&models)))
}

async fn set(set: SetModelArgs) -> Result<Exit, Exit> {
    let mut named = ObjectChanges::in_file(set.file.as_ref())?;
    for (key, value) in set.labels {
        named.set(&["labels", &key], value);
    }
    named.set_some(&["match"], set.pattern);
    named.set_some(&["upstream"], set.upstream);
    named.set_some(&["as"], set.upstream_model);
    named.set_some(&["priority"], set.priority);
    set::set((ObjectKind::Model, &set.name), named, set.write).await
}
