//! `hookgate reload`, `hookgate plugin describe`, `drain` and `call`: what is asked of a gateway that runs
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
    output::{Output, columns, printable},
    payload::{self, ContextArgs, Payload},
};
use hookgate::{config::Span, core::point::Point};

/// Beyond what the gateway takes itself.
const RESPONSE_GRACE: Duration = Duration::from_secs(5);
/// How long the gateway takes for an answer where nobody says: 15 s for all endpoints.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);
/// The longest time-out of a step.
const MAX_CALL_DURATION: Duration = Duration::from_secs(60);

/// Whom to ask, why, and how to show what came of it.
#[derive(Debug, Args)]
pub(super) struct Reload {
    /// Why, for whoever reads the gateway's log.
    #[arg(long)]
    reason: Option<String>,
    /// The form of the answer; json is the answer as it came.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum ProcessCommand {
    /// Has a running gateway connect to a plugin anew: Describe and Initialize again.
    ///
    /// For a plugin that was mended or replaced behind the same address: one that is refused is asked again at once.
    /// No call fails for it. Of one process: with several replicas it is the one that answers.
    #[command(
        after_help = "Example: hookgate plugin describe guard --addr unix:///run/hookgate/admin.sock\n\n\
                            Exit codes: 0 every endpoint was described anew, 1 one was not, or no gateway answers, 2 wrong \
                            usage."
    )]
    Describe {
        /// Its name.
        name: String,
        #[command(flatten)]
        how: Reload,
    },
    /// Switches a plugin of the registry off for every gateway, and waits until the one that answers has nothing under
    /// way there.
    #[command(after_help = "Example: hookgate plugin drain guard --timeout 1m --reason 'new disk'\n\n\
                            Exit codes: 0 drained, 1 calls are still under way, or the gateway refuses or is out of \
                            reach, 2 wrong usage.")]
    Drain {
        /// Its name.
        name: String,
        /// How long to wait for it; 1ms to 60s.
        #[arg(long, default_value = "30s", value_parser = client::patience)]
        timeout: Span,
        #[command(flatten)]
        how: Reload,
    },
    /// Tries a plugin of a running gateway out: one call of it alone, as a chain makes it.
    ///
    /// It counts for no tenant, and no other plugin hears of it. The plugin can tell by the metadata `hookgate-test`.
    #[command(
        after_help = "Example: hookgate plugin call guard before_tool_call --tenant acme --tool fs.read\n\n\
                            Exit codes: 0 the plugin continues, 1 the call failed, or the gateway refuses or is out of \
                            reach, 2 wrong usage, 3 the plugin cancels."
    )]
    Call(Box<PluginCallArgs>),
}

/// Which plugin, and what it is asked.
#[derive(Debug, Args)]
pub(super) struct PluginCallArgs {
    /// Its name.
    name: String,
    /// At which extension point it is called.
    #[arg(value_parser = payload::points())]
    point: Point,
    /// By whose config, time-out and `writable` for the plugin; absent: by nobody's.
    #[arg(long)]
    tenant: Option<String>,
    /// In place of the tenant's config.
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
        let waits = body["waiting_for"].as_str().map(|what| format!("it is waiting for {}", printable(what)));
        let mut text =
            format!("{}, revision {}\n", text(&body["outcome"]).replace('_', " "), body["revision"]);
        for (title, name) in [("rejected", "rejected"), ("restart required", "restart_required")] {
            for what in body[name].as_array().into_iter().flatten() {
                text += &format!("{title}: {}\n", printable(what.as_str().unwrap_or_default()));
            }
        }
        (text, waits.map_or_else(Exit::ok, Exit::failure))
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

fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

impl Reload {
    /// Asks for it and shows what came of it, as `shown` has it for people and for the exit code.
    async fn post(
        &self,
        path: &str,
        query: &[(&str, String)],
        body: Option<Vec<u8>>,
        takes: Duration,
        shown: impl Fn(&Value) -> (String, Exit),
    ) -> Exit {
        let asker = match self.gateway.asker(Span(takes + RESPONSE_GRACE), "send the process SIGHUP").await {
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
    /// As the admin port takes it.
    fn body(&self) -> Result<Vec<u8>, String> {
        let request = payload::request(self.point, &self.payload, &self.context, false)?;
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
        wrong.push(format!("{left} of {} endpoints were not described anew", endpoints.len()));
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
        None => "it was disabled already".to_owned(),
    };
    let is_drained = body["drained"] == true;
    let table = format!("{by}; {} calls under way\n", body["in_flight"]);
    let exit = if is_drained {
        Exit::ok()
    } else if body["active"] == true {
        Exit::failure("the gateway has not let go of it yet: drain it once more to wait on".to_owned())
    } else {
        Exit::failure(
            "that is not active yet: `hookgate status` says what the gateway is waiting for".to_owned(),
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
