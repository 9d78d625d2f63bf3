//! `hookgate tenant`: whose calls are served, and under which limits.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{
    Exit, payload,
    registry::{
        ObjectWriteArgs, ReadArgs, Remove, ShowArgs,
        client::Registry,
        ended, render,
        selector::ListFilterArgs,
        set::{self, ObjectChanges},
    },
};
use hookgate::{config::Rate, core::object::ObjectKind};

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Lists the tenants.
    #[command(after_help = "Example: hookgate tenant list --selector plan=gold\n\n\
                            Exit codes: 0 listed, 1 no gateway answers, or it refuses, 2 wrong usage.")]
    List(Box<ListTenantsArgs>),
    /// Shows one tenant as it is written down.
    #[command(after_help = "Example: hookgate tenant show acme\n\n\
                            Exit codes: 0 shown, 1 there is no such tenant, or no gateway answers, 2 wrong usage.")]
    Show(Box<ShowArgs>),
    /// Creates a tenant, or changes what is named of it.
    #[command(
        after_help = "Example: hookgate tenant set acme --label plan=gold --rate 100/s --reason 'they pay now'\n\n\
                            Exit codes: 0 written, or it was so already, 1 refused, or it has another version by now, 2 \
                            wrong usage, or what would come of it is wrong."
    )]
    Set(Box<SetTenantArgs>),
    /// Removes a tenant.
    #[command(after_help = "Example: hookgate tenant remove acme --dry-run\n\n\
                            Exit codes: 0 removed, 1 there is no such tenant, or it may not go, 2 wrong usage, or what \
                            would be left is wrong.")]
    Remove(Box<Remove>),
}

/// Which tenants.
#[derive(Debug, Args)]
pub(crate) struct ListTenantsArgs {
    /// Those that are switched on, or off.
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    #[command(flatten)]
    labelled: ListFilterArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

/// What a tenant is to be.
#[derive(Debug, Args)]
pub(crate) struct SetTenantArgs {
    /// Its id.
    id: String,
    /// A label for selectors of bindings; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// Most calls under way.
    #[arg(long, value_name = "NUMBER")]
    limit_in_flight: Option<u64>,
    /// Most calls per second, minute or hour, such as 100/s.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// What it gives a plugin, in place of what it gave: an object of JSON, or a file of JSON or YAML; may be repeated.
    #[arg(long = "config", value_name = "PLUGIN=JSON|@FILE")]
    configs: Vec<String>,
    /// A binding for several tenants that is switched off for this one; may be repeated, and takes the place of all that
    /// were.
    #[arg(long, value_name = "BINDING")]
    disable: Vec<String>,
    /// Whether its calls are served.
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    /// What else is to change: members as an entry of a configuration has them, null takes one out; - is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

pub(crate) async fn run(command: TenantCommand) -> Exit {
    ended(match command {
        TenantCommand::List(list) => self::list(*list).await,
        TenantCommand::Show(show) => super::show(ObjectKind::Tenant, *show).await,
        TenantCommand::Set(set) => self::set(*set).await,
        TenantCommand::Remove(remove) => super::remove(ObjectKind::Tenant, *remove, false).await,
    })
}

async fn list(list: ListTenantsArgs) -> Result<Exit, Exit> {
    let mut query = list.labelled.query()?;
    query.extend(list.enabled.map(|enabled| ("enabled".to_owned(), enabled.to_string())));
    let registry = Registry::connect(list.asked).await?;
    let tenants = registry.all(ObjectKind::Tenant, &query).await?;
    Ok(registry.print(&tenants, || render::tenants(&tenants)))
}

async fn set(set: SetTenantArgs) -> Result<Exit, Exit> {
    let mut named = ObjectChanges::in_file(set.file.as_ref())?;
    for (key, value) in set.labels {
        named.set(&["labels", &key], value);
    }
    named.set_some(&["limits", "in_flight"], set.limit_in_flight);
    named.set_some(&["limits", "rate"], set.rate.map(|rate| rate.to_string()));
    for text in &set.configs {
        let (plugin, text) =
            text.split_once('=').filter(|(plugin, _)| !plugin.is_empty()).ok_or_else(|| {
                // Without the value, which may be a secret.
                Exit::usage("--config is written PLUGIN=JSON or PLUGIN=@FILE")
            })?;
        named.set_document(&["config", plugin], "--config", Some(&text.to_owned()))?;
    }
    if !set.disable.is_empty() {
        named.set(&["disable"], set.disable);
    }
    named.set_some(&["enabled"], set.enabled);
    set::set((ObjectKind::Tenant, &set.id), named, set.write).await
}
