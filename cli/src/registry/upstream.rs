//! `hookgate upstream`: the providers of models of a registry.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    Exit, payload,
    registry::{
        ObjectWriteArgs, Remove, ShowArgs, ended, render,
        selector::ListArgs,
        set::{self, ObjectChanges},
        upstream_check::{self, CheckUpstreamsArgs},
    },
};
use hookgate::core::object::ObjectKind;

#[derive(Debug, Subcommand)]
pub(crate) enum UpstreamCommand {
    /// Lists the upstreams.
    #[command(after_help = "Example: hookgate upstream list --owner api\n\n\
                            Exit codes: 0 listed, 1 the gateway can't be reached or refuses, 2 invalid usage.")]
    List(Box<ListArgs>),
    /// Shows one upstream and its definition.
    #[command(after_help = "Example: hookgate upstream show openai\n\n\
                            Exit codes: 0 shown, 1 there is no such upstream, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Show(Box<ShowArgs>),
    /// Creates an upstream, or changes the given members.
    ///
    /// A new upstream needs --base-url.
    #[command(
        after_help = "Example: hookgate upstream set openai --base-url https://api.openai.com/v1 --credential '${HOOKGATE_SECRET_OPENAI}'\n\n\
                            Exit codes: 0 written or unchanged, 1 refused, or the version has changed, 2 invalid \
                            usage, or the result would be invalid."
    )]
    Set(Box<SetUpstreamArgs>),
    /// Removes an upstream that no rule for models names.
    #[command(alias = "delete")]
    #[command(after_help = "Example: hookgate upstream remove openai --dry-run\n\n\
                            Exit codes: 0 removed, 1 there is no such upstream, or it can't be removed, 2 invalid \
                            usage, or the result would be invalid.")]
    Remove(Box<Remove>),
    /// Checks whether a running gateway can use its upstreams: it asks each for its models, with the upstream's key.
    ///
    /// A warning names each model that a rule asks for and that the provider doesn't list. Providers don't list all names that they
    /// accept, such as aliases and deployments, so a warning changes no exit code. Tenants' own keys aren't checked. With several
    /// replicas, the one that answers does the check.
    #[command(after_help = "Example: hookgate upstream check openai\n\n\
                            Exit codes: 0 every upstream passed, 1 an upstream failed, there is no such upstream, \
                            or the gateway can't be reached or refuses, 2 invalid usage.")]
    Check(Box<CheckUpstreamsArgs>),
}

/// The members to write.
#[derive(Debug, Args)]
pub(crate) struct SetUpstreamArgs {
    /// Name of the upstream.
    name: String,
    /// The API of the provider.
    #[arg(long, value_parser = ["openai", "anthropic"])]
    format: Option<String>,
    /// URL of the API, within `egress` of the gateway's configuration.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A model in the gateway, in place of a URL.
    #[arg(long, value_name = "NAME", conflicts_with = "base_url", value_parser = ["demo-model"])]
    builtin: Option<String>,
    /// Reference to the provider's key: ${HOOKGATE_SECRET_NAME}, or ${file:PATH} with a file below `secrets.dir`. Each
    /// gateway resolves it.
    #[arg(long, value_name = "REFERENCE")]
    credential: Option<String>,
    /// A label, for lists and for `hookgate apply --prune`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// File with further members, written as in the configuration; null removes a member; - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

pub(crate) async fn run(command: UpstreamCommand) -> Exit {
    ended(match command {
        UpstreamCommand::List(list) => self::list(*list).await,
        UpstreamCommand::Show(show) => super::show(ObjectKind::Upstream, *show).await,
        UpstreamCommand::Set(set) => self::set(*set).await,
        UpstreamCommand::Remove(remove) => super::remove(ObjectKind::Upstream, *remove, false).await,
        UpstreamCommand::Check(check) => upstream_check::run(*check).await,
    })
}

async fn list(list: ListArgs) -> Result<Exit, Exit> {
    let (registry, upstreams) = list.find(ObjectKind::Upstream, []).await?;
    Ok(registry.print(&upstreams, || render::upstreams(&upstreams)))
}

async fn set(set: SetUpstreamArgs) -> Result<Exit, Exit> {
    let mut named = ObjectChanges::in_file(set.file.as_ref())?;
    for (key, value) in set.labels {
        named.set(&["labels", &key], value);
    }
    named.set_some(&["format"], set.format);
    // An entry has one of these.
    for (key, other, value) in [("base_url", "builtin", set.base_url), ("builtin", "base_url", set.builtin)] {
        if let Some(value) = value {
            named.set(&[key], value);
            named.set(&[other], Value::Null);
        }
    }
    named.set_some(&["credential"], set.credential);
    set::set((ObjectKind::Upstream, &set.name), named, set.write).await
}
