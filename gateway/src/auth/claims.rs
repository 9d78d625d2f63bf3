//! Turns verified claims into the caller's identity. Only this module knows which claims an issuer uses, and
//! what it may grant. It never looks at signatures or keys.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    refusal::{AuthRefusal, RefusalReason},
    verified::{Scopes, Validity, VerifiedToken, scope_named},
};
use crate::{
    config::{self, IssuerTenants, Scope},
    core::context::Identity,
};

/// Longest tenant, operator, user id or label value, in bytes (docs/protocol.md, sections 1 and 5).
const MAX_TEXT_BYTES: usize = 256;
/// Latest `exp` or `nbf`: the last second of the year 9999.
const MAX_TIMESTAMP: u64 = 253_402_300_799;
/// The shape of an id, as error messages describe it.
const ID_SHAPE: &str = "a string of 1 to 256 bytes without control characters";

/// Where a token is presented. Each port has its own audience, so that a token for one is worthless at the
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// The agents' port: `audience`.
    Data,
    /// The operators' port: `admin_audience`.
    Admin,
    /// The plugins' port, for registrations: `admin_audience`.
    Host,
}

/// What one issuer's claims mean, and what the issuer may grant.
#[derive(Debug)]
pub(super) struct ClaimRules {
    issuer: Arc<str>,
    audience: String,
    admin_audience: Option<String>,
    names: config::Claims,
    tenants: IssuerTenants,
    scopes: Scopes,
    leeway: Duration,
}

impl ClaimRules {
    pub(super) fn new(issuer: &config::Issuer, tenants: IssuerTenants) -> Self {
        ClaimRules {
            issuer: issuer.issuer.as_str().into(),
            audience: issuer.audience.clone(),
            admin_audience: issuer.admin_audience.clone(),
            names: issuer.claims.clone(),
            tenants,
            scopes: issuer.scopes.iter().copied().collect(),
            leeway: issuer.leeway.0,
        }
    }

    /// Reads the claims of a token that `issuer` signed and that is presented at `port`. Doesn't check the
    /// time.
    pub(super) fn read(&self, claims: &Value, port: Port) -> Result<VerifiedToken, AuthRefusal> {
        self.check_audience(claims, port)?;
        let validity = self.validity(claims)?;
        let scopes = self.scopes(claims)?.and(self.scopes);
        let operator: Arc<str> = match find(claims, &self.names.operator) {
            Some(Value::String(text)) if is_id(text) => text.as_str().into(),
            _ => return Err(AuthRefusal::claim(&self.names.operator, ID_SHAPE)),
        };
        let tenant = self.tenant(claims)?;
        let may_name_none = match port {
            Port::Data => scopes.contains(Scope::Read) || scopes.contains(Scope::Admin),
            // The admin scope covers all tenants, so the issuer must be allowed to speak for all of them.
            Port::Admin | Port::Host => self.tenants == IssuerTenants::Any,
        };
        if tenant.is_none() && !may_name_none {
            return Err(AuthRefusal::claim(&self.names.tenant, ID_SHAPE));
        }
        let user_id = self.user_id(claims)?;
        // Another issuer's claim of that name may be anything.
        let plugins = if scopes.contains(Scope::Plugin) { self.plugins(claims)? } else { Vec::new() };
        let labels = self.labels(claims);
        let identity = tenant.map(|tenant| {
            Arc::new(Identity { tenant, operator: Arc::clone(&operator), user_id, claims: labels })
        });
        Ok(VerifiedToken { issuer: Arc::clone(&self.issuer), operator, identity, scopes, plugins, validity })
    }

    /// Checks that `aud`, a string or an array of strings, contains the port's audience (RFC 7519, section
    /// 4.1.3).
    fn check_audience(&self, claims: &Value, port: Port) -> Result<(), AuthRefusal> {
        let audience = match port {
            Port::Data => Some(self.audience.as_str()),
            Port::Admin | Port::Host => self.admin_audience.as_deref(),
        };
        let Some(audience) = audience else {
            return Err(AuthRefusal::new(
                RefusalReason::Audience,
                "The token's issuer may not issue tokens for this port",
            ));
        };
        let shape = || AuthRefusal::claim("aud", "a string or an array of strings");
        let ours = match claims.get("aud") {
            Some(Value::String(named)) => named == audience,
            Some(Value::Array(audiences)) if audiences.iter().all(Value::is_string) => {
                audiences.iter().any(|named| named == audience)
            }
            _ => return Err(shape()),
        };
        if ours {
            return Ok(());
        }
        Err(AuthRefusal::new(RefusalReason::Audience, format!("The token's `aud` must hold `{audience}`")))
    }

