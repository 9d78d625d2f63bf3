//! `hookgate plugin approve`: shows a plugin's pending manifest, asks, and sends back exactly what was shown.

use std::time::Duration;

use clap::Args;
use hookgate_proto::Capability;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    Exit,
    client::Answer,
    output::{self, Output, columns, printable, text},
    registry::{
        ReadArgs, WriteArgs,
        client::{self, Registry, Write},
        confirm, ended, render, render_write,
    },
};
use hookgate::{
    config::Span,
    core::object::{ObjectKind, Owner},
    upstream::Why,
};

/// How often the gateway is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Longest value of `--wait`.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The plugin to approve.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Name of the plugin.
    name: String,
    /// Which manifest to approve, if the endpoints run different versions. Default: the highest version.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// How long to wait until the plugin is ready; 0s to 60s.
    #[arg(long, value_name = "TIME", default_value = "15s")]
    wait: Span,
    /// Skips the confirmation prompt.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    meant: WriteArgs,
    #[command(flatten)]
    asked: ReadArgs,
}

pub(crate) async fn approve(approve: Approve) -> Exit {
    ended(approved(approve).await)
}

async fn approved(approve: Approve) -> Result<Exit, Exit> {
    let Approve { name, version, wait, yes, meant, asked } = approve;
    check(wait)?;
    let registry = Registry::connect(asked).await?;
    let plugin = registry.existing(ObjectKind::Plugin, &name).await?;
    let Some(wants) = choose(&plugin.body, version.as_deref()) else {
        return Ok(nothing(&registry, &name, version.as_deref(), plugin));
    };
    let write = consent(&name, &plugin.body, wants);
    if meant.dry_run {
        return registry.done(&write, &meant).await;
    }
    if registry.output == Output::Table {
        output::show(&table(wants), Exit::ok());
    }
    confirm(&question(&name, wants), yes, registry.output)?;
    carry_out(&registry, &name, &write, &meant.reason).await?;
    finish(&registry, &name, "approved of", wait).await
}

pub(super) fn check(wait: Span) -> Result<(), Exit> {
    if wait.0 > MAX_WAIT { Err(Exit::usage("--wait is 60s at most")) } else { Ok(()) }
}

/// The pending manifest to approve: that of `version`, else the first.
fn choose<'p>(plugin: &'p Value, version: Option<&str>) -> Option<&'p Value> {
    let mut wants = plugin["pending_manifests"].as_array()?.iter();
    wants.find(|wants| version.is_none_or(|version| wants["version"] == version))
}

/// The result if no manifest is pending.
fn nothing(registry: &Registry, name: &str, version: Option<&str>, plugin: Answer) -> Exit {
    let (state, reason) = (&plugin.body["state"], &plugin.body["reason"]);
    let exit = match version {
        None if state == "ready" => Exit::ok(),
        None => Exit::failure(format!(
            "`{}` has nothing to approve: it is {}: {}",
            printable(name),
            text(state),
            text(reason)
        )),
        Some(version) => Exit::failure(format!(
            "no endpoint of `{}` with version {} has anything to approve",
            printable(name),
            printable(version)
        )),
    };
    plugin.print(registry.output, || "Nothing to approve.\n".to_owned(), exit)
}

/// The write that approves `wants`, with the plugin's version as read as its precondition.
pub(super) fn consent(name: &str, plugin: &Value, wants: &Value) -> Write {
    Write::approve(name, &wants["accepted"]).with_expected_version(client::version(plugin))
}

/// The question to the person at the terminal.
pub(super) fn question(name: &str, wants: &Value) -> String {
    format!("Allow {name} {} to do this?", wants["version"].as_str().unwrap_or_default())
}

/// Writes the approval, and prints the revision for people.
pub(super) async fn carry_out(
    registry: &Registry,
    name: &str,
    write: &Write,
    reason: &str,
) -> Result<(), Exit> {
    let done = registry.write(write, reason, false).await?;
    if registry.output == Output::Table {
        let text = match done.body["revision"].as_u64() {
            Some(revision) => format!("Approved {} in revision {revision}.\n\n", printable(name)),
            None => render_write::end(&done.body),
        };
        output::show(&text, Exit::ok());
    }
    Ok(())
}

/// Waits for the plugin, and shows its state. `did` is the participle of what was done with it.
pub(super) async fn finish(registry: &Registry, name: &str, did: &str, wait: Span) -> Result<Exit, Exit> {
    let plugin = wait_until_described(registry, name, wait).await?;
    let table = || columns(&render::described(&plugin.body));
    Ok(plugin.print(registry.output, table, state_exit(name, did, &plugin.body, wait)))
}

