//! What `serve --dev` makes of a configuration: one more issuer, whose key ends with the process, every tenant
//! accepted, and loopback alone (docs/decisions/0024-serve-dev.md). It changes what was read and checked, so that a
//! file is read as for any other start.

use std::net::SocketAddr;

use secrecy::SecretString;
use serde_json::json;

use super::{
    auth::{Issuer, IssuerTenants},
    load::LoadedConfig,
    model::UnknownTenant,
    problem::{Problem, Problems},
};

/// The issuer that is added; one of the file by this name gives way to it.
pub const DEVELOPMENT_ISSUER: &str = "hookgate-dev";

impl LoadedConfig {
    /// The configuration for development, with `secret` (at least 32 bytes) as the added issuer's HS256 key.
    ///
    /// # Errors
    /// Every address that it listens on and that isn't loopback, with the line.
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
            // As the only one it needn't say that.
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
