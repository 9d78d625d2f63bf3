//! `hookgate serve --dev`: a key that lives as long as the process, and what is printed so that a person can call. The key
//! is never shown or written; the token is, which is the point of it (docs/decisions/0024-serve-dev.md).

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use secrecy::{ExposeSecret as _, SecretString};

use crate::{keygen, shell_quote};
use hookgate::{
    auth::{self, Port, TokenRequest},
    config::{self, Config, DEVELOPMENT_ISSUER, LoadedConfig, Problems, Scope},
    control::file_source::Source,
};

/// What is served where no file is given.
const BUILT_IN_CONFIG: &str = include_str!("dev.yaml");
/// Whose the token is.
const DEV_TENANT: &str = "dev";
/// How long the token is good: for a day's work. The key may end sooner.
const DEV_TOKEN_TTL: Duration = Duration::from_secs(24 * 3_600);

/// The key of one process.
pub(super) struct DevMode(SecretString);

impl DevMode {
    /// With a key of its own.
    ///
    /// # Errors
    /// One sentence, when the system has no random numbers.
    pub(super) fn new() -> Result<Self, String> {
        Ok(DevMode(keygen::random()?.into()))
    }

    /// `file`, or what is built in, opened for development whenever it is read. The environment lies over either.
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

    /// What was read, opened for development.
    ///
    /// # Errors
    /// Addresses that aren't loopback.
    fn open(&self, loaded: LoadedConfig) -> Result<LoadedConfig, Problems> {
        loaded.for_development(self.0.expose_secret().into())
    }
}

/// What a person needs to call the gateway that serves `config` at these addresses: a token, a call, where to go on.
///
/// # Errors
/// One sentence, when no token can be signed.
pub(super) fn banner(config: &Config, data: SocketAddr, ops: SocketAddr) -> Result<String, String> {
    let order = TokenRequest {
        issuer: Some(DEVELOPMENT_ISSUER.into()),
        tenant: Some(DEV_TENANT.into()),
        operator: DEV_TENANT.into(),
        scopes: vec![Scope::Invoke],
        ttl: DEV_TOKEN_TTL,
        port: Port::Data,
    };
    let token = auth::mint(&config.auth, &order, SystemTime::now())?.token;
    // Its certificate is of a CA that curl needn't know; on loopback there is nobody between.
    let (scheme, insecure) = if config.server.tls.is_some() { ("https", "k") } else { ("http", "") };
    let asks = config.server.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
    let certificate =
        if asks { "Callers must show a certificate: add --cert and --key of yours to it.\n\n" } else { "" };
    let hookgate = shell_quote::program();
    Ok(format!(
        "\nFor development only: every tenant is accepted, and a key made at this start signs the token below. Listening on\n\
         {scheme}://{data} for agents and http://{ops} for operators, on this machine alone.\n\n\
         A token of tenant `{DEV_TENANT}`, good for 24 hours or until this ends:\n\n  \
         export HOOKGATE_TOKEN={token}\n\n\
         A call, in another terminal:\n\n  \
         curl -si{insecure} {scheme}://{data}/v1/before-llm-request -H 'content-type: application/json' \
         -H 'authorization: Bearer {token}' -d '{{\"payload\": {{\"text\": \"write to ada@example.com\"}}}}'\n\n\
         {certificate}Then `{hookgate} init` writes a configuration of your own. Ctrl-C ends this.\n\n"
    ))
}
