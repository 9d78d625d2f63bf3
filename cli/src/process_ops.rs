//! `hookgate reload`, `hookgate plugin describe`, `drain` and `call`: operations on a running gateway
//! (docs/registry.md).

use std::{collections::BTreeMap, time::Duration};

use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    Exit,
    client::{self, AdminPortArgs, Answer},
    document,
    output::{Output, columns, printable, text},
    payload::{self, ContextArgs, Payload, RequestOptions},
};
use hookgate::{config::Span, core::point::Point};

/// Added to the time that the gateway itself may take.
const RESPONSE_GRACE: Duration = Duration::from_secs(5);
/// The gateway's own limit when the request sets none: 15 s for all endpoints.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);
/// Longest timeout of a step.
const MAX_CALL_DURATION: Duration = Duration::from_secs(60);

/// The gateway to ask, the reason, and the output format.
#[derive(Debug, Args)]
pub(super) struct Reload {
    /// Reason, shown in the gateway's log.
    #[arg(long)]
    reason: Option<String>,
    /// Output format; json prints the answer unchanged.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum ProcessCommand {
    /// Makes a running gateway reconnect to a plugin: it calls Describe and Initialize again.
    ///
    /// Use it after a plugin was fixed or replaced behind the same address: a refused plugin is asked again at once.
    /// No call fails because of it. It affects one process: with several replicas, the one that answers.
    #[command(
        after_help = "Example: hookgate plugin describe guard --addr unix:///run/hookgate/admin.sock\n\n\
                            Exit codes: 0 every endpoint was described again, 1 an endpoint was not, or the gateway \
                            can't be reached, 2 invalid usage."
    )]
    Describe {
        /// Name of the plugin.
        name: String,
        #[command(flatten)]
        how: Reload,
    },
    /// Disables a plugin of the registry for every gateway, and waits until the answering gateway has no call to it
    /// in flight.
    #[command(after_help = "Example: hookgate plugin drain guard --timeout 1m --reason 'new disk'\n\n\
                            Exit codes: 0 drained, 1 calls are still in flight, or the gateway can't be reached or \
                            refuses, 2 invalid usage.")]
    Drain {
        /// Name of the plugin.
        name: String,
        /// How long to wait; 1ms to 60s.
        #[arg(long, default_value = "30s", value_parser = client::patience)]
        timeout: Span,
        #[command(flatten)]
        how: Reload,
    },
    /// Makes one test call to a plugin of a running gateway, as a chain would.
    ///
    /// The call counts for no tenant, and no other plugin sees it. The plugin can recognise it by the metadata
    /// `hookgate-test`.
    #[command(
        after_help = "Example: hookgate plugin call guard before_tool_call --tenant acme --tool fs.read\n\n\
                            Exit codes: 0 the plugin continues, 1 the call failed, or the gateway can't be reached \
                            or refuses, 2 invalid usage, 3 the plugin cancels."
    )]
    Call(Box<PluginCallArgs>),
}

/// The plugin and the call.
#[derive(Debug, Args)]
pub(super) struct PluginCallArgs {
    /// Name of the plugin.
    name: String,
    /// Extension point of the call.
    #[arg(value_parser = payload::points())]
    point: Point,
    /// Tenant whose config, timeout and `writable` for the plugin apply. Default: none.
    #[arg(long)]
    tenant: Option<String>,
    /// Replaces the tenant's config.
    #[arg(long, value_name = "FILE|JSON")]
    tenant_config: Option<String>,
    #[command(flatten)]
    payload: Payload,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    how: Reload,
}

/// `hookgate reload`.
pub(super) async fn reload(how: &Reload) -> Exit {
    how.post("reload", &[], None, DEFAULT_DURATION, |body| {
        let waits = body["waiting_for"].as_str().map(|what| format!("waiting for {}", printable(what)));
        let mut said =
            format!("{}, revision {}\n", text(&body["outcome"]).replace('_', " "), body["revision"]);
        for (title, name) in [("rejected", "rejected"), ("restart required", "restart_required")] {
            for what in body[name].as_array().into_iter().flatten() {
                said += &format!("{title}: {}\n", text(what));
            }
        }
        (said, waits.map_or_else(Exit::ok, Exit::failure))
    })
    .await
}

pub(super) async fn run(command: ProcessCommand) -> Exit {
    match command {
        ProcessCommand::Describe { name, how } => {
            how.post(&path(&name, "describe"), &[], None, DEFAULT_DURATION, described).await
        }
        ProcessCommand::Drain { name, timeout, how } => {
            let query = [("timeout", timeout.to_string())];
            how.post(&path(&name, "drain"), &query, None, timeout.0, drained).await
        }
        ProcessCommand::Call(call) => {
            let body = match call.body() {
                Ok(body) => body,
                Err(wrong) => return Exit::usage(wrong),
            };
            call.how.post(&path(&call.name, "call"), &[], Some(body), MAX_CALL_DURATION, called).await
        }
    }
}

