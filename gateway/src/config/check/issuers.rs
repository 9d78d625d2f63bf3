//! Checks of issuers and their keys (docs/protocol.md, section 5).

use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::{ConfigChecker, is_loopback, tenant_id_fault};
use crate::{
    config::{
        auth::{Issuer, IssuerTenants, Key, Scope},
        partial_config::PartialEntry,
        problem::{did_you_mean, item},
        schema::alternatives,
        units::Span,
    },
    egress,
    json::pointer::child,
};

const SYMMETRIC_ALGORITHMS: &[&str] = &["HS256", "HS384", "HS512"];
const ASYMMETRIC_ALGORITHMS: &[&str] =
    &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// Shortest shared secret, in bytes.
const MIN_SECRET_BYTES: usize = 32;

impl ConfigChecker<'_> {
    pub(super) fn issuers(&mut self) {
        let issuers = &self.draft.issuers;
        self.unique(
            "issuer",
            issuers.iter().filter_map(|item| Some((child(&item.pointer, "issuer"), item.id.clone()?))),
        );
        for item in issuers {
            if let Some(issuer) = &item.value {
                self.issuer(item, issuer, issuers.len() > 1);
            }
        }
    }

    fn issuer(&mut self, entry: &PartialEntry<Issuer>, issuer: &Issuer, several: bool) {
        let pointer = entry.pointer.as_str();
        self.exactly_one(
            entry,
            &[("jwks_url", issuer.jwks_url.is_some()), ("keys", !issuer.keys.is_empty())],
        );
        if let Some(url) = &issuer.jwks_url
            && !is_jwks_url(url)
        {
            self.report(
                child(pointer, "jwks_url"),
                "`jwks_url` must be an https URL, or an http one on loopback",
                "write `https://host/path`",
            );
        }
        if let Some(host) = issuer.jwks_url.as_deref().and_then(denied_host) {
            self.report(
                child(pointer, "jwks_url"),
                format!("`{host}` {}", egress::DENIED_MESSAGE),
                "write the host that publishes the issuer's keys",
            );
        }
        if several && issuer.tenants.is_none() && !entry.tainted {
            self.report(
                pointer,
                "`tenants` is missing: with more than one issuer, each needs it",
                "add `tenants: [ids]`, `tenants: {fixed: id}` or `tenants: \"*\"`",
            );
        }
        self.issuer_tenants(&child(pointer, "tenants"), issuer.tenants.as_ref());
        self.admin_audience(entry, issuer);
        let minutes = |n: u64| Span(Duration::from_secs(n * 60));
        self.span(&child(pointer, "leeway"), issuer.leeway, (minutes(0), minutes(5)));
        self.span(&child(pointer, "jwks_ttl"), issuer.jwks_ttl, (Span(Duration::from_secs(1)), minutes(60)));
        for (index, key) in issuer.keys.iter().enumerate() {
            self.key(&item(&child(pointer, "keys"), index), key, entry.tainted);
        }
    }

    fn admin_audience(&mut self, entry: &PartialEntry<Issuer>, issuer: &Issuer) {
        let Some(audience) = &issuer.admin_audience else { return };
        let pointer = child(&entry.pointer, "admin_audience");
        if *audience == issuer.audience {
            self.report(
                &pointer,
                "`admin_audience` equals `audience`: agents' tokens would also be operators' tokens",
                "use different values",
            );
        }
        let reads = |scope: &Scope| matches!(scope, Scope::Read | Scope::Admin | Scope::Plugin);
        if !issuer.scopes.iter().any(reads) && !entry.tainted {
            self.report(
                pointer,
                "`admin_audience` has no effect: `scopes` contains none of `hookgate:read`, `hookgate:admin` and \
                 `hookgate:plugin`",
                "add one of them to `scopes`, or leave `admin_audience` out",
            );
        }
    }

    fn issuer_tenants(&mut self, pointer: &str, tenants: Option<&IssuerTenants>) {
        let ids: Vec<(String, &str)> = match tenants {
            Some(IssuerTenants::List(ids)) => {
                ids.iter().enumerate().map(|(index, id)| (item(pointer, index), id.as_str())).collect()
            }
            Some(IssuerTenants::Fixed(id)) => vec![(child(pointer, "fixed"), id.as_str())],
            Some(IssuerTenants::Any) | None => Vec::new(),
        };
        for (pointer, id) in ids {
            if let Some(fault) = tenant_id_fault(id) {
                self.report(pointer, fault, "write one tenant's id; for all tenants write `tenants: \"*\"`");
            }
        }
    }

    fn key(&mut self, pointer: &str, key: &Key, tainted: bool) {
        let entry = PartialEntry { pointer: pointer.to_owned(), id: None, value: Some(()), tainted };
        let (secret, pem) = (key.secret.is_some(), key.pem_file.is_some());
        self.exactly_one(
            &entry,
            &[("secret", secret), ("pem_file", pem), ("jwk_file", key.jwk_file.is_some())],
        );
        let known = match (secret, pem) {
            (true, false) => SYMMETRIC_ALGORITHMS.to_vec(),
            (false, true) => ASYMMETRIC_ALGORITHMS.to_vec(),
            _ => [SYMMETRIC_ALGORITHMS, ASYMMETRIC_ALGORITHMS].concat(),
        };
        match &key.alg {
            Some(alg) if known.contains(&alg.as_str()) => {}
            Some(alg) => {
                let remedy = did_you_mean(alg, known.iter().copied());
                let message = format!("`{alg}` is not an algorithm for this key");
                let remedy = remedy.unwrap_or_else(|| format!("write {}", alternatives(&known)));
                self.report(child(pointer, "alg"), message, remedy);
            }
            None if (secret || pem) && !tainted => self.report(
                pointer,
                "`alg` is missing: a secret or a PEM file doesn't name its algorithm",
                format!("add `alg`: {}", alternatives(&known)),
            ),
            None => {}
        }
        if key.secret.as_ref().is_some_and(|secret| secret.expose_secret().len() < MIN_SECRET_BYTES) {
            self.report(
                child(pointer, "secret"),
                format!("`secret` has fewer than {MIN_SECRET_BYTES} bytes"),
                "use a random secret of 32 bytes or more, such as from `openssl rand -hex 32`",
            );
        }
    }
}

/// The host of `url` if it is an address that is never dialled. Parsed as the HTTP client does, which accepts
/// a number as an address.
pub(super) fn denied_host(url: &str) -> Option<String> {
    let host = reqwest::Url::parse(url).ok()?.host_str()?.to_owned();
    egress::denies_literal(&host).then_some(host)
}

/// Whether `url` is https, or http on loopback, without user and password.
fn is_jwks_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    let Some(authority) = uri.authority().filter(|authority| !authority.as_str().contains('@')) else {
        return false;
    };
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_loopback(authority.host()),
        _ => false,
    }
}
