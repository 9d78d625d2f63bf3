//! `hookgate env`: the lines with which a shell makes an unmodified client use the gateway for its models.

use std::{path::Path, time::Duration};

use clap::Args;
use http::Method;
use serde_json::Value;

use super::{
    Exit,
    client::{self, ApiResponse, Place, Port},
    model_client::{ModelClient, codex_toml},
    output::{self, printable, text},
    shell_quote,
    token::{self, SigningArgs, TokenChecker},
};
use hookgate::{
    config::{Config, LlmProxy, Span},
    core::{api_format::ApiFormat, model_names::ModelNames},
};

/// How long the gateway may take to list the tenant's models.
const MODELS_TIMEOUT: Span = Span(Duration::from_secs(5));

/// The client, and which gateway and tenant it is for.
#[derive(Debug, Args)]
pub(super) struct EnvArgs {
    /// The client.
    #[arg(value_enum, value_name = "CLIENT")]
    client: ModelClient,
    #[command(flatten)]
    signing: SigningArgs,
    /// The tenant.
    #[arg(long, display_order = 1, required_unless_present = "toml")]
    tenant: Option<String>,
    /// The gateway's address as the client reaches it. Default: the variable `HOOKGATE_ADDR`, else `data` of the current
    /// profile, else the configuration's `server.data_addr`.
    #[arg(long, display_order = 7, value_name = "URL")]
    url: Option<String>,
    /// Only for codex: prints Codex's configuration, which holds the address and no token. Write it to
    /// ~/.codex/hookgate.config.toml for `codex --profile hookgate`.
    #[arg(long, display_order = 8)]
    toml: bool,
}

pub(super) async fn run(args: EnvArgs) -> Exit {
    match output_text(args).await {
        Ok(lines) => output::print(&lines, Exit::ok()),
        Err(exit) => exit,
    }
}

async fn output_text(args: EnvArgs) -> Result<String, Exit> {
    let EnvArgs { client, signing, tenant, url, toml } = args;
    if toml && client != ModelClient::Codex {
        return Err(Exit::usage("--toml is only for codex: other clients read all from the environment"));
    }
    let checker = TokenChecker::new(&signing.config).map_err(|problems| Exit::problems(&problems))?;
    let file = shown(&signing.config);
    let source = model_source(&checker.config, client, tenant.as_deref(), &file).map_err(Exit::failure)?;
    let gateway = address(&checker.config, url, &file).map_err(Exit::usage)?;
    if toml {
        return Ok(codex_toml(&gateway));
    }
    let tenant = tenant.expect("the arguments ask for it without --toml");
    let token = token::for_agent(&checker, signing, tenant).await?;
    if source == ModelSource::Registry {
        check_models(client.format(), &gateway, &token).await?;
    }
    if client == ModelClient::Codex {
        output::note(
            "Codex reads the gateway's address from a file: print it once with --toml to \
             ~/.codex/hookgate.config.toml, and run `codex --profile hookgate`",
        );
    }
    Ok(lines(client, &gateway, &token))
}

/// The lines, those that set something first: they work even if a shell gets all of them as one line.
fn lines(client: ModelClient, gateway: &str, token: &str) -> String {
    let variables = client.variables(gateway, &shell_quote::word(token)).into_iter();
    let set = variables.map(|(name, value)| format!("export {name}={value}\n"));
    set.chain(client.second_token().map(|name| format!("unset {name}\n"))).collect()
}

/// What may have models for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelSource {
    File,
    /// Only the registry: the gateway knows.
    Registry,
}

/// Where a gateway of this configuration may have models for the client of the tenant, or without one for any.
///
/// # Errors
/// One sentence with what to add, if it can have none.
fn model_source(
    config: &Config,
    client: ModelClient,
    tenant: Option<&str>,
    file: &str,
) -> Result<ModelSource, String> {
    let Some(llm) = &config.llm else {
        return Err(format!(
            "{file} has no `llm`, so its gateway serves no models: add `llm` as in docs/llm-proxy.md"
        ));
    };
    let listed = tenant.and_then(|tenant| config.tenants.list.iter().find(|listed| listed.id == tenant));
    let models = listed.and_then(|listed| Some((listed.id.as_str(), listed.llm.models.as_deref()?)));
    let of_file = models_of_file(llm, client.format(), models, file);
    match &config.store {
        None => of_file.map(|()| ModelSource::File),
        Some(store) if store.apply_file && of_file.is_ok() => Ok(ModelSource::File),
        Some(_) => Ok(ModelSource::Registry),
    }
}

/// Most globs that a message lists.
const MAX_GLOBS_SHOWN: usize = 8;

