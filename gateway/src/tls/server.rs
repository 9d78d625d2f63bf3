//! TLS for the connections from callers.

use std::{io, sync::Arc};

use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::SingleCertAndKey,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    CertificateWatch,
    files::{TlsFile, TlsFiles},
    material::TlsMaterial,
    provider,
    reload::ReloadingConfig,
};
use crate::config;

/// A listener's certificate, and which clients it accepts.
#[derive(Clone)]
pub struct Server(Arc<ReloadingConfig<ServerConfig>>);

impl Server {
    /// Reads the files of `tls`; `watch` follows them.
    ///
    /// # Errors
    /// One sentence that names the key and the file.
    pub fn new(tls: &config::ServerTls, watch: &CertificateWatch) -> Result<Self, String> {
        let file = |key, path: &std::path::PathBuf| TlsFile { key, path: path.clone(), within: None };
        let files = TlsFiles {
            pair: Some((file("cert_file", &tls.cert_file), file("key_file", &tls.key_file))),
            ca: tls.client_ca_file.as_ref().map(|path| file("client_ca_file", path)),
        };
        let reloaded = Arc::new(ReloadingConfig::load(None, files, server_config)?);
        watch.add(&reloaded);
        Ok(Server(reloaded))
    }

    /// The handshake. The caller sets the time limit.
    ///
    /// # Errors
    /// The error of rustls, such as that the client presents no certificate.
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.0.current()).accept(stream).await
    }
}

fn server_config(material: TlsMaterial) -> Result<ServerConfig, String> {
    let pair = material.pair.ok_or("`cert_file` is missing")?;
    let unusable = |error: &dyn std::error::Error| format!("TLS can't be set up: {error}");
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let checks_clients = material.ca.is_some();
    let builder = match material.ca {
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(ca.roots, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(&error))?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.key)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if checks_clients {
        // A resumed connection presents no certificate, so an expired one would be accepted because of an
        // earlier connection.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
