//! A certificate authority for tests and its certificates: as files for a gateway, and as rustls
//! configurations for plugins and agents.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// An authority that is trusted only where it is configured. Clones share it.
#[derive(Clone)]
pub struct Ca(Arc<Inner>);

struct Inner {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    folder: TempDir,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ca({})", self.file().display())
    }
}

impl Default for Ca {
    fn default() -> Self {
        Ca::new()
    }
}

impl Ca {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test CA");
        let certificate = params.self_signed(&key).expect("a CA signs itself");
        let folder = folder();
        fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("a file can be written");
        let certificate = certificate.der().clone();
        Ca(Arc::new(Inner { issuer: Issuer::new(params, key), certificate, folder }))
    }

    /// The path of its certificate, in PEM.
    pub fn file(&self) -> PathBuf {
        self.0.folder.path().join("ca.pem")
    }

    /// A pair for these names: addresses, URIs or host names.
    pub fn pair(&self, names: &[&str]) -> Pair {
        self.pair_with(names, |_| {})
    }

    /// An expired pair for these names.
    pub fn ended_pair(&self, names: &[&str]) -> Pair {
        self.pair_with(names, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1))
    }

    /// A pair for these names, with a change to its parameters.
    pub fn pair_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0.issuer).expect("a CA signs");
        Pair { chain: certificate.pem(), key: key.serialize_pem() }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.certificate.clone()).expect("it is a CA's");
        Arc::new(roots)
    }

    /// The TLS configuration of an agent that trusts this CA and presents `pair`.
    pub fn client(&self, pair: Option<&Pair>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the default versions are known")
            .with_root_certificates(self.roots());
        match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let (chain, key) = pair.der();
                builder.with_client_auth_cert(chain, key).expect("the pair is one")
            }
        }
    }
}

/// The TLS configuration of an HTTP/2 server that presents `pair`, and requires certificates of `clients`.
pub fn server(pair: &Pair, clients: Option<&Ca>) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the default versions are known");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(ca.roots(), provider());
            builder.with_client_cert_verifier(verifier.build().expect("the CA is one"))
        }
    };
    let (chain, key) = pair.der();
    let mut config = builder.with_single_cert(chain, key).expect("the pair is one");
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub chain: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}

impl Pair {
    /// The certificate as it is presented.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).expect("it is a certificate")
    }

    fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("it is a key");
        (vec![self.certificate()], key)
    }

    /// Writes the pair to files in a new folder.
    pub fn files(&self) -> PairFiles {
        let files = PairFiles { folder: folder() };
        files.replace(self);
        files
    }
}

/// A pair's files for a gateway. They are deleted on drop.
#[derive(Debug)]
pub struct PairFiles {
    folder: TempDir,
}

impl PairFiles {
    /// The path of the certificate.
    pub fn chain(&self) -> PathBuf {
        self.folder.path().join("tls.crt")
    }

    /// The path of the key.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("tls.key")
    }

    /// Replaces both files by another pair, each atomically.
    pub fn replace(&self, pair: &Pair) {
        self.write(&self.chain(), &pair.chain);
        self.write(&self.key(), &pair.key);
    }

    /// Replaces one file atomically, because the gateway may read it at any moment.
    pub fn write(&self, path: &Path, text: &str) {
        let beside = path.with_extension("next");
        fs::write(&beside, text).expect("a file can be written");
        fs::rename(beside, path).expect("a file can be written");
    }

    /// `cert_file`, `key_file` and the members of `more`.
    pub fn members(&self, more: &Value) -> Value {
        let mut members = json!({ "cert_file": self.chain(), "key_file": self.key() });
        let more = more.as_object().into_iter().flatten();
        more.for_each(|(key, value)| members[key] = value.clone());
        members
    }
}

/// The certificate that a server presents to a new connection.
pub async fn shown_by(address: SocketAddr, client: ClientConfig) -> CertificateDer<'static> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.expect("it speaks TLS");
    let shown = stream.get_ref().1.peer_certificates().expect("a server shows a certificate");
    shown[0].clone().into_owned()
}

fn alternative(name: &str) -> SanType {
    let text = || name.try_into().expect("names in certificates are ASCII");
    match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) if name.contains("://") => SanType::URI(text()),
        Err(_) => SanType::DnsName(text()),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}
