//! Connections to a gateway's host services.

use std::{
    env,
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// The environment variable that names a PEM file with the CAs to trust at `https://` endpoints. Without it, those
/// that the machine trusts.
const CA_FILE: &str = "HOOKGATE_HOST_CA_FILE";
/// The environment variables that name the PEM files of a client certificate and its private key, for a gateway with
/// `server.tls.client_ca_file`.
const CERT_FILE: &str = "HOOKGATE_HOST_CERT_FILE";
const KEY_FILE: &str = "HOOKGATE_HOST_KEY_FILE";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an endpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("`host_endpoint` isn't unix:///path, http://host:port or https://host:port")]
    Endpoint,
    #[error("{variable}: can't read {file}: {source}")]
    Read { variable: &'static str, file: String, source: io::Error },
    #[error("{variable}: {file} has no {content} in PEM form")]
    NotPem { variable: &'static str, file: String, content: &'static str },
    #[error("{CERT_FILE} and {KEY_FILE} belong together; {0} is not set")]
    Unpaired(&'static str),
    #[error("{KEY_FILE}: {0} is encrypted; name a file with the key in plaintext")]
    Encrypted(String),
    #[error(
        "TLS can't be used for the host services: {0}; check the files that {CA_FILE}, {CERT_FILE} and {KEY_FILE} name"
    )]
    Tls(String),
}

/// The files for TLS to a gateway.
#[derive(Debug, Default, Clone)]
pub(super) struct TlsFiles {
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// As [`dial`], with the files that the environment names.
pub(crate) fn dial_with_environment(endpoint: &str) -> Result<Channel, DialError> {
    let [ca, certificate, key] =
        [CA_FILE, CERT_FILE, KEY_FILE].map(|variable| env::var_os(variable).map(PathBuf::from));
    dial(endpoint, &TlsFiles { ca, certificate, key })
}

/// A channel to `unix:///path`, `http://` or `https://`. It connects with the first call, and again after a lost
/// connection. Must be called within a tokio runtime.
pub(super) fn dial(endpoint: &str, files: &TlsFiles) -> Result<Channel, DialError> {
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
        let tls = channel.tls_config(files.client_config()?.timeout(CONNECT_TIMEOUT));
        channel = tls.map_err(|error| DialError::Tls(with_source(&error)))?;
    }
    Ok(channel.connect_lazy())
}

impl TlsFiles {
    fn client_config(&self) -> Result<ClientTlsConfig, DialError> {
        let tls = match &self.ca {
            None => ClientTlsConfig::new().with_native_roots(),
            Some(path) => {
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(certificates(CA_FILE, path)?))
            }
        };
        Ok(match (&self.certificate, &self.key) {
            (None, None) => tls,
            (Some(certificate), Some(key)) => {
                let pem = read_pem(KEY_FILE, key, "PRIVATE KEY-----", "private key")?;
                if pem.contains("ENCRYPTED") {
                    return Err(DialError::Encrypted(key.display().to_string()));
                }
                tls.identity(Identity::from_pem(certificates(CERT_FILE, certificate)?, pem))
            }
            (Some(_), None) => return Err(DialError::Unpaired(KEY_FILE)),
            (None, Some(_)) => return Err(DialError::Unpaired(CERT_FILE)),
        })
    }
}

fn certificates(variable: &'static str, path: &Path) -> Result<String, DialError> {
    read_pem(variable, path, "-----BEGIN CERTIFICATE-----", "certificate")
}

fn read_pem(
    variable: &'static str,
    path: &Path,
    marker: &str,
    content: &'static str,
) -> Result<String, DialError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(pem) if pem.contains(marker) => Ok(pem),
        Ok(_) => Err(DialError::NotPem { variable, file, content }),
        Err(source) => Err(DialError::Read { variable, file, source }),
    }
}

fn with_source(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
