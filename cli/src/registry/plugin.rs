//! `hookgate plugin` for the plugins of a registry: add, change, enable, disable and remove.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    Exit,
    output::{self, Output, columns, printable, text},
    payload,
    registry::{
        ObjectWriteArgs, ReadArgs, Remove, ShowArgs, SwitchArgs, WriteArgs, approve,
        client::{self, Registry, Write},
        confirm, ended, render, render_write,
        selector::ListArgs,
        set::{self, ObjectChanges},
    },
};
use hookgate::{
    config::Span,
    core::object::ObjectKind,
    upstream::{DialErrorKind, Why},
};

/// Filters.
#[derive(Debug, Args)]
pub(crate) struct ListPluginsArgs {
    /// Only plugins in this state, such as `ready` or `refused`.
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    all: ListArgs,
}

/// The members to write.
#[derive(Debug, Args)]
struct PluginMemberArgs {
    /// Address: `unix:///path`, `http://host:port`, `https://host:port` or `dns:///name:port`.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Name of a built-in plugin, in place of an address. The plugin must have the same name.
    #[arg(long, value_name = "NAME", conflicts_with = "endpoint")]
    builtin: Option<String>,
    /// The plugin's processes register their endpoints themselves, in place of an address.
    #[arg(long, conflicts_with_all = ["endpoint", "builtin"])]
    self_registration: bool,
    /// Accepted versions, such as `>=1.2, <2`.
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// A label, for lists and for `hookgate apply --prune`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// Capabilities that the plugin may request, such as `log`, separated by commas or repeated; replaces the previous
    /// list.
    #[arg(long = "grant", value_name = "CAPABILITY", value_delimiter = ',')]
    grants: Vec<String>,
    /// The plugin's config: a JSON object, or a JSON or YAML file; replaces the previous config. Write secrets as
    /// references such as `${NAME}`, which the gateway resolves.
    #[arg(long, value_name = "JSON|@FILE")]
    config: Option<String>,
    /// File with further members, written as in the configuration; null removes a member; - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The plugin to add.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Name of the plugin, in the registry and in its manifest.
    name: String,
    #[command(flatten)]
    members: PluginMemberArgs,
    /// How long to wait until the gateway has connected to it; 0s to 60s. With --self-registration the default is 0s.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "15s",
        default_value_if("self_registration", "true", "0s")
    )]
    wait: Span,
    /// Approves the plugin's manifest without asking, unless you name grants and it asks for more.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    meant: WriteArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The plugin and the members to write.
