//! TLS for the connections to plugins.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::ServerName,
    sign::SingleCertAndKey,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    CertificateWatch,
    files::{TlsFile, TlsFiles},
    identity::SpiffeVerifier,
    material::TlsMaterial,
    provider,
    reload::{ReloadingConfig, platform_roots},
};
use crate::config;

/// Verifies a plugin's certificate, and presents the gateway's own.
pub(crate) struct Client {
    reloaded: Arc<ReloadingConfig<ClientConfig>>,
    /// Checked instead of the host's name.
    server_name: Option<ServerName<'static>>,
}

impl Client {
    /// A client for `plugin`. Without `tls`, the machine's CAs are trusted and the gateway presents no
    /// certificate. `within` is the directory that its files must be in; `None` allows any.
    ///
    /// # Errors
    /// One sentence that names the key and the file.
    pub(crate) fn new(
        plugin: &str,
        tls: Option<&config::ClientTls>,
        within: Option<&Path>,
        watch: &CertificateWatch,
    ) -> Result<Self, String> {
        let file = |key, path: Option<&PathBuf>| {
            Some(TlsFile { key, path: path?.clone(), within: within.map(Path::to_owned) })
        };
        let files = TlsFiles {
            pair: tls.and_then(|tls| {
                let chain = file("tls.cert_file", tls.cert_file.as_ref())?;
                Some((chain, file("tls.key_file", tls.key_file.as_ref())?))
            }),
            ca: tls.and_then(|tls| file("tls.ca_file", tls.ca_file.as_ref())),
        };
        let server_name = match tls.and_then(|tls| tls.server_name.as_deref()) {
            Some(name) => Some(server_name(name).ok_or("`tls.server_name` is not a host name")?),
            None => None,
        };
        let no_roots = |error| format!("{error}: set `tls.ca_file`");
        let platform = if files.ca.is_none() { Some(platform_roots().map_err(no_roots)?) } else { None };
        let id: Option<Arc<str>> = tls.and_then(|tls| tls.spiffe_id.as_deref()).map(Into::into);
        let make = move |material| client_config(material, platform.as_ref(), id.as_ref());
        let reloaded = Arc::new(ReloadingConfig::load(Some(plugin), files, make)?);
        watch.add(&reloaded);
        Ok(Client { reloaded, server_name })
    }

    /// The handshake with `host`, or with the name that the configuration sets instead. The caller sets the
    /// time limit.
    ///
    /// # Errors
    /// The error of rustls about the other end.
    pub(crate) async fn connect<S>(&self, host: &ServerName<'static>, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.server_name.as_ref().unwrap_or(host).clone();
        TlsConnector::from(self.reloaded.current()).connect(name, stream).await
    }
}

/// TLS with servers on the internet, for HTTP clients: the machine's CAs are trusted, and the gateway presents no certificate.
///
/// # Errors
/// The machine trusts no CA.
pub(crate) fn http_client_config() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("TLS can't be set up: {error}"))?;
    let mut config = builder.with_root_certificates(platform_roots()?).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A host as certificates name it. Returns `None` for a host that a certificate can't name.
pub(crate) fn server_name(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).ok()
}

fn client_config(
    material: TlsMaterial,
    platform: Option<&Arc<RootCertStore>>,
    id: Option<&Arc<str>>,
) -> Result<ClientConfig, String> {
    let unusable = |error: &dyn std::error::Error| format!("TLS can't be set up: {error}");
    let roots =
        material.ca.map(|ca| ca.roots).or_else(|| platform.cloned()).ok_or("`tls.ca_file` is missing")?;
    let verifier: Arc<dyn ServerCertVerifier> = match id {
        Some(id) => Arc::new(SpiffeVerifier { id: Arc::clone(id), roots, provider: provider() }),
        None => WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| unusable(&error))?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .dangerous() // of the two verifiers one is rustls's own, the other adds to what rustls checks
        .with_custom_certificate_verifier(verifier);
    let mut config = match material.pair {
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair.key))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // On a resumed connection the plugin shows no certificate, so an expired identity would remain valid.
    config.resumption = Resumption::disabled();
    Ok(config)
}
