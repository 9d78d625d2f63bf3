//! `hookgate explain`: explains a call's steps or what the LLM proxy does for a tenant, from a file or from a gateway.
//! [`hookgate::invoke::explain`] computes the explanation; this module requests and renders it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};
use futures::future::join_all;
use hookgate_proto::HookName;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Exit,
    client::{self, AdminPortArgs, Answer},
    config::unread,
    output::{self, Output, note, printable},
    payload,
    plugin::target::shared_resources,
};
use hookgate::{
    auth::is_tenant_id,
    builtin,
    config::{self, Config, LoadedConfig, Problems, Span},
    core::{call_site::CallSite, manifest::Manifest, point::Point},
    invoke::explain::{ExplainCall, ExplainQuery, Explanation, LlmExplanation, explain, explain_llm},
    llm::routes::ModelRoutes,
    routing::RouteTable,
    upstream::PluginTrial,
};

mod surface_table;
mod table;

/// Longest wait for a gateway's answer.
const REQUEST_TIMEOUT: Span = Span(Duration::from_secs(10));

/// The configuration or gateway, and the call.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The configuration to explain. Only built-in plugins are asked what they offer; versions and points of others
    /// are unknown. Variables of plugins' `config` and of providers' keys may be unset.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["addr", "profile", "ca", "token_file"])]
    config: Option<PathBuf>,
    /// Tenant of the call.
    #[arg(long)]
    tenant: String,
    /// Explains the LLM proxy instead of a call: how it streams answers, the models, and what it refuses.
    #[arg(long, value_enum, conflicts_with_all = ["point", "hook", "tool", "agent", "agent_path", "model", "text", "labels", "timeout"])]
    surface: Option<ExplainedSurface>,
    /// Extension point of the call.
    #[arg(long, value_parser = payload::points(), required_unless_present_any = ["hook", "surface"])]
    point: Option<Point>,
    /// Lifecycle hook, instead of a point.
    #[arg(long, value_name = "NAME", value_parser = payload::hook, conflicts_with_all = ["point", "tool", "text"])]
    hook: Option<HookName>,
    /// Name of the tool.
    #[arg(long)]
    tool: Option<String>,
    /// `agent_id` of the context.
    #[arg(long)]
    agent: Option<String>,
    /// `agent_path` of the context.
    #[arg(long)]
    agent_path: Option<String>,
    /// `model` of the context.
    #[arg(long)]
    model: Option<String>,
    /// `text` or `content` of the payload; sent to the gateway as part of a URL.
    #[arg(long)]
    text: Option<String>,
    /// A label of the request, or `claim.NAME`; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = payload::label)]
    labels: Vec<(String, String)>,
    /// The caller's deadline, 1ms to 60s. Default: none.
    #[arg(long, value_parser = client::patience)]
    timeout: Option<Span>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

/// A way into the gateway that is explained as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExplainedSurface {
    /// The LLM proxy
    Llm,
}

pub(super) async fn run(asked: ExplainArgs) -> Exit {
    match asked.surface {
        Some(ExplainedSurface::Llm) => explain_surface(&asked).await,
        None => explain_call(asked).await,
    }
}

async fn explain_surface(asked: &ExplainArgs) -> Exit {
    if let Err(wrong) = check_tenant(&asked.tenant) {
        return Exit::usage(wrong);
    }
    let said = match &asked.config {
        Some(file) => llm_of_file(file, &asked.tenant).await.map(|said| (said, file.display().to_string())),
        None => explain_gateway(asked, &path(&asked.tenant, "surface=llm")).await,
    };
    show(asked.output, said, surface_table::render)
}

async fn explain_call(asked: ExplainArgs) -> Exit {
    let question = match question(&asked) {
        Ok(question) => question,
        Err(wrong) => return Exit::usage(wrong),
    };
    let said = match &asked.config {
        Some(file) => explain_file(file, &question).await.map(|said| (said, file.display().to_string())),
        None => explain_gateway(&asked, &path(&question.tenant, &query(&question))).await,
    };
    show(asked.output, said, table::render)
}

/// Prints an explanation and its source.
fn show<T: Serialize>(
    format: Output,
    said: Result<(T, String), Exit>,
    render: impl FnOnce(&T, &str) -> String,
) -> Exit {
    match said {
        Ok((said, source)) => output::data(format, &said, || render(&said, &source), Exit::ok()),
        Err(exit) => exit,
    }
}

fn check_tenant(id: &str) -> Result<(), String> {
    if is_tenant_id(id) {
        return Ok(());
    }
    Err(format!(
        "`{}` is not a tenant id: an id has 1 to 256 bytes without control characters, and `*` is not allowed",
        printable(id)
    ))
}

