//! `hookgate tenant`: the tenants of a registry and their limits.

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
use hookgate::{
    config::Rate,
    core::{object::ObjectKind, point::Point},
};

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Lists the tenants.
    #[command(after_help = "Example: hookgate tenant list --selector plan=gold\n\n\
                            Exit codes: 0 listed, 1 the gateway can't be reached or refuses, 2 invalid usage.")]
    List(Box<ListTenantsArgs>),
    /// Shows one tenant and its definition.
    #[command(after_help = "Example: hookgate tenant show acme\n\n\
                            Exit codes: 0 shown, 1 there is no such tenant, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Show(Box<ShowArgs>),
    /// Creates a tenant, or changes the given members.
    #[command(
        after_help = "Example: hookgate tenant set acme --label plan=gold --rate 100/s --reason 'they pay now'\n\n\
                            Exit codes: 0 written or unchanged, 1 refused, or the version has changed, 2 invalid \
                            usage, or the result would be invalid."
    )]
    Set(Box<SetTenantArgs>),
    /// Removes a tenant.
    #[command(alias = "delete")]
    #[command(after_help = "Example: hookgate tenant remove acme --dry-run\n\n\
                            Exit codes: 0 removed, 1 there is no such tenant, or it can't be removed, 2 invalid \
                            usage, or the result would be invalid.")]
    Remove(Box<Remove>),
}

/// Filters.
#[derive(Debug, Args)]
pub(crate) struct ListTenantsArgs {
    /// Only enabled tenants, or only disabled ones.
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    #[command(flatten)]
    all: ListArgs,
}

/// The members to write.
#[derive(Debug, Args)]
pub(crate) struct SetTenantArgs {
    /// Id of the tenant.
    id: String,
    /// A label, for binding selectors; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// Most calls in flight.
    #[arg(long, value_name = "NUMBER")]
    limit_in_flight: Option<u64>,
    /// Most calls per second, minute or hour, such as 100/s.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// The tenant's config for a plugin: a JSON object, or a JSON or YAML file; replaces the previous config; may be
    /// repeated.
    #[arg(long = "config", value_name = "PLUGIN=JSON|@FILE")]
    configs: Vec<String>,
    /// A shared binding to disable for this tenant; may be repeated, and replaces the previous list.
    #[arg(long, value_name = "BINDING")]
    disable: Vec<String>,
    /// Extension points at which calls don't pass without a step, separated by commas; replaces the previous list.
    #[arg(long, value_name = "POINT", value_delimiter = ',', value_parser = payload::points())]
    require_steps: Vec<Point>,
    /// Whether the tenant's calls are served.
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    /// File with further members, written as in the configuration; null removes a member; - reads standard input.
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
    let own = [("enabled", list.enabled.map(|enabled| enabled.to_string()))];
    let (registry, tenants) = list.all.find(ObjectKind::Tenant, own).await?;
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
                // The value is left out: it may be a secret.
                Exit::usage("--config must be PLUGIN=JSON or PLUGIN=@FILE")
            })?;
        named.set_document(&["config", plugin], "--config", Some(&text.to_owned()))?;
    }
    if !set.disable.is_empty() {
        named.set(&["disable"], set.disable);
    }
    if !set.require_steps.is_empty() {
        named.set(
            &["require_steps"],
            set.require_steps.iter().map(|point| point.as_str()).collect::<Vec<_>>(),
        );
    }
    named.set_some(&["enabled"], set.enabled);
    set::set((ObjectKind::Tenant, &set.id), named, set.write).await
}
