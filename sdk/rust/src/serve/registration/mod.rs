//! Registers a plugin's process with a gateway, for plugins with `self_registration: true` (docs/protocol.md,
//! section 2).

mod backoff;
mod registrar;
mod resettable_body;

use std::{net::SocketAddr, path::PathBuf};

use self::registrar::Registrar;
pub(super) use self::registrar::RunningRegistrar;
use crate::{
    Address,
    host_service::{DialError, dial_with_environment},
};

/// Longest endpoint, in bytes.
const MAX_ENDPOINT_BYTES: usize = 400;

/// Where and how a process registers itself, for [`Server::with_registration`](crate::Server::with_registration).
///
/// The registration is renewed while the plugin is served, made again when the connection to the gateway breaks, and
/// removed when the plugin stops.
#[derive(Debug, Clone)]
pub struct Registration {
    gateway: String,
    token_file: PathBuf,
    endpoint: Option<String>,
}

/// Why a process can't register itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The gateway's host endpoint can't be used.
    #[error("can't register the plugin with the gateway `{gateway}`: {reason}")]
    Gateway {
        /// The endpoint.
        gateway: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The process's own endpoint is malformed.
    #[error(
        "can't register the endpoint `{0}`: write unix:///absolute/path, http://host:port or https://host:port, at \
         most 400 bytes"
    )]
    Endpoint(String),
    /// The process listens at all addresses of the machine, so that address is not one to register.
    #[error(
        "can't register the endpoint `{0}`, which is no address that gateways can reach: say where they reach this \
         process with `Registration::at`, for example http://10.1.2.3:7000"
    )]
    Wildcard(String),
}

impl Registration {
    /// Registers with the gateway that has this host endpoint: `unix:///path`, `http://host:port` or
    /// `https://host:port`. `HOOKGATE_HOST_CA_FILE` names the CAs to trust at `https://`; without it, those that the
    /// machine trusts. `HOOKGATE_HOST_CERT_FILE` and `HOOKGATE_HOST_KEY_FILE` name the client certificate.
    ///
    /// `token_file` has a token of one of the gateway's issuers, with the scope `hookgate:plugin`. It is read again for
    /// every registration, so it may be replaced while the plugin is served.
    pub fn new(gateway: impl Into<String>, token_file: impl Into<PathBuf>) -> Self {
        Registration { gateway: gateway.into(), token_file: token_file.into(), endpoint: None }
    }

    /// Where gateways reach this process: `unix:///path`, `http://host:port` or `https://host:port`. The default is the
    /// address at which the process listens.
    #[must_use]
    pub fn at(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Begins to register the plugin that listens at `address`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the gateway or the endpoint can't be used.
    pub(super) fn start(
        self,
        plugin: &str,
        address: &Address,
    ) -> Result<RunningRegistrar, RegistrationError> {
        let Registration { gateway, token_file, endpoint } = self;
        let endpoint = endpoint.unwrap_or_else(|| address.to_string());
        check_endpoint(&endpoint)?;
        if let Err(error) = dial_with_environment(&gateway) {
            let reason = match error {
                DialError::Endpoint => "write unix:///path, http://host:port or https://host:port".to_owned(),
                error => error.to_string(),
            };
            return Err(RegistrationError::Gateway { gateway, reason });
        }
        Ok(Registrar::new(plugin.to_owned(), endpoint, gateway, token_file).start())
    }
}

/// Checks that gateways may be able to reach `endpoint`.
fn check_endpoint(endpoint: &str) -> Result<(), RegistrationError> {
    let malformed = || RegistrationError::Endpoint(endpoint.to_owned());
    if endpoint.len() > MAX_ENDPOINT_BYTES {
        return Err(malformed());
    }
    // `Address` has no `https://`, because nothing here listens with TLS.
    let without_tls = endpoint.strip_prefix("https://").map(|authority| format!("http://{authority}"));
    let address = without_tls.as_deref().unwrap_or(endpoint).parse().map_err(|_| malformed())?;
    let Address::Tcp(authority) = address else { return Ok(()) };
    match authority.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err(malformed()),
        Ok(address) if address.ip().to_canonical().is_unspecified() => {
            Err(RegistrationError::Wildcard(endpoint.to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