fn path(name: &str, how: &str) -> String {
    format!("plugins/{}/{how}", encoded(name))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Reload {
    /// Sends the request and prints the result; `shown` renders it for people and chooses the exit code.
    async fn post(
        &self,
        path: &str,
        query: &[(&str, String)],
        body: Option<Vec<u8>>,
        takes: Duration,
        shown: impl Fn(&Value) -> (String, Exit),
    ) -> Exit {
        let asker = match self.gateway.asker(Span(takes + RESPONSE_GRACE), "send SIGHUP to the process").await
        {
            Ok(asker) => asker,
            Err(wrong) => return Exit::usage(wrong),
        };
        let reason = self.reason.iter().map(|reason| ("reason", reason.clone()));
        let query = query.iter().cloned().chain(reason);
        let query = query.map(|(name, value)| format!("{name}={}", encoded(&value))).collect::<Vec<_>>();
        let path = format!("/admin/v1/{path}?{}", query.join("&"));
        let answer: Answer = match asker.ask(Method::POST, &path, body.map(Into::into)).await {
            Ok(answer) => answer,
            Err(unanswered) => return Exit::failure(unanswered),
        };
        if !(200..300).contains(&answer.status) {
            return answer.refuse(self.output, Exit::failure(answer.error()));
        }
        let (table, exit) = shown(&answer.body);
        answer.print(self.output, || table, exit)
    }
}

impl PluginCallArgs {
    /// The format that the admin port accepts.
    fn body(&self) -> Result<Vec<u8>, String> {
        let request = payload::request(self.point, &self.payload, &self.context, RequestOptions::default())?;
        let unwritable = |error: serde_json::Error| error.to_string();
        let mut members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_slice(&request.body).map_err(unwritable)?;
        members.insert("point".into(), to_raw_value(self.point.as_str()).map_err(unwritable)?);
        if let Some(tenant) = &self.tenant {
            members.insert("tenant".into(), to_raw_value(tenant).map_err(unwritable)?);
        }
        if self.tenant_config.is_some() {
            let config = document::parse("--tenant-config", self.tenant_config.as_ref())?;
            members.insert("tenant_config".into(), to_raw_value(&config).map_err(unwritable)?);
        }
        serde_json::to_vec(&members).map_err(unwritable)
    }
}

fn described(body: &Value) -> (String, Exit) {
    let mut rows = vec![["ENDPOINT", "DESCRIBED", "WHY NOT"].map(str::to_owned)];
    let endpoints = body["endpoints"].as_array().map_or(&[][..], Vec::as_slice);
    for endpoint in endpoints {
        let described = if endpoint["described"] == true { "yes" } else { "no" };
        rows.push([text(&endpoint["address"]), described.to_owned(), text(&endpoint["detail"])]);
    }
    let plugin = &body["plugin"];
    let version = plugin["manifest"]["version"].as_str().map(|version| format!(", version {version}"));
    let (name, state) = (text(&plugin["name"]), text(&plugin["state"]));
    let table = format!("{name} is {state}{}\n{}", printable(&version.unwrap_or_default()), columns(&rows));
    let left = endpoints.iter().filter(|endpoint| endpoint["described"] != true).count();
    let mut wrong = Vec::new();
    if left > 0 {
        wrong.push(format!("{left} of {} endpoints were not described again", endpoints.len()));
    }
    let refusal = &plugin["rejected"];
    if !refusal.is_null() {
        let [reason, detail] = ["reason", "detail"].map(|key| text(&refusal[key]));
        wrong.push(format!(
            "the plugin rejected its new entry: {reason}: {detail}; the previous one stays active"
        ));
    }
    let exit = if wrong.is_empty() { Exit::ok() } else { Exit::failure(wrong.join("; ")) };
    (table, exit)
}

fn drained(body: &Value) -> (String, Exit) {
    let by = match body["revision"].as_u64() {
        Some(revision) => format!("disabled by revision {revision}"),
        None => "it was already disabled".to_owned(),
    };
    let is_drained = body["drained"] == true;
    let table = format!("{by}; {} calls in flight\n", body["in_flight"]);
    let exit = if is_drained {
        Exit::ok()
    } else if body["active"] == true {
        Exit::failure("the plugin is not drained yet: run the command again to keep waiting".to_owned())
    } else {
        Exit::failure(
            "the change is not active yet: see `hookgate status` for what the gateway is waiting for"
                .to_owned(),
        )
    };
    (table, exit)
}

fn called(body: &Value) -> (String, Exit) {
    let (verdict, micros) = (text(&body["verdict"]), body["duration_us"].as_u64().unwrap_or_default());
    let (cancel, failure) = (&body["cancel"], &body["failure"]);
    let said = match &*verdict {
        "cancel" => format!("  {}: {}", text(&cancel["code"]), text(&cancel["message"])),
        _ => String::new(),
    };
    let after = format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100);
    let mut table = format!("{}{said}  after {after}\n", verdict.to_uppercase());
    table += &format!("request id {}\n", text(&body["request_id"]));
    if let Some(result) = body.get("result") {
        table += &format!("result {}\n", printable(&result.to_string()));
    }
    if body["changes"].is_object() {
        table += &format!("changes {}\n", printable(&body["changes"].to_string()));
    }
    let notices = body["notices"].as_array().map_or(&[][..], Vec::as_slice);
    if !notices.is_empty() {
        let mut rows = vec![["NOTICE", "CODE", "MESSAGE"].map(str::to_owned)];
        rows.extend(notices.iter().map(|notice| ["kind", "code", "message"].map(|name| text(&notice[name]))));
        table += &columns(&rows);
    }
    let exit = match &*verdict {
        "continue" => Exit::ok(),
        "cancel" => Exit::already_reported(3),
        _ => Exit::failure(format!(
            "the call failed: {}: {}\n  = {}",
            text(&failure["reason"]),
            text(&failure["detail"]),
            text(&failure["remedy"])
        )),
    };
    (table, exit)
}
