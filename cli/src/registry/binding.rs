//! `hookgate binding`: which plugin runs for which tenants, in which order, and what it may do.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use hookgate_proto::HookName;
use serde_json::{Map, Value};

use crate::{
    Exit, payload,
    registry::{
        ObjectWriteArgs, ReadArgs, Remove, ShowArgs, SwitchArgs, WriteArgs,
        client::{Registry, Write},
        ended, render,
        selector::ListArgs,
        set::{self, ObjectChanges},
    },
};
use hookgate::{
    config::Span,
    core::{object::ObjectKind, point::Point},
};

#[derive(Debug, Subcommand)]
pub(crate) enum BindingCommand {
    /// Lists the bindings.
    #[command(after_help = "Example: hookgate binding list --plugin content-policy\n\n\
                            Exit codes: 0 listed, 1 the gateway can't be reached or refuses, 2 invalid usage.")]
    List(Box<ListBindingsArgs>),
    /// Shows one binding and its definition.
    #[command(after_help = "Example: hookgate binding show policy-of-acme\n\n\
                            Exit codes: 0 shown, 1 there is no such binding, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Show(Box<ShowArgs>),
    /// Creates a binding, or changes the given members.
    ///
    /// A new binding needs --plugin, --priority and one of --tenant, --all and --selector.
    #[command(group(ArgGroup::new("whom").args(["tenant", "all", "selector"]).multiple(false)))]
    #[command(
        after_help = "Example: hookgate binding set policy --plugin content-policy --all --priority 10 --mode observe\n\n\
                            Exit codes: 0 written or unchanged, 1 refused, or the version has changed, 2 invalid \
                            usage, or the result would be invalid."
    )]
    Set(Box<SetBindingArgs>),
    /// Enables a binding.
    #[command(after_help = "Example: hookgate binding enable policy\n\n\
                            Exit codes: 0 written or unchanged, 1 there is no such binding, or refused, 2 invalid \
                            usage, or the result would be invalid.")]
    Enable(Box<SwitchArgs>),
    /// Disables a binding: it stays in the registry, but runs in no plan.
    #[command(after_help = "Example: hookgate binding disable policy --reason 'too many false alarms'\n\n\
                            Exit codes: 0 written or unchanged, 1 there is no such binding, or refused, 2 invalid \
                            usage, or the result would be invalid.")]
    Disable(Box<SwitchArgs>),
    /// Bypasses a binding for one tenant for a limited time (break glass), even one that the file owns.
    ///
    /// The binding applies again when the time is over. Bypassing it again sets a new end.
    #[command(
        after_help = "Example: hookgate binding bypass policy --tenant acme --for 15m --reason 'INC-2041: blocks every order'\n\n\
                            Exit codes: 0 written, 1 there is no such binding or tenant, or refused, 2 invalid \
                            usage, or the binding doesn't apply to the tenant."
    )]
    Bypass(Box<Bypass>),
    /// Removes a binding.
    #[command(alias = "delete")]
    #[command(after_help = "Example: hookgate binding remove policy\n\n\
                            Exit codes: 0 removed, 1 there is no such binding, or it can't be removed, 2 invalid \
                            usage, or the result would be invalid.")]
    Remove(Box<Remove>),
}

/// Filters.
#[derive(Debug, Args)]
pub(crate) struct ListBindingsArgs {
    /// Only bindings of this plugin.
    #[arg(long)]
    plugin: Option<String>,
    /// Only bindings for this tenant, or * for global bindings.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    all: ListArgs,
}

/// The binding, the tenant and the duration.
#[derive(Debug, Args)]
pub(crate) struct Bypass {
    /// Name of the binding.
    name: String,
    /// The tenant whose chains skip the binding.
    #[arg(long, value_name = "ID")]
    tenant: String,
    /// Duration, 1s to 24h.
    #[arg(long = "for", value_name = "TIME", required_unless_present = "end")]
    lasts: Option<Span>,
    /// Ends the bypass now.
    #[arg(long, conflicts_with = "lasts")]
    end: bool,
    /// Reason, shown with the bypass and in the revision history; at most 500 bytes.
    #[arg(long, value_name = "TEXT", required_unless_present = "end")]
    reason: Option<String>,
    /// Shows what would be written, without writing it.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The members to write.
#[derive(Debug, Args)]
pub(crate) struct SetBindingArgs {
    /// Name of the binding.
    name: String,
    /// The plugin to run.
    #[arg(long)]
    plugin: Option<String>,
    /// Applies to this tenant only.
    #[arg(long)]
    tenant: Option<String>,
    /// Applies to every tenant.
    #[arg(long)]
    all: bool,
    /// Applies to tenants with this label; repeat it to require several labels.
    #[arg(long, value_name = "KEY=VALUE", value_parser = payload::label)]
    selector: Vec<(String, String)>,
    /// A label of the binding itself, for lists and for `hookgate apply --prune`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// Position in the chain: the lowest runs first.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// What the plugin may do.
    #[arg(long, value_parser = ["enforce", "advise", "observe"])]
    mode: Option<String>,
    /// What happens if the step fails.
    #[arg(long, value_parser = ["fail", "skip"])]
    on_error: Option<String>,
    /// Extension points, separated by commas; replaces the previous list.
    #[arg(long, value_name = "POINT", value_delimiter = ',', value_parser = payload::points())]
    points: Vec<Point>,
    /// Lifecycle hooks instead of points, separated by commas; replaces the previous list. The mode is advise or
    /// observe there.
    #[arg(
        long,
        value_name = "HOOK",
        value_delimiter = ',',
        value_parser = payload::hook,
        conflicts_with = "points"
    )]
    hooks: Vec<HookName>,
    /// Globs on names of the plugin's tools that the binding doesn't provide, separated by commas; replaces the previous
    /// list.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    deny_tools: Vec<String>,
    /// Timeout of the step, 10ms to 60s.
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Condition: `tools`, `agents`, `models` or `label.KEY` with a glob, or `contains` or `regex` with a text; may
    /// be repeated, and replaces all previous conditions. One value of each key must match.
    #[arg(long = "match", value_name = "KEY=GLOB", value_parser = payload::label)]
    conditions: Vec<(String, String)>,
    /// The plugin's config for every tenant: a JSON object, or a JSON or YAML file; replaces the previous config.
    #[arg(long, value_name = "JSON|@FILE")]
    config: Option<String>,
    /// File with further members, written as in the configuration; null removes a member; - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

