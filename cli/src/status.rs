//! `hookgate status`: the state of a running gateway, from its admin port (docs/status.md).

use clap::Args;
use http::Method;
use serde_json::Value;

use crate::{
    Exit,
    client::{self, AdminPortArgs},
    output::{Output, columns, printable, text},
};
use hookgate::{config::Span, ops::page::duration};

/// The gateway and the output format.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// How long to wait for the answer; 1ms to 60s.
    #[arg(long, default_value = "15s", value_parser = client::patience)]
    timeout: Span,
    /// Output format; json prints the answer unchanged.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

pub(super) async fn run(StatusArgs { timeout, output, gateway }: &StatusArgs) -> Exit {
    let asker = match gateway.asker(*timeout, "request /readyz from the ops port").await {
        Ok(asker) => asker,
        Err(wrong) => return Exit::usage(wrong),
    };
    match asker.ask(Method::GET, "/admin/v1/status", None).await {
        Err(unanswered) => Exit::failure(unanswered),
        Ok(answer) if answer.status == 200 => answer.print(*output, || table(&answer.body), Exit::ok()),
        Ok(answer) => answer.refuse(*output, Exit::failure(answer.error())),
    }
}

fn table(status: &Value) -> String {
    let configuration = &status["configuration"];
    let ready = match status["waiting_for"].as_str() {
        None => "yes".to_owned(),
        Some(what) => format!("no: {what}"),
    };
    let revision = format!("{}, active for {}", status["revision"], age(configuration));
    let others = if status["tenants"]["accepts_unlisted"] == true { "served" } else { "refused" };
    let [listed, off] = ["listed", "disabled"].map(|name| &status["tenants"][name]);
    let rows = [
        ("version", format!("{}, up for {}", text(&status["version"]), seconds(&status["uptime_s"]))),
        ("instance", text(&status["instance"])),
        ("ready", ready),
        ("revision", revision),
        ("store", store(&status["store"])),
        ("tenants", format!("{listed} listed, {off} of them disabled; unlisted tenants are {others}")),
        ("plugins", plugins(&status["plugins"])),
    ];
    let refused = &configuration["rejected"];
    let refused = refused["problems"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|problem| ("rejected", format!("{} ago: {}", age(refused), printable(first_line(problem)))));
    let waiting_for = configuration["waiting_for"].as_str();
    let waiting_for = waiting_for.map(|what| ("pending", format!("a newer revision, waiting for {what}")));
    let restart_required = configuration["restart_required"].as_array().into_iter().flatten();
    let restart_required = restart_required.map(|key| ("restart required", text(key)));
    let rows: Vec<_> = rows.into_iter().chain(waiting_for).chain(refused).chain(restart_required).collect();
    columns(&rows.into_iter().map(|(name, what)| [name.to_owned(), what]).collect::<Vec<_>>())
}

/// What a mistake is and where. The lines below it have the excerpt, which a row has no room for.
fn first_line(problem: &Value) -> &str {
    problem.as_str().and_then(|problem| problem.lines().next()).unwrap_or_default()
}

/// The state of the registry's database.
fn store(store: &Value) -> String {
    if store.is_null() {
        return "none: only the configuration file applies".to_owned();
    }
    let revision = match store["revision"].as_u64() {
        Some(revision) => format!("revision {revision}"),
        None => "never reached".to_owned(),
    };
    let reachable = match store["problem"].as_str() {
        None => format!("reachable for {}", age(store)),
        Some(problem) => format!("unreachable for {}: {problem}", age(store)),
    };
    let stale = if store["stale"] == true {
        "; stale: the active table is the last good table from before the start"
    } else {
        ""
    };
    let unkept = match store["last_good_problem"].as_str() {
        Some(why) => format!("; the last good table can't be written: {why}"),
        None => String::new(),
    };
    format!("{revision}, {reachable}{stale}{unkept}")
}

/// The number of plugins in each state.
fn plugins(states: &Value) -> String {
    let states = states.as_object().into_iter().flatten();
    let states = states.filter(|(_, count)| count.as_u64() != Some(0));
    let states: Vec<_> = states.map(|(state, count)| format!("{count} {state}")).collect();
    if states.is_empty() { "none".to_owned() } else { states.join(", ") }
}

fn age(of: &Value) -> String {
    seconds(&of["age_s"])
}

fn seconds(value: &Value) -> String {
    duration(value.as_u64().unwrap_or_default())
}