fn question(asked: &ExplainArgs) -> Result<ExplainQuery, String> {
    check_tenant(&asked.tenant)?;
    let mut labels = BTreeMap::new();
    for (key, value) in &asked.labels {
        if labels.insert(key.clone(), value.clone()).is_some() {
            return Err(format!("the label `{}` is given twice; a call has each label once", printable(key)));
        }
    }
    let call = ExplainCall {
        tool: asked.tool.clone(),
        agent: asked.agent.clone(),
        agent_path: asked.agent_path.clone(),
        model: asked.model.clone(),
        labels,
        timeout_ms: asked.timeout.map(|span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)),
    };
    let site = asked.hook.clone().map(CallSite::Hook).or(asked.point.map(CallSite::Point));
    let site = site.ok_or("name a point or a hook")?;
    Ok(ExplainQuery { tenant: asked.tenant.clone(), site, call, text: asked.text.clone() })
}

async fn explain_file(file: &Path, question: &ExplainQuery) -> Result<Explanation, Exit> {
    let (loaded, table) = table_of_file(file).await?;
    if let Some(unread) = unread(&loaded.config) {
        note(&format!("{unread}; to include it, ask a gateway with --addr instead of --config"));
    }
    Ok(explain(&loaded.config, &table, false, question))
}

async fn llm_of_file(file: &Path, tenant: &str) -> Result<LlmExplanation, Exit> {
    let (loaded, table) = table_of_file(file).await?;
    let LoadedConfig { config, .. } = &loaded;
    let routes = config.llm.as_ref().map(|llm| ModelRoutes::build(llm, &[])).transpose();
    let routes = routes.map_err(|problems| Exit::problems(&loaded.render(&problems)))?;
    if let Some(unread) = unread(config) {
        note(&format!("{unread}; to include it, ask a gateway with --addr instead of --config"));
    }
    Ok(explain_llm(config, &table, routes.as_ref(), false, tenant))
}

/// The configuration, and its table with what the built-in plugins offer.
async fn table_of_file(file: &Path) -> Result<(LoadedConfig, RouteTable), Exit> {
    let wrong = |problems: Problems| Exit::problems(&problems);
    // Plugins are described at most, and no provider is asked.
    let loaded =
        config::load_without_outgoing_secrets(file, config::environment_variables()).map_err(wrong)?;
    let manifests = builtin_manifests(&loaded.config).await;
    let table = RouteTable::build(&loaded.config, &manifests, 1)
        .map_err(|problems| wrong(loaded.render(&problems)))?;
    Ok((loaded, table))
}

/// What the built-in plugins offer, by index in the configuration's plugins.
async fn builtin_manifests(config: &Config) -> Vec<Option<Arc<Manifest>>> {
    let shared = shared_resources("hookgate-explain", config.limits.clone(), None);
    join_all(config.plugins.iter().map(|plugin| async {
        let service = builtin::service(plugin.builtin.as_ref()?, None)?;
        let trial = PluginTrial::of_builtin((**plugin).clone(), service, shared.clone()).ok()?;
        let connection = trial.connect().await.ok()?;
        let mut described = trial.describe(&connection).await.ok()?;
        // Whether a gateway can grant them changes nothing about what the plugin offers.
        described.capabilities.clear();
        trial.accept(described).ok().map(Arc::new)
    }))
    .await
}

async fn explain_gateway<T: DeserializeOwned>(asked: &ExplainArgs, path: &str) -> Result<(T, String), Exit> {
    let asker =
        asked.gateway.asker(REQUEST_TIMEOUT, "give a file with --config").await.map_err(Exit::usage)?;
    let answer = asker.ask(Method::GET, path, None).await.map_err(Exit::failure)?;
    if answer.status != 200 {
        return Err(answer.refuse(asked.output, Exit::failure(refusal_text(&answer))));
    }
    let said = serde_json::from_str(&answer.text);
    let said = said.map_err(|_| Exit::failure(asker.strange(answer.status)))?;
    Ok((said, asker.base()))
}

fn path(tenant: &str, query: &str) -> String {
    format!("/admin/v1/tenants/{}/explain?{query}", encode(tenant))
}

fn query(question: &ExplainQuery) -> String {
    let ExplainQuery { site, call, text, .. } = question;
    let kind = if site.hook().is_some() { "hook" } else { "point" };
    let mut query = format!("{kind}={site}");
    for (name, value) in call.texts().into_iter().chain([("text", text)]) {
        query.extend(value.iter().map(|value| format!("&{name}={}", encode(value))));
    }
    query.extend(call.labels.iter().map(|(key, value)| format!("&label.{}={}", encode(key), encode(value))));
    query.extend(call.timeout_ms.iter().map(|millis| format!("&timeout_ms={millis}")));
    query
}

fn encode(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// The error that the gateway answered, with what to check on this port.
fn refusal_text(answer: &Answer) -> String {
    let more = match answer.status {
        401 | 403 => {
            "\n  = `hookgate token inspect` says what is wrong with a token, `hookgate token mint --admin` makes one"
        }
        404 => {
            "\n  = a token that names a tenant sees only that tenant, and --addr must be the gateway's \
             `server.admin_addr`"
        }
        _ => "",
    };
    answer.error() + more
}
