//! `hookgate serve --dev`: a signing key for the lifetime of the process, and a printed token and call. The key is
//! never shown or written (docs/decisions/0024-serve-dev.md).

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use secrecy::{ExposeSecret as _, SecretString};

use crate::{keygen, model_client::ModelClient, shell_quote};
use hookgate::{
    auth::{self, Port, TokenRequest},
    config::{self, Config, DEVELOPMENT_ISSUER, LoadedConfig, Problems, Scope},
    control::file_source::Source,
};

/// The configuration if no file is given.
const BUILT_IN_CONFIG: &str = include_str!("dev.yaml");
/// Tenant of the token.
const DEV_TENANT: &str = "dev";
/// Lifetime of the token, unless the process and its key end sooner.
const DEV_TOKEN_TTL: Duration = Duration::from_secs(24 * 3_600);

/// Development mode, with the key of this process.
pub(super) struct DevMode(SecretString);

impl DevMode {
    /// Makes a random key.
    ///
    /// # Errors
    /// One sentence, if the system has no random numbers.
    pub(super) fn new() -> Result<Self, String> {
        Ok(DevMode(keygen::random()?.into()))
    }

    /// Loads `file` or the built-in configuration, adjusted for development, at every reload. The environment
    /// overrides either.
    pub(super) fn source(self, file: Option<&Path>) -> Source {
        let path = file.map(Path::to_owned);
        Source::new(file, move || self.load(path.as_deref()))
    }

    fn load(&self, file: Option<&Path>) -> Result<LoadedConfig, Problems> {
        let loaded = match file {
            Some(file) => config::load(file, config::environment_variables())?,
            None => config::from_text(
                "built-in configuration".into(),
                BUILT_IN_CONFIG,
                config::environment_variables(),
            )?,
        };
        self.open(loaded)
    }

    /// Adjusts a configuration for development.
    ///
    /// # Errors
    /// It has addresses that aren't loopback.
    fn open(&self, loaded: LoadedConfig) -> Result<LoadedConfig, Problems> {
        loaded.for_development(self.0.expose_secret().into())
    }
}

/// How clients of the APIs that the configuration has reach their models.
fn model_clients(config: &Config, gateway: &str) -> String {
    let upstreams = config.llm.iter().flat_map(|llm| &llm.upstreams);
    let formats: Vec<_> = upstreams.map(|upstream| upstream.format).collect();
    let lines: String = [ModelClient::Openai, ModelClient::Anthropic]
        .iter()
        .filter(|client| formats.contains(&client.format()))
        .map(|client| format!("  export {}\n", client.assignments(gateway, "$HOOKGATE_TOKEN")))
        .collect();
    match lines.is_empty() {
        true => lines,
        false => {
            format!("An agent that calls its model through one of these APIs needs no change:\n\n{lines}\n")
        }
    }
}

/// The text printed for a person: a token, a call, where models are, and the next command.
///
/// # Errors
/// One sentence, if no token can be signed.
pub(super) fn banner(config: &Config, data: SocketAddr, ops: SocketAddr) -> Result<String, String> {
    let order = TokenRequest {
        issuer: Some(DEVELOPMENT_ISSUER.into()),
        tenant: Some(DEV_TENANT.into()),
        operator: DEV_TENANT.into(),
        scopes: vec![Scope::Invoke],
        plugins: Vec::new(),
        ttl: DEV_TOKEN_TTL,
        port: Port::Data,
    };
    let token = auth::mint(&config.auth, &order, SystemTime::now())?.token;
    // curl needn't trust the certificate's CA: nobody can intercept loopback.
    let (scheme, insecure) = if config.server.tls.is_some() { ("https", "k") } else { ("http", "") };
    let asks = config.server.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
    let certificate =
        if asks { "Callers must present a certificate: add --cert and --key to the call.\n\n" } else { "" };
    let hookgate = shell_quote::program();
    let models = model_clients(config, &format!("{scheme}://{data}"));
    Ok(format!(
        "\nFor development only: every tenant is accepted, and a throw-away key signs the token below. Listening on\n\
         {scheme}://{data} for agents and http://{ops} for operators, on this machine only.\n\n\
         A token of tenant `{DEV_TENANT}`, valid for 24 hours or until this process ends:\n\n  \
         export HOOKGATE_TOKEN={token}\n\n\
         A call, in another terminal:\n\n  \
         curl -si{insecure} {scheme}://{data}/v1/before-llm-request -H 'content-type: application/json' \
         -H 'authorization: Bearer {token}' -d '{{\"payload\": {{\"text\": \"write to ada@example.com\"}}}}'\n\n\
         {certificate}{models}Then `{hookgate} init` creates a configuration of your own. Press Ctrl-C to stop.\n\n"
    ))
}
