//! `hookgate plugin` for plugins of a registry: added and looked at until the gateway knows them, changed, switched,
//! removed.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::{
    Exit,
    output::{self, Output, printable},
    payload,
    registry::{
        ObjectWriteArgs, ReadArgs, Remove, ShowArgs, SwitchArgs, WriteArgs, approve,
        client::{self, Registry, Write},
        confirm, ended, render, render_write,
        selector::ListFilterArgs,
        set::{self, ObjectChanges},
    },
};
use hookgate::{config::Span, core::object::ObjectKind};

/// Which plugins.
#[derive(Debug, Args)]
pub(crate) struct ListPluginsArgs {
    /// Those in this state, such as `ready` or `refused`.
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    labelled: ListFilterArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

/// What is named of a plugin.
#[derive(Debug, Args)]
struct PluginMemberArgs {
    /// Where it is: `unix:///path`, `http://host:port`, `https://host:port` or `dns:///name:port`.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The versions that are accepted, such as `>=1.2, <2`.
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// A label, for lists and for `hookgate apply --prune`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// A capability that it may ask for, such as `log`; may be repeated, and takes the place of all that were.
    #[arg(long = "grant", value_name = "CAPABILITY")]
    grants: Vec<String>,
    /// Its config, in place of what was: an object of JSON, or a file of JSON or YAML. A secret is best a reference such
    /// as `${NAME}`, which the gateway resolves.
    #[arg(long, value_name = "JSON|@FILE")]
    config: Option<String>,
    /// What else is to be: members as an entry of a configuration has them, null takes one out; - is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// A plugin to add.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// What it is called, here and in its manifest.
    name: String,
    #[command(flatten)]
    members: PluginMemberArgs,
    /// How long it may take until the gateway knows it; 0s to 60s.
    #[arg(long, value_name = "TIME", default_value = "15s")]
    wait: Span,
    /// Approves of what the plugin wants, and doesn't ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    meant: WriteArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

/// What a plugin is to be.
#[derive(Debug, Args)]
pub(crate) struct SetPluginArgs {
    /// What it is called.
    name: String,
    #[command(flatten)]
    members: PluginMemberArgs,
    #[command(flatten)]
    write: ObjectWriteArgs,
}

/// A plugin to remove.
#[derive(Debug, Args)]
pub(crate) struct PluginRemoveArgs {
    /// Removes the bindings that name it too.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    remove: Remove,
}

pub(crate) async fn list(list: ListPluginsArgs) -> Exit {
    ended(listed(list).await)
}

async fn listed(list: ListPluginsArgs) -> Result<Exit, Exit> {
    let mut query = list.labelled.query()?;
    query.extend(list.state.map(|state| ("state".to_owned(), state)));
    let registry = Registry::connect(list.asked).await?;
    let plugins = registry.all(ObjectKind::Plugin, &query).await?;
    Ok(registry.print(&plugins, || render::plugins(&plugins)))
}

pub(crate) async fn show(show: ShowArgs) -> Exit {
    ended(super::show(ObjectKind::Plugin, show).await)
}

pub(crate) async fn switch(switch: SwitchArgs, on: bool) -> Exit {
    ended(super::switch(ObjectKind::Plugin, switch, on).await)
}

pub(crate) async fn remove(remove: PluginRemoveArgs) -> Exit {
    ended(super::remove(ObjectKind::Plugin, remove.remove, remove.force).await)
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
        if let Some(endpoint) = self.endpoint {
            named.set(&["endpoint"], endpoint);
            named.set(&["endpoints"], Value::Null);
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
    let registry = Registry::connect(asked).await?;
    if let Some(found) = registry.find(ObjectKind::Plugin, &name).await? {
        let (shown, version) = (printable(&name), client::version(&found.body));
        return Err(Exit::failure(format!(
            "there is a plugin `{shown}` already, of version {version}; `hookgate plugin set {shown}` changes it"
        )));
    }
    let write = Write::put(ObjectKind::Plugin, &name, spec).with_expected_version(0);
    if meant.dry_run {
        return registry.done(&write, &meant).await;
    }
    let done = registry.write(&write, &meant.reason, false).await?;
    if registry.output == Output::Table {
        // Whether it is in force is what comes next.
        let difference = render_write::difference(&done.body);
        output::print(&format!("{difference}Written as revision {}.\n\n", done.body["revision"]), Exit::ok());
    }
    let plugin = approve::wait_until_described(&registry, &name, wait).await?.body;
    if let Some(wants) = plugin["pending_manifests"].get(0) {
        if registry.output == Output::Table {
            output::print(&approve::table(wants), Exit::ok());
        }
        // Where it isn't approved of it stays as it is, which is told of.
        if confirm(&approve::question(&name, wants), yes, registry.output).is_ok() {
            let consent = approve::consent(&name, &plugin, wants);
            approve::carry_out(&registry, &name, &consent, &meant.reason).await?;
        }
    }
    approve::finish(&registry, &name, "added", wait).await
}