/// Polls until the plugin's state is settled or the time is over.
pub(super) async fn wait_until_described(
    registry: &Registry,
    name: &str,
    wait: Span,
) -> Result<Answer, Exit> {
    let end = Instant::now() + wait.0;
    loop {
        let plugin = registry.existing(ObjectKind::Plugin, name).await?;
        let state = plugin.body["state"].as_str().unwrap_or_default();
        if matches!(state, "ready" | "refused" | "pending" | "disabled") || Instant::now() >= end {
            return Ok(plugin);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The exit for a plugin that was added or approved.
fn state_exit(name: &str, did: &str, plugin: &Value, wait: Span) -> Exit {
    let [state, reason, detail] = ["state", "reason", "detail"].map(|key| text(&plugin[key]));
    let name = printable(name);
    if matches!(state.as_str(), "ready" | "disabled") {
        return Exit::ok();
    }
    let late = if matches!(state.as_str(), "refused" | "pending") {
        String::new()
    } else {
        format!(" after {wait}")
    };
    let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
    let remedy = match Why::all().find(|why| why.as_str() == reason) {
        Some(Why::Approval) => Some(format!("approve it with `hookgate plugin approve {name}`")),
        why => why.and_then(|why| why.remedy(Owner::Api)).map(str::to_owned),
    };
    let remedy = remedy.map(|remedy| format!("\n  = {remedy}")).unwrap_or_default();
    Exit::failure(format!(
        "`{name}` was {did}, and is {state}{late}: {reason}{detail}{remedy}\n  = it stays in the registry; remove it \
         with `hookgate plugin remove {name}`"
    ))
}

/// A text of the manifest; `-` if it is absent.
fn cell(value: &Value) -> String {
    printable(value.as_str().unwrap_or("-"))
}

/// The large fields that the plugin gets at a point, and whether it gets them in windows.
fn reads(offer: &Value) -> String {
    let fields = match offer["reads"].as_array() {
        None => "all".to_owned(),
        Some(fields) if fields.is_empty() => "nothing".to_owned(),
        Some(fields) => fields.iter().map(cell).collect::<Vec<_>>().join(", "),
    };
    if offer["windows"] == true { fields + ", in windows" } else { fields }
}

/// The rows of what is offered at points, or at hooks, with the `difference` from what was approved.
fn offers(offered: &Value, difference: &Value) -> Vec<[String; 5]> {
    // At a hook, where nothing is accessed, an offer is its side effects alone.
    let members = |offer: &Value| match offer {
        Value::String(side_effects) => ["-".to_owned(), printable(side_effects), "all".to_owned()],
        offer => [cell(&offer["access"]), cell(&offer["side_effects"]), reads(offer)],
    };
    let mut rows = Vec::new();
    for (site, offer) in offered.as_object().into_iter().flatten() {
        let change = match (&difference["changed"][site]["from"], difference["added"].get(site)) {
            (_, Some(_)) => "new".to_owned(),
            (Value::String(side_effects), None) => format!("was {}", printable(side_effects)),
            (Value::Null, None) => "-".to_owned(),
            (before, None) => {
                let [access, side_effects, reads] = members(before);
                let reads = if reads == "all" { String::new() } else { format!(", reads {reads}") };
                format!("was {access}, {side_effects}{reads}")
            }
        };
        let [access, side_effects, reads] = members(offer);
        rows.push([printable(site), access, side_effects, reads, change]);
    }
    let gone = difference["removed"].as_object().into_iter().flatten();
    rows.extend(
        gone.map(|(site, _)| [printable(site), "-".into(), "-".into(), "-".into(), "no longer".into()]),
    );
    rows
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(cell).collect()
}

/// `members`, with the `difference` from what was approved. `words` renders a member, with a mark if it is
/// new.
fn set(members: &Value, difference: &Value, words: impl Fn(&str, &str) -> String) -> Vec<String> {
    let added = list(&difference["added"]);
    let members = list(members).into_iter().map(|name| {
        let new = if added.contains(&name) { " (new)" } else { "" };
        words(&name, new)
    });
    let removed = list(&difference["removed"]).into_iter();
    members.chain(removed.map(|name| format!("{name} (no longer)"))).collect()
}

/// The names that the plugin's tools may have.
fn tools(wants: &Value) -> Vec<String> {
    let names =
        set(&wants["accepted"]["tools"], &wants["difference"]["tools"], |glob, new| format!("{glob}{new}"));
    names.into_iter().map(|name| format!("tools named {name}")).collect()
}

/// Rows of `texts`, the first with this `label`.
fn labelled(label: &str, texts: Vec<String>) -> Vec<[String; 2]> {
    let label = |at| if at == 0 { label } else { "" }.to_owned();
    texts.into_iter().enumerate().map(|(at, text)| [label(at), text]).collect()
}

/// The rows of offers as a table, without the column of what the plugin reads if that is everything.
fn offers_table(rows: Vec<[String; 5]>) -> String {
    if rows[1..].iter().any(|row| !matches!(&*row[3], "all" | "-")) {
        return columns(&rows);
    }
    let without = |[site, access, side_effects, _, change]: [String; 5]| [site, access, side_effects, change];
    columns(&rows.into_iter().map(without).collect::<Vec<_>>())
}

/// The manifest in an entry of `wants`, and its differences from the approved one.
pub(super) fn table(wants: &Value) -> String {
    let difference = &wants["difference"];
    let mut rows = vec![["POINT", "ACCESS", "SIDE EFFECTS", "READS", "CHANGE"].map(str::to_owned)];
    for sites in ["points", "hooks"] {
        rows.extend(offers(&wants["accepted"][sites], &difference[sites]));
    }
    let offers = if rows.len() > 1 { format!("{}\n", offers_table(rows)) } else { String::new() };
    let mut more = labelled("provides", tools(wants));
    let mut asks = set(&wants["accepted"]["capabilities"], &difference["capabilities"], |name, new| {
        let meaning = Capability::from_name(name).map_or("", Capability::meaning);
        format!("{name}{new}: {meaning}")
    });
    if asks.is_empty() {
        asks.push("no capability".to_owned());
    }
    more.extend(labelled("asks for", asks));
    let schemas = list(&difference["schemas"]).join(", ");
    if !schemas.is_empty() {
        more.push(["new".to_owned(), schemas]);
    }
    let (name, version) = (cell(&wants["name"]), cell(&wants["version"]));
    format!("{name} {version}\n\n{offers}{}\n", columns(&more))
}