/// Checks that the file has models for clients of an API. `models` is a tenant, and the globs on the models that it may name.
///
/// # Errors
/// One sentence with what to add.
fn models_of_file(
    llm: &LlmProxy,
    format: ApiFormat,
    models: Option<(&str, &[String])>,
    file: &str,
) -> Result<(), String> {
    let provider = match format {
        ApiFormat::Openai => "OpenAI",
        ApiFormat::Anthropic => "Anthropic",
    };
    let upstreams: Vec<&str> =
        llm.upstreams.iter().filter(|one| one.format == format).map(|one| one.name.as_str()).collect();
    let Some(first) = upstreams.first() else {
        return Err(format!(
            "the client speaks {provider}'s API, and no upstream in `llm` of {file} does: add one with `format: {}`",
            format.as_str()
        ));
    };
    let rules = llm.models.iter().filter(|rule| upstreams.contains(&rule.upstream.as_str()));
    let globs: Vec<&str> = rules.map(|rule| rule.pattern.as_str()).collect();
    if globs.is_empty() {
        return Err(format!(
            "the client speaks {provider}'s API, and no rule in `llm.models` of {file} leads to an upstream that does: add \
             one with `upstream: {first}`"
        ));
    }
    let Some((tenant, models)) = models else { return Ok(()) };
    if globs.iter().any(|glob| may_meet(glob, models)) {
        return Ok(());
    }
    let shown: Vec<_> =
        globs.iter().take(MAX_GLOBS_SHOWN).map(|glob| format!("`{}`", printable(glob))).collect();
    let more = if globs.len() > MAX_GLOBS_SHOWN { " and others" } else { "" };
    Err(format!(
        "tenant `{}` may name no model of {provider}'s API: no rule for that API matches anything of its `llm.models` in \
         {file}, only {}{more}: correct the list, or add a rule",
        printable(tenant),
        shown.join(", ")
    ))
}

/// Whether a model may be matched by a rule's glob and by one of a tenant's. Two globs may, since which names they share
/// isn't known.
fn may_meet(glob: &str, models: &[String]) -> bool {
    let names = |entries: &[String]| ModelNames::new("models", entries);
    let (Ok(rule), Ok(tenant)) = (names(&[glob.to_owned()]), names(models)) else { return true };
    (rule.has_globs() && tenant.has_globs())
        || rule.literals().any(|name| tenant.contains(name))
        || tenant.literals().any(|name| rule.contains(name))
}

/// Asks the gateway for the tenant's models, as the client would. Only a gateway knows the registry's, and it need not run yet.
///
/// # Errors
/// The gateway refuses: it would refuse the client too.
async fn check_models(format: ApiFormat, gateway: &str, token: &str) -> Result<(), Exit> {
    let not_checked = |why: String| {
        output::note(&format!("whether the registry has models for the client was not checked: {why}"));
    };
    let ApiResponse { status, text: answer, .. } = match list_models(format, gateway, token).await {
        Ok(response) => response,
        Err(why) => {
            not_checked(why);
            return Ok(());
        }
    };
    let body: Value = serde_json::from_str(&answer).unwrap_or_default();
    match (status, body["data"].as_array()) {
        (200, Some(models)) if models.is_empty() => output::note(&format!(
            "{gateway} lists no model for the client: a request must name one that a rule with a wildcard matches \
             (`hookgate model list`)"
        )),
        (200, Some(_)) => {}
        (400..500, _) if body["error"]["message"].is_string() => {
            let message = text(&body["error"]["message"]);
            return Err(Exit::failure(format!("{gateway} refuses to list the client's models: {message}")));
        }
        _ => not_checked(format!("{gateway} answered {status} to a request for a list of models")),
    }
    Ok(())
}

async fn list_models(format: ApiFormat, gateway: &str, token: &str) -> Result<ApiResponse, String> {
    let place = Place::parse(Port::Data, "--url", gateway)?;
    let client = client::with_token(place, token, MODELS_TIMEOUT)?;
    let path = match format {
        ApiFormat::Openai => "/models",
        ApiFormat::Anthropic => "/v1/models",
    };
    let answer = client.send(Method::GET, &format!("{}{path}", format.client_path()), None).await;
    // What it says more is about options of other commands.
    answer.map_err(|_| format!("no gateway answers at {gateway}"))
}

/// The gateway's address for clients, without a slash at its end.
///
/// # Errors
/// One sentence, if none is known, or one is invalid.
fn address(config: &Config, url: Option<String>, file: &str) -> Result<String, String> {
    let given = match url {
        Some(url) => Some(("--url".to_owned(), url)),
        None => client::default_data_address()?,
    };
    if let Some((name, text)) = given {
        return Ok(Place::parse(Port::Data, &name, &text)?.display());
    }
    let data = config.server.data_addr;
    if data.ip().is_unspecified() || data.port() == 0 {
        return Err(format!(
            "clients can't call `{data}`, which is `server.data_addr` of {file}: give the gateway's address with --url, \
             as in --url http://127.0.0.1:8080"
        ));
    }
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{data}"))
}

fn shown(file: &Path) -> String {
    printable(&file.display().to_string())
}
