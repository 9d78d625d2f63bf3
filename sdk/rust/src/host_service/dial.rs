//! Connections to a gateway's host services.

use std::{error::Error, path::Path, time::Duration};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// The environment variable that names a PEM file with the CAs to trust at `https://` endpoints. Without it, those
/// that the machine trusts.
const CA_FILE: &str = "HOOKGATE_HOST_CA_FILE";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an endpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("`host_endpoint` isn't unix:///path, http://host:port or https://host:port")]
    Endpoint,
    #[error("{CA_FILE}: can't read {file}: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("{CA_FILE}: {0} has no certificate in PEM form")]
    NoCertificate(String),
    #[error("TLS can't be used for the host services: {0}")]
    Tls(String),
}

/// As [`dial`], with the CAs that the environment names.
pub(crate) fn dial_with_environment(endpoint: &str) -> Result<Channel, DialError> {
    let ca_file = std::env::var_os(CA_FILE);
    dial(endpoint, ca_file.as_deref().map(AsRef::as_ref))
}

/// A channel to `unix:///path`, `http://` or `https://`. It connects with the first call, and again after a lost
/// connection. Must be called within a tokio runtime.
pub(super) fn dial(endpoint: &str, ca_file: Option<&Path>) -> Result<Channel, DialError> {
    let is_tls = endpoint.starts_with("https://");
    if !is_tls && !endpoint.starts_with("http://") && !endpoint.starts_with("unix:///") {
        return Err(DialError::Endpoint);
    }
    let channel = Endpoint::from_shared(endpoint.to_owned()).map_err(|_| DialError::Endpoint)?;
    let mut channel = channel
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    if is_tls {
        let tls = channel.tls_config(tls_config(ca_file)?.timeout(CONNECT_TIMEOUT));
        channel = tls.map_err(|error| DialError::Tls(with_source(&error)))?;
    }
    Ok(channel.connect_lazy())
}

fn tls_config(ca_file: Option<&Path>) -> Result<ClientTlsConfig, DialError> {
    let Some(path) = ca_file else { return Ok(ClientTlsConfig::new().with_native_roots()) };
    let file = path.display().to_string();
    let pem = match std::fs::read_to_string(path) {
        Ok(pem) => pem,
        Err(source) => return Err(DialError::Read { file, source }),
    };
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        return Err(DialError::NoCertificate(file));
    }
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
}

fn with_source(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