    fn validity(&self, claims: &Value) -> Result<Validity, AuthRefusal> {
        let shape = "whole seconds since 1970";
        let time = |name| match claims.get(name).map(Value::as_u64) {
            None => Ok(None),
            Some(Some(seconds)) if seconds <= MAX_TIMESTAMP => Ok(Some(seconds)),
            Some(_) => Err(AuthRefusal::claim(name, shape)),
        };
        let expires = time("exp")?.ok_or_else(|| AuthRefusal::claim("exp", shape))?;
        Ok(Validity { not_before: time("nbf")?, expires, leeway: self.leeway })
    }

    /// The scopes that Hookgate knows; others are ignored.
    fn scopes(&self, claims: &Value) -> Result<Scopes, AuthRefusal> {
        let shape = "a string of scopes separated by spaces, or an array of strings";
        Ok(words(claims, &self.names.scopes, shape)?.into_iter().filter_map(scope_named).collect())
    }

    /// The plugins that the token's owner may register.
    fn plugins(&self, claims: &Value) -> Result<Vec<String>, AuthRefusal> {
        let shape = "a string of plugins' names separated by spaces, or an array of strings";
        let names = words(claims, &self.names.plugins, shape)?;
        Ok(names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// The token's tenant, if it names one, checked against those the issuer may speak for.
    fn tenant(&self, claims: &Value) -> Result<Option<Arc<str>>, AuthRefusal> {
        if let IssuerTenants::Fixed(id) = &self.tenants {
            return Ok(Some(id.as_str().into()));
        }
        let id = match find(claims, &self.names.tenant) {
            None => return Ok(None),
            Some(Value::String(id)) if is_tenant_id(id) => id,
            Some(_) => return Err(AuthRefusal::claim(&self.names.tenant, ID_SHAPE)),
        };
        match &self.tenants {
            IssuerTenants::List(ids) if !ids.contains(id) => {
                let detail = "The token's issuer may not issue tokens for the token's tenant";
                Err(AuthRefusal::new(RefusalReason::Tenant, detail))
            }
            _ => Ok(Some(id.as_str().into())),
        }
    }

    /// If a claim is configured for the user id but the token lacks it, the user id is empty: the agent still
    /// may not set it.
    fn user_id(&self, claims: &Value) -> Result<Option<String>, AuthRefusal> {
        let Some(name) = &self.names.user_id else { return Ok(None) };
        match find(claims, name) {
            None => Ok(Some(String::new())),
            Some(Value::String(id)) if is_id(id) => Ok(Some(id.clone())),
            Some(Value::Number(id)) => Ok(Some(id.to_string())),
            Some(_) => Err(AuthRefusal::claim(name, ID_SHAPE)),
        }
    }

    /// `claim.NAME`, with the name as configured. Values other than a short text, a number or a boolean are
    /// left out.
    fn labels(&self, claims: &Value) -> BTreeMap<String, String> {
        let text = |name: &String| match find(claims, name)? {
            Value::String(text) if is_text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        };
        let label = |name: &String| Some((format!("claim.{name}"), text(name)?));
        self.names.labels.iter().filter_map(label).collect()
    }
}

/// The words of a claim: an array of strings, or one string. None if the token lacks the claim.
///
/// # Errors
/// The claim is neither; `shape` says what it must be.
fn words<'a>(claims: &'a Value, name: &str, shape: &'static str) -> Result<Vec<&'a str>, AuthRefusal> {
    match find(claims, name) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.split(' ').collect()),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            Ok(items.iter().filter_map(Value::as_str).collect())
        }
        Some(_) => Err(AuthRefusal::claim(name, shape)),
    }
}

/// A claim by its name, or by a JSON pointer when that starts with `/`.
fn find<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) }
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control)
}

/// Whether `text` can be a tenant's id: 1 to 256 bytes, no control characters, not `*`.
pub fn is_tenant_id(text: &str) -> bool {
    is_id(text) && text != "*"
}

/// Whether `text` can name a tenant, an operator or a user.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && is_text(text)
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
