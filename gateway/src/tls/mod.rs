//! TLS on both sides of the gateway: certificates, keys and CAs from files, what is in force of them, and who the
//! other end is (docs/protocol.md, section 5). Knows nothing of what is said over a connection.
//!
//! ```text
//! files.rs (bytes) -> material.rs (checked) -> server.rs | client.rs (rustls) -> reload.rs (in force, every 2 s)
//! ```
//!
//! A connection takes what is in force when it begins; a change touches new connections alone. Nothing is resumed
//! where certificates are checked: every connection shows its own.

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
    client::{Client, server_name},
    identity::WrongIdentity,
};
pub use self::{
    reload::{CertificateExpiry, CertificateWatch},
    server::Server,
};

/// The one implementation of cryptography.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    Arc::clone(&PROVIDER)
}
