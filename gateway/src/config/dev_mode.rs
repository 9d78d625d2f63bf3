//! Changes a configuration for `serve --dev`: adds an issuer with a temporary key, accepts every tenant, and
//! requires loopback addresses (docs/decisions/0024-serve-dev.md). Works on the loaded configuration, so that
//! the file is read as usual.

use std::net::SocketAddr;

use secrecy::SecretString;
use serde_json::json;

use super::{
    auth::{Issuer, IssuerTenants},
    load::LoadedConfig,
    model::UnknownTenant,
    problem::{Problem, Problems},
};

/// The added issuer. It replaces one with the same name in the file.
pub const DEVELOPMENT_ISSUER: &str = "hookgate-dev";

impl LoadedConfig {
    /// The configuration for development, with `secret` (at least 32 bytes) as the added issuer's HS256 key.
    ///
    /// # Errors
    /// Every listening address that isn't loopback, with its line.
    pub fn for_development(mut self, secret: SecretString) -> Result<Self, Problems> {
        let server = &self.config.server;
        let addresses = [
            ("data_addr", Some(server.data_addr)),
            ("ops_addr", Some(server.ops_addr)),
            ("admin_addr", self.config.admin_addr()),
        ];
        let reachable = |(key, address): (&str, Option<SocketAddr>)| {
            let address = address.filter(|address| !address.ip().is_loopback())?;
            let message = format!(
                "`{key}` must be a loopback address for `serve --dev`, which prints a token, not `{address}`"
            );
            let remedy = format!("write `127.0.0.1:{}`, or start without --dev", address.port());
            Some(Problem::new(format!("/server/{key}"), message).remedy(remedy))
        };
        let problems: Vec<_> = addresses.into_iter().filter_map(reachable).collect();
        if !problems.is_empty() {
            return Err(self.render(&problems));
        }
        let issuers = &mut self.config.auth.issuers;
        issuers.retain(|issuer| issuer.issuer != DEVELOPMENT_ISSUER);
        for issuer in issuers.iter_mut() {
            // The only issuer may omit this; with the added one it has to be set.
            issuer.tenants.get_or_insert(IssuerTenants::Any);
        }
        issuers.push(issuer(secret));
        self.config.tenants.unknown = UnknownTenant::Accept;
        Ok(self)
    }
}

fn issuer(secret: SecretString) -> Issuer {
    let written = json!({
        "issuer": DEVELOPMENT_ISSUER,
        "audience": "hookgate",
        "tenants": "*",
        "keys": [{ "alg": "HS256" }],
    });
    let mut issuer: Issuer = serde_json::from_value(written).expect("an issuer as a file has it");
    issuer.keys[0].secret = Some(secret);
    issuer
}
