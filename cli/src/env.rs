//! `hookgate env`: the lines with which a shell makes an unmodified client use the gateway for its models.

use std::path::Path;

use clap::Args;

use super::{
    Exit,
    client::{self, Place, Port},
    model_client::{ModelClient, codex_toml},
    output::{self, printable},
    shell_quote,
    token::{self, SigningArgs, TokenChecker},
};
use hookgate::{config::Config, core::api_format::ApiFormat};

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
    match text(args).await {
        Ok(text) => output::print(&text, Exit::ok()),
        Err(exit) => exit,
    }
}

async fn text(args: EnvArgs) -> Result<String, Exit> {
    let EnvArgs { client, signing, tenant, url, toml } = args;
    if toml && client != ModelClient::Codex {
        return Err(Exit::usage("--toml is only for codex: other clients read all from the environment"));
    }
    let checker = TokenChecker::new(&signing.config).map_err(|problems| Exit::problems(&problems))?;
    let file = shown(&signing.config);
    serves(&checker.config, client, &file).map_err(Exit::failure)?;
    let gateway = address(&checker.config, url, &file).map_err(Exit::usage)?;
    if toml {
        return Ok(codex_toml(&gateway));
    }
    let tenant = tenant.expect("the arguments ask for it without --toml");
    let token = token::for_agent(&checker, signing, tenant).await?;
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

/// Checks that a gateway of this configuration has models for the client.
///
/// # Errors
/// One sentence with what to add.
fn serves(config: &Config, client: ModelClient, file: &str) -> Result<(), String> {
    let Some(llm) = &config.llm else {
        return Err(format!(
            "{file} has no `llm`, so its gateway serves no models: add `llm` as in docs/llm-proxy.md"
        ));
    };
    let format = client.format();
    if llm.upstreams.iter().any(|upstream| upstream.format == format) {
        return Ok(());
    }
    let provider = match format {
        ApiFormat::Openai => "OpenAI",
        ApiFormat::Anthropic => "Anthropic",
    };
    Err(format!(
        "the client speaks {provider}'s API, and no upstream in `llm` of {file} does: add one with `format: {}`",
        format.as_str()
    ))
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
