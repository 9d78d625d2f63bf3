//! `hookgate plugin` for plugins of a registry: added and looked at until the gateway knows them, changed, switched,
//! removed.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    Asked, Meant, Remove, Show, Switch, Upon,
    client::{self, Registry, Write},
    confirm, ended, set,
    set::Named,
    shown, written,
};
use crate::{
    cli::{
        Exit,
        ask::Answer,
        output::{self, Output, columns, printable},
    },
    config::Span,
    store::Kind,
    upstream::Why,
};

/// How often the gateway is asked what it knows of a plugin.
const PAUSE: Duration = Duration::from_millis(200);

/// Which plugins.
#[derive(Debug, Args)]
pub(in crate::cli) struct List {
    /// Those in this state, such as `ready` or `refused`.
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    asked: Asked,
}

/// What is named of a plugin.
#[derive(Debug, Args)]
struct Members {
    /// Where it is: `unix:///path`, `http://host:port`, `https://host:port` or `dns:///name:port`.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The versions that are accepted, such as `>=1.2, <2`.
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
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
pub(in crate::cli) struct Add {
    /// What it is called, here and in its manifest.
    name: String,
    #[command(flatten)]
    members: Members,
    /// How long it may take until the gateway knows it; 0s to 60s.
    #[arg(long, value_name = "TIME", default_value = "15s")]
    wait: Span,
    /// Doesn't ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    meant: Meant,
    #[command(flatten)]
    asked: Asked,
}

/// What a plugin is to be.
#[derive(Debug, Args)]
pub(in crate::cli) struct Set {
    /// What it is called.
    name: String,
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    upon: Upon,
    #[command(flatten)]
    meant: Meant,
    #[command(flatten)]
    asked: Asked,
}

/// A plugin to remove.
#[derive(Debug, Args)]
pub(in crate::cli) struct RemovePlugin {
    /// Removes the bindings that name it too.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    remove: Remove,
}

pub(in crate::cli) async fn list(list: List) -> Exit {
    ended(listed(list).await)
}

async fn listed(list: List) -> Result<Exit, Exit> {
    let registry = Registry::of(list.asked).await?;
    let query: Vec<_> = list.state.iter().map(|state| ("state", state.as_str())).collect();
    let plugins = registry.all(Kind::Plugin, &query).await?;
    Ok(registry.print(&plugins, || shown::plugins(&plugins)))
}

pub(in crate::cli) async fn show(show: Show) -> Exit {
    ended(super::show(Kind::Plugin, show).await)
}

pub(in crate::cli) async fn switch(switch: Switch, on: bool) -> Exit {
    ended(super::switch(Kind::Plugin, switch, on).await)
}

pub(in crate::cli) async fn remove(remove: RemovePlugin) -> Exit {
    ended(super::remove(Kind::Plugin, remove.remove, remove.force).await)
}

pub(in crate::cli) async fn set(set: Set) -> Exit {
    let Set { name, members, upon, meant, asked } = set;
    let done = async {
        let named = members.named()?;
        set::set((Kind::Plugin, &name), named, &upon, &meant, asked).await
    };
    ended(done.await)
}

pub(in crate::cli) async fn add(add: Add) -> Exit {
    ended(added(add).await)
}

impl Members {
    fn named(self) -> Result<Named, Exit> {
        let mut named = Named::in_file(self.file.as_ref())?;
        if let Some(endpoint) = self.endpoint {
            named.set(&["endpoint"], endpoint);
            named.set(&["endpoints"], Value::Null);
        }
        named.set_some(&["version"], self.version);
        if !self.grants.is_empty() {
            named.set(&["grants"], self.grants);
        }
        named.set_document(&["config"], "--config", self.config.as_ref())?;
        Ok(named)
    }
}

async fn added(add: Add) -> Result<Exit, Exit> {
    let Add { name, members, wait, yes, meant, asked } = add;
    if wait.0 > Duration::from_secs(60) {
        return Err(Exit::usage("--wait is 60s at most"));
    }
    let spec = members.named()?.object();
    let registry = Registry::of(asked).await?;
    if let Some(found) = registry.find(Kind::Plugin, &name).await? {
        let (shown, version) = (printable(&name), client::version(&found.body));
        return Err(Exit::failure(format!(
            "there is a plugin `{shown}` already, of version {version}; `hookgate plugin set {shown}` changes it"
        )));
    }
    let write = Write::put(Kind::Plugin, &name, spec).upon(0);
    let tried = registry.write(&write, &meant.reason, true).await?;
    if meant.dry_run {
        return Ok(tried.print(registry.output, || written::table(&tried.body), Exit::ok()));
    }
    if registry.output == Output::Table {
        output::print(&written::difference(&tried.body), Exit::ok());
    }
    confirm(&format!("Add the plugin {name}?"), yes, registry.output)?;
    let done = registry.write(&write, &meant.reason, false).await?;
    if registry.output == Output::Table {
        // Whether it is in force is what comes next.
        output::print(&format!("Written as revision {}.\n\n", done.body["revision"]), Exit::ok());
    }
    let known = known(&registry, &name, Instant::now() + wait.0).await?;
    let table = || columns(&shown::described(&known.body));
    Ok(known.print(registry.output, table, standing(&name, &known.body, wait)))
}

/// The plugin once the gateway knows what it is, or can't tell in time.
async fn known(registry: &Registry, name: &str, end: Instant) -> Result<Answer, Exit> {
    loop {
        let plugin = registry.existing(Kind::Plugin, name).await?;
        let state = plugin.body["state"].as_str().unwrap_or_default();
        if matches!(state, "ready" | "refused" | "pending" | "disabled") || Instant::now() >= end {
            return Ok(plugin);
        }
        sleep(PAUSE).await;
    }
}

/// What to say of a plugin that was added.
fn standing(name: &str, plugin: &Value, wait: Span) -> Exit {
    let text = |key: &str| printable(plugin[key].as_str().unwrap_or_default());
    let (state, reason, detail) = (text("state"), text("reason"), text("detail"));
    if matches!(state.as_str(), "ready" | "disabled") {
        return Exit::ok();
    }
    let late = if matches!(state.as_str(), "refused" | "pending") {
        String::new()
    } else {
        format!(" after {wait}")
    };
    let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
    let remedy = Why::all().find(|why| why.as_str() == reason).and_then(Why::remedy);
    let remedy = remedy.map(|remedy| format!("\n  = {remedy}")).unwrap_or_default();
    Exit::failure(format!(
        "`{}` was added, and is {state}{late}: {reason}{detail}{remedy}\n  = it stays; `hookgate plugin remove {}` \
         takes it away again",
        printable(name),
        printable(name)
    ))
}
