//! `hookgate explain`: why a call runs what it runs, from a file or from a gateway. What there is to say is
//! [`hookgate::invoke::explain`]'s; here it is asked for and laid out.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    Exit,
    client::{self, AdminPortArgs, Answer},
    config::unread,
    output::{self, Output, note, printable},
    payload,
};
use hookgate::{
    auth::is_tenant_id,
    config::{self, Span},
    core::point::Point,
    invoke::explain::{ExplainCall, ExplainQuery, Explanation, explain},
    routing::RouteTable,
};

mod table;

/// Longest wait for a gateway's answer.
const REQUEST_TIMEOUT: Span = Span(Duration::from_secs(10));

/// Whom to ask, and about which call.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The configuration to explain; no plugin is asked, so versions and what they offer stay open.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["addr", "profile", "ca", "token_file"])]
    config: Option<PathBuf>,
    /// Whose call it is.
    #[arg(long)]
    tenant: String,
    /// Where.
    #[arg(long, value_parser = payload::points())]
    point: Point,
    /// The tool's name.
    #[arg(long)]
    tool: Option<String>,
    /// The context's `agent_id`.
    #[arg(long)]
    agent: Option<String>,
    /// The `model`.
    #[arg(long)]
    model: Option<String>,
    /// The `text` or `content`; goes to the gateway as part of a URL.
    #[arg(long)]
    text: Option<String>,
    /// A label of the request, or `claim.NAME`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// How long the caller waits, 1ms to 60s; absent: it doesn't say.
    #[arg(long, value_parser = client::patience)]
    timeout: Option<Span>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

pub(super) async fn run(asked: ExplainArgs) -> Exit {
    let question = match question(&asked) {
        Ok(question) => question,
        Err(wrong) => return Exit::usage(wrong),
    };
    let said = match &asked.config {
        Some(file) => explain_file(file, &question).map(|said| (said, file.display().to_string())),
        None => explain_gateway(&asked, &question).await,
    };
    said.map_or_else(
        |exit| exit,
        |(said, source)| output::data(asked.output, &said, || table::render(&said, &source), Exit::ok()),
    )
}

fn question(asked: &ExplainArgs) -> Result<ExplainQuery, String> {
    if !is_tenant_id(&asked.tenant) {
        return Err(format!(
            "`{}` is no tenant: an id has 1 to 256 bytes without control characters, and `*` is none",
            printable(&asked.tenant)
        ));
    }
    let mut labels = BTreeMap::new();
    for (key, value) in &asked.labels {
        if labels.insert(key.clone(), value.clone()).is_some() {
            return Err(format!("the label `{}` is there twice; a call has each once", printable(key)));
        }
    }
    let call = ExplainCall {
        tool: asked.tool.clone(),
        agent: asked.agent.clone(),
        model: asked.model.clone(),
        labels,
        timeout_ms: asked.timeout.map(|span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)),
    };
    Ok(ExplainQuery { tenant: asked.tenant.clone(), point: asked.point, call, text: asked.text.clone() })
}

fn explain_file(file: &Path, question: &ExplainQuery) -> Result<Explanation, Exit> {
    let wrong = |problems: config::Problems| Exit::problems(&problems);
    let loaded = config::load(file, config::environment_variables()).map_err(wrong)?;
    let table =
        RouteTable::build(&loaded.config, &[], 1).map_err(|problems| wrong(loaded.render(&problems)))?;
    if let Some(unread) = unread(&loaded.config) {
        note(&format!("{unread}: --addr in place of --config asks a gateway, which serves by it"));
    }
    Ok(explain(&loaded.config, &table, false, question))
}

async fn explain_gateway(
    asked: &ExplainArgs,
    question: &ExplainQuery,
) -> Result<(Explanation, String), Exit> {
    let asker = asked.gateway.asker(REQUEST_TIMEOUT, "name a file by --config").await.map_err(Exit::usage)?;
    let answer = asker.ask(Method::GET, &path(question), None).await.map_err(Exit::failure)?;
    if answer.status != 200 {
        return Err(answer.refuse(asked.output, Exit::failure(refusal_text(&answer))));
    }
    let said = serde_json::from_str(&answer.text);
    let said = said.map_err(|_| Exit::failure(asker.strange(answer.status)))?;
    Ok((said, asker.base()))
}

/// The path that asks `question`.
fn path(question: &ExplainQuery) -> String {
    let ExplainQuery { tenant, point, call, text } = question;
    let encode = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let mut path = format!("/admin/v1/tenants/{}/explain?point={point}", encode(tenant));
    let carried = [("tool", &call.tool), ("agent", &call.agent), ("model", &call.model), ("text", text)];
    for (name, value) in carried {
        path.extend(value.iter().map(|value| format!("&{name}={}", encode(value))));
    }
    path.extend(call.labels.iter().map(|(key, value)| format!("&label.{}={}", encode(key), encode(value))));
    path.extend(call.timeout_ms.iter().map(|millis| format!("&timeout_ms={millis}")));
    path
}

/// What the gateway says instead of an explanation, and what else to look at on this port.
fn refusal_text(answer: &Answer) -> String {
    let more = match answer.status {
        401 | 403 => {
            "\n  = `hookgate token inspect` says what is wrong with a token, `hookgate token mint --admin` makes one"
        }
        404 => {
            "\n  = a token that names a tenant sees that tenant alone, and --addr is the gateway's `server.admin_addr`"
        }
        _ => "",
    };
    answer.error() + more
}