pub(crate) async fn run(command: BindingCommand) -> Exit {
    ended(match command {
        BindingCommand::List(list) => self::list(*list).await,
        BindingCommand::Show(show) => super::show(ObjectKind::Binding, *show).await,
        BindingCommand::Set(set) => self::set(*set).await,
        BindingCommand::Enable(switch) => super::switch(ObjectKind::Binding, *switch, true).await,
        BindingCommand::Disable(switch) => super::switch(ObjectKind::Binding, *switch, false).await,
        BindingCommand::Bypass(bypass) => self::bypass(*bypass).await,
        BindingCommand::Remove(remove) => super::remove(ObjectKind::Binding, *remove, false).await,
    })
}

async fn list(list: ListBindingsArgs) -> Result<Exit, Exit> {
    let own = [("plugin", list.plugin), ("tenant", list.tenant)];
    let (registry, mut bindings) = list.all.find(ObjectKind::Binding, own).await?;
    let mut bypasses = registry.bypasses().await?;
    let names: Vec<_> = bindings["bindings"].as_array().into_iter().flatten().map(|of| &of["name"]).collect();
    bypasses.retain(|bypass| names.contains(&&bypass["binding"]));
    if !bypasses.is_empty() {
        bindings["bypasses"] = bypasses.into();
    }
    Ok(registry.print(&bindings, || render::bindings(&bindings)))
}

async fn bypass(bypass: Bypass) -> Result<Exit, Exit> {
    let registry = Registry::connect(bypass.asked).await?;
    let write = Write::bypass(&bypass.name, &bypass.tenant, bypass.lasts);
    let meant = WriteArgs { dry_run: bypass.dry_run, reason: bypass.reason.unwrap_or_default() };
    registry.done(&write, &meant).await
}

async fn set(set: SetBindingArgs) -> Result<Exit, Exit> {
    let mut named = ObjectChanges::in_file(set.file.as_ref())?;
    named.set_some(&["plugin"], set.plugin);
    if let Some(tenant) = set.tenant.or_else(|| set.all.then(|| "*".to_owned())) {
        named.set(&["tenant"], tenant);
        named.set(&["selector"], Value::Null);
    }
    if !set.selector.is_empty() {
        let labels = set.selector.into_iter().map(|(key, value)| (key, value.into()));
        named.set_whole(&["selector"], labels.collect());
        named.set(&["tenant"], Value::Null);
    }
    for (key, value) in set.labels {
        named.set(&["labels", &key], value);
    }
    named.set_some(&["priority"], set.priority);
    named.set_some(&["mode"], set.mode);
    named.set_some(&["on_error"], set.on_error);
    if !set.points.is_empty() {
        named.set(&["points"], set.points.iter().map(|point| point.as_str()).collect::<Vec<_>>());
        named.set(&["hooks"], Value::Null);
    }
    if !set.hooks.is_empty() {
        named.set(&["hooks"], set.hooks.iter().map(HookName::as_str).collect::<Vec<_>>());
        named.set(&["points"], Value::Null);
    }
    if !set.deny_tools.is_empty() {
        named.set(&["deny_tools"], set.deny_tools);
    }
    named.set_some(&["timeout"], set.timeout.map(|timeout| timeout.to_string()));
    if !set.conditions.is_empty() {
        named.set_whole(&["match"], conditions(&set.conditions)?);
    }
    named.set_document(&["config"], "--config", set.config.as_ref())?;
    set::set((ObjectKind::Binding, &set.name), named, set.write).await
}

/// `--match` in the form of the member `match`.
fn conditions(typed: &[(String, String)]) -> Result<Map<String, Value>, Exit> {
    let mut conditions = ObjectChanges::default();
    let mut paths: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for (key, value) in typed {
        let path = match key.as_str() {
            "tools" | "agents" | "agent_paths" | "models" => vec![key.as_str()],
            "contains" | "regex" => vec!["text", key],
            _ => match key.strip_prefix("label.") {
                Some(label) if !label.is_empty() => vec!["labels", label],
                _ => {
                    return Err(Exit::usage(
                        "--match must be KEY=GLOB with the key tools, agents, agent_paths, models, label.KEY, contains or regex",
                    ));
                }
            },
        };
        match paths.iter_mut().find(|(known, _)| *known == path) {
            Some((_, values)) => values.push(value),
            None => paths.push((path, vec![value])),
        }
    }
    for (path, values) in paths {
        conditions.set(&path, values);
    }
    Ok(match conditions.object() {
        Value::Object(conditions) => conditions,
        _ => Map::new(),
    })
}
