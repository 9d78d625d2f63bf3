//! TLS on both sides of the gateway: loads certificates, keys and CAs from files, keeps them current, and
//! verifies the other end (docs/protocol.md, section 5).
//!
//! ```text
//! files.rs (bytes) -> material.rs (checked) -> server.rs | client.rs (rustls) -> reload.rs (every 2 s)
//! ```
//!
//! A connection uses the files' contents that are current when it begins; a change affects new connections
//! only. Sessions are not resumed where certificates are checked, so that every connection presents its own.

mod certificate;
mod client;
mod files;
mod identity;
mod material;
mod reload;
mod server;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub(crate) use self::{
    client::{Client, http_client_config, server_name},
    identity::WrongIdentity,
};
pub use self::{
    reload::{CertificateExpiry, CertificateWatch},
    server::Server,
};

/// The only cryptography provider.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    Arc::clone(&PROVIDER)
}