#[derive(Debug, Args)]
pub(crate) struct SetPluginArgs {
    /// Name of the plugin.
    name: String,
    #[command(flatten)]
    members: PluginMemberArgs,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

/// The plugin to remove.
#[derive(Debug, Args)]
pub(crate) struct PluginRemoveArgs {
    /// Also removes the bindings that use it.
    #[arg(long)]
    force: bool,
    /// Also deletes what the plugin stored in the gateway's database, for every tenant. Works too if the plugin was
    /// removed before.
    #[arg(long)]
    delete_data: bool,
    #[command(flatten)]
    remove: Remove,
}

pub(crate) async fn list(list: ListPluginsArgs) -> Exit {
    ended(listed(list).await)
}

async fn listed(list: ListPluginsArgs) -> Result<Exit, Exit> {
    let (registry, plugins) = list.all.find(ObjectKind::Plugin, [("state", list.state)]).await?;
    Ok(registry.print(&plugins, || render::plugins(&plugins)))
}

pub(crate) async fn show(show: ShowArgs) -> Exit {
    ended(super::show(ObjectKind::Plugin, show).await)
}

pub(crate) async fn switch(switch: SwitchArgs, on: bool) -> Exit {
    ended(super::switch(ObjectKind::Plugin, switch, on).await)
}

pub(crate) async fn remove(remove: PluginRemoveArgs) -> Exit {
    ended(removed(remove).await)
}

async fn removed(remove: PluginRemoveArgs) -> Result<Exit, Exit> {
    let PluginRemoveArgs { force, delete_data, remove } = remove;
    if !delete_data {
        return super::remove(ObjectKind::Plugin, remove, force).await;
    }
    let Remove { name, write: ObjectWriteArgs { expected_version, meant, asked } } = remove;
    let registry = Registry::connect(asked).await?;
    let (mut document, mut table, mut exit) = (json!({}), String::new(), Exit::ok());
    let plugin = registry.find(ObjectKind::Plugin, &name).await?;
    if let Some(plugin) = &plugin {
        let version = expected_version.unwrap_or_else(|| client::version(&plugin.body));
        let write =
            Write::delete(ObjectKind::Plugin, &name).with_bindings(force).with_expected_version(version);
        document = registry.write(&write, &meant.reason, meant.dry_run).await?.body;
        (table, exit) = (render_write::table(&document), render_write::exit(&document));
    }
    let shown = printable(&name);
    if meant.dry_run {
        table += &format!("The data of `{shown}` would be deleted.\n");
        return Ok(output::data(registry.output, &document, || table, exit));
    }
    match registry.delete_data(&name, &meant.reason).await {
        Ok(0) if plugin.is_none() => {
            Ok(Exit::failure(format!("there is no plugin `{shown}`, and no data of it")))
        }
        Ok(entries) => {
            document["deleted_entries"] = entries.into();
            table += &format!("Deleted {entries} entries of the data of `{shown}`.\n");
            Ok(output::data(registry.output, &document, || table, exit))
        }
        Err(undone) => {
            // The plugin was removed all the same.
            if plugin.is_some() {
                let _ = output::data(registry.output, &document, || table, exit);
            }
            Err(undone)
        }
    }
}

pub(crate) async fn set(set: SetPluginArgs) -> Exit {
    let SetPluginArgs { name, members, write } = set;
    let done = async {
        let named = members.into_changes()?;
        set::set((ObjectKind::Plugin, &name), named, write).await
    };
    ended(done.await)
}

pub(crate) async fn add(add: Add) -> Exit {
    ended(added(add).await)
}

impl PluginMemberArgs {
    fn into_changes(self) -> Result<ObjectChanges, Exit> {
        let mut named = ObjectChanges::in_file(self.file.as_ref())?;
        let own = self.self_registration.then_some(Value::Bool(true));
        let builtin = self.builtin.map(Value::from).map(|name| ("builtin", name));
        let endpoint = self.endpoint.map(Value::from).map(|endpoint| ("endpoint", endpoint));
        if let Some((place, value)) = builtin.or(endpoint).or(own.map(|own| ("self_registration", own))) {
            // An entry has one of these.
            for other in ["endpoint", "endpoints", "self_registration", "builtin"] {
                named.set(&[other], Value::Null);
            }
            named.set(&[place], value);
        }
        named.set_some(&["version"], self.version);
        for (key, value) in self.labels {
            named.set(&["labels", &key], value);
        }
        if !self.grants.is_empty() {
            named.set(&["grants"], self.grants);
        }
        named.set_document(&["config"], "--config", self.config.as_ref())?;
        Ok(named)
    }
}

async fn added(add: Add) -> Result<Exit, Exit> {
    let Add { name, members, wait, yes, meant, asked } = add;
    approve::check(wait)?;
    let spec = members.into_changes()?.object();
    let named_grants = spec["grants"].as_array().cloned();
    let registry = Registry::connect(asked).await?;
    if let Some(found) = registry.find(ObjectKind::Plugin, &name).await? {
        let (shown, version) = (printable(&name), client::version(&found.body));
        return Err(Exit::failure(format!(
            "plugin `{shown}` already exists, at version {version}; change it with `hookgate plugin set {shown}`"
        )));
    }
    let write = Write::put(ObjectKind::Plugin, &name, spec).with_expected_version(0);
    if meant.dry_run {
        return registry.done(&write, &meant).await;
    }
    let done = registry.write(&write, &meant.reason, false).await?;
    if registry.output == Output::Table {
        // Whether it is active comes next.
        let difference = render_write::difference(&done.body);
        output::show(&format!("{difference}Written as revision {}.\n\n", done.body["revision"]), Exit::ok());
    }
    let plugin = approve::wait_until_described(&registry, &name, wait).await?.body;
    if let Some(wants) = plugin["pending_manifests"].get(0) {
        if registry.output == Output::Table {
            output::show(&approve::table(wants), Exit::ok());
        }
        // Approval grants all that the plugin asks for, so it must not follow from naming less.
        if let Some(exit) = named_grants.and_then(|named| exit_if_wants_more(&name, &named, wants)) {
            return Ok(output::data(registry.output, &plugin, || columns(&render::described(&plugin)), exit));
        }
        // Without approval it stays pending, which the output says.
        if confirm(&approve::question(&name, wants), yes, registry.output).is_ok() {
            let consent = approve::consent(&name, &plugin, wants);
            approve::carry_out(&registry, &name, &consent, &meant.reason).await?;
        }
    }
    let not_registered = Why::Unreachable(DialErrorKind::NotRegistered).as_str();
    if wait.0.is_zero() && plugin["reason"] == not_registered {
        let table = || columns(&render::described(&plugin));
        return Ok(output::data(registry.output, &plugin, table, Exit::ok()));
    }
    approve::finish(&registry, &name, "added", wait).await
}

/// The exit if the manifest in `wants` asks for capabilities beyond the `named` grants.
fn exit_if_wants_more(name: &str, named: &[Value], wants: &Value) -> Option<Exit> {
    let list = |values: Vec<&Value>| values.into_iter().map(text).collect::<Vec<_>>().join(", ");
    let wanted = wants["accepted"]["capabilities"].as_array().into_iter().flatten();
    let more: Vec<_> = wanted.filter(|wanted| !named.contains(wanted)).collect();
    let name = printable(name);
    (!more.is_empty()).then(|| {
        let granted = match list(named.iter().collect()) {
            named if named.is_empty() => "you grant nothing".to_owned(),
            named => format!("you grant only {named}"),
        };
        let more = list(more);
        Exit::failure(format!(
            "`{name}` was added, and is pending: it asks for {more}, and {granted}\n  = allow all that it \
             asks for with `hookgate plugin approve {name}`, or remove it with `hookgate plugin remove {name}`"
        ))
    })
}
