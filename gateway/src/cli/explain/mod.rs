//! `hookgate explain`: why a call runs what it runs, from a file or from a gateway. What there is to say is
//! [`crate::invoke::explain`]'s; here it is asked for and laid out.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use ::http::StatusCode;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{
    Exit,
    http::{self, Http},
    output::{self, Output, printable},
};
use crate::{
    app,
    auth::is_tenant_id,
    config,
    invoke::explain::{Call, Explanation, Question, explain},
    point::Point,
    routing::RouteTable,
};

mod table;

/// Longest wait for a gateway's answer.
const LIMIT: Duration = Duration::from_secs(10);
/// What `--addr` is.
const REMEDY: &str = "--addr is the gateway's `server.admin_addr`, open where an issuer has an `admin_audience`, and \
                      https where `server.tls` is set";

/// Whom to ask, and about which call.
#[derive(Debug, Args)]
pub(super) struct Asked {
    #[command(flatten)]
    source: Source,
    /// A file with the token, in place of HOOKGATE_TOKEN.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    token_file: Option<PathBuf>,
    /// A file with the CAs in PEM that vouch for the gateway, in place of the machine's.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    ca: Option<PathBuf>,
    /// Whose call it is.
    #[arg(long)]
    tenant: String,
    /// Where.
    #[arg(long, value_parser = points())]
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
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// How long the caller waits, in milliseconds; absent: it doesn't say.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout: Option<u64>,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Who explains.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// The configuration to explain; no plugin is asked, so versions and what they offer stay open.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin port of a running gateway, in place of a file; the token is in HOOKGATE_TOKEN.
    #[arg(long, value_name = "URL")]
    addr: Option<String>,
}

fn points() -> impl TypedValueParser<Value = Point> {
    let named = |name: String| Point::ALL.into_iter().find(|point| point.as_str() == name);
    PossibleValuesParser::new(Point::ALL.map(Point::as_str))
        .map(move |name| named(name).expect("it is one of those listed"))
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is KEY=VALUE".to_owned()),
    }
}

pub(super) async fn run(asked: Asked) -> Exit {
    let question = match question(&asked) {
        Ok(question) => question,
        Err(wrong) => return Exit::usage(wrong),
    };
    let (said, source) = match (&asked.source.config, &asked.source.addr) {
        (Some(file), _) => (of_file(file, &question), file.display().to_string()),
        (None, address) => {
            let address = address.as_deref().unwrap_or_default();
            (of_gateway(address, &asked, &question).await, address.to_owned())
        }
    };
    said.map_or_else(
        |exit| exit,
        |said| output::data(asked.output, &said, || table::of(&said, &source), Exit::ok()),
    )
}

fn question(asked: &Asked) -> Result<Question, String> {
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
    let call = Call {
        tool: asked.tool.clone(),
        agent: asked.agent.clone(),
        model: asked.model.clone(),
        labels,
        timeout_ms: asked.timeout,
    };
    Ok(Question { tenant: asked.tenant.clone(), point: asked.point, call, text: asked.text.clone() })
}

fn of_file(file: &Path, question: &Question) -> Result<Explanation, Exit> {
    let wrong = |problems: config::Problems| Exit::problems(&problems);
    let loaded = config::load(file, app::environment()).map_err(wrong)?;
    let table =
        RouteTable::build(&loaded.config, &[], 1).map_err(|problems| wrong(loaded.render(&problems)))?;
    Ok(explain(&loaded.config, &table, false, question))
}

async fn of_gateway(address: &str, asked: &Asked, question: &Question) -> Result<Explanation, Exit> {
    let token = http::token(asked.token_file.as_deref()).map_err(Exit::usage)?;
    let gateway = Http::new(address, asked.ca.as_deref(), token, LIMIT, REMEDY).map_err(Exit::usage)?;
    let answer = gateway.get(&path(question)).await.map_err(Exit::failure)?;
    if answer.status != StatusCode::OK {
        return Err(Exit::failure(refused(gateway.base(), answer.status, &answer.body)));
    }
    serde_json::from_slice(&answer.body).map_err(|_| {
        Exit::failure(format!(
            "{} doesn't answer as this version's admin port does; {REMEDY}",
            gateway.base()
        ))
    })
}

/// The path that asks `question`.
fn path(question: &Question) -> String {
    let Question { tenant, point, call, text } = question;
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

/// What a gateway says instead of an explanation.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    detail: String,
}

fn refused(base: &str, status: StatusCode, body: &[u8]) -> String {
    let Ok(Refusal { code, detail }) = serde_json::from_slice(body) else {
        return format!("{base} answers {} and is no admin port of this version; {REMEDY}", status.as_u16());
    };
    let (code, detail) = (printable(&code), printable(&detail));
    let remedy: String = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "`hookgate token inspect` says what is wrong with a token, `hookgate token mint --admin` makes one".into()
        }
        StatusCode::NOT_FOUND => {
            "a token that names a tenant sees that tenant alone, and --addr is the gateway's `server.admin_addr`".into()
        }
        _ => format!("see `hookgate errors {code}`"),
    };
    format!("{base} refuses: {detail} ({code}); {remedy}")
}
