//! Mints tokens that a gateway with this configuration accepts, for development and for operators of issuers
//! whose secret it holds. Only shared secrets can sign: of every other key, the configuration has just the
//! public half.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::{Port, key, verified::scope_name};
use crate::{
    config::{self, IssuerTenants, Scope},
    json::pointer,
};

/// What to put into a token.
#[derive(Debug)]
pub struct TokenRequest {
    /// The issuer. `None` chooses the only one with a secret that may speak for the tenant.
    pub issuer: Option<String>,
    /// The tenant. `None` is a token for all tenants, at the admin port.
    pub tenant: Option<String>,
    /// The operator that the token names.
    pub operator: String,
    /// The scopes that the token grants.
    pub scopes: Vec<Scope>,
    /// Names of the plugins that the token's owner may register.
    pub plugins: Vec<String>,
    /// How long the token is valid from now on.
    pub ttl: Duration,
    /// The port that accepts the token.
    pub port: Port,
}

/// A token and its main claims. Has no `Debug`, because the token is a secret.
pub struct MintedToken {
    /// The token in compact form.
    pub token: String,
    /// The value of `iss`.
    pub issuer: String,
    /// The value of `exp`, in seconds since 1970.
    pub expires: u64,
}

/// Signs the token. Doesn't check whether the gateway would accept it.
///
/// # Errors
/// One sentence that says what the configuration lacks.
pub fn mint(auth: &config::Auth, order: &TokenRequest, now: SystemTime) -> Result<MintedToken, String> {
    let (issuer, key, secret) = choose(auth, order)?;
    let name = &issuer.issuer;
    let missing = order.scopes.iter().find(|scope| !issuer.scopes.contains(scope));
    if let Some(scope) = missing {
        let scope = scope_name(*scope);
        return Err(format!(
            "issuer `{name}` may not grant `{scope}`: add it to its `scopes`, or ask for another"
        ));
    }
    let no_admin_audience = |whom: &str| {
        format!("issuer `{name}` has no `admin_audience`, so {whom} accepts none of its tokens: add one")
    };
    let admin_audience = issuer.admin_audience.as_deref();
    let audience = match order.port {
        Port::Data => issuer.audience.as_str(),
        Port::Admin => admin_audience.ok_or_else(|| no_admin_audience("the admin port"))?,
        Port::Host => admin_audience.ok_or_else(|| no_admin_audience("the host port"))?,
    };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires = now.saturating_add(order.ttl.as_secs());
    let mut claims = Map::new();
    // RFC 7519, section 4.1.
    claims.insert("iss".into(), name.as_str().into());
    claims.insert("aud".into(), audience.into());
    claims.insert("iat".into(), now.into());
    claims.insert("exp".into(), expires.into());
    let scopes: Vec<_> = order.scopes.iter().map(|scope| scope_name(*scope)).collect();
    put(&mut claims, &issuer.claims.scopes, scopes.join(" "))?;
    put(&mut claims, &issuer.claims.operator, order.operator.clone())?;
    if let Some(tenant) = &order.tenant {
        put(&mut claims, &issuer.claims.tenant, tenant.clone())?;
    }
    if !order.plugins.is_empty() {
        put(&mut claims, &issuer.claims.plugins, order.plugins.clone())?;
    }
    let algorithm = key.alg.as_deref().unwrap_or_default();
    let header = Header { kid: key.kid.clone(), ..Header::new(key::algorithm(algorithm)?) };
    let signs = EncodingKey::from_secret(secret.expose_secret().as_bytes());
    let token = encode(&header, &claims, &signs).map_err(|error| format!("it can't be signed: {error}"))?;
    Ok(MintedToken { token, issuer: name.clone(), expires })
}

type Signer<'a> = (&'a config::Issuer, &'a config::Key, &'a SecretString);

/// The issuer and its first secret.
fn choose<'a>(auth: &'a config::Auth, order: &TokenRequest) -> Result<Signer<'a>, String> {
    let named = |issuer: &&config::Issuer| order.issuer.as_ref().is_none_or(|name| *name == issuer.issuer);
    let mut candidates: Vec<_> = auth.issuers.iter().filter(named).collect();
    if candidates.is_empty() {
        return Err(format!(
            "there is no issuer `{}`: {}",
            order.issuer.as_deref().unwrap_or_default(),
            are(auth)
        ));
    }
    let secret = |issuer: &'a config::Issuer| {
        issuer.keys.iter().find_map(|key| Some((issuer, key, key.secret.as_ref()?)))
    };
    if candidates.iter().all(|issuer| secret(issuer).is_none()) {
        let whose = match order.issuer {
            Some(_) => "this issuer has public keys only",
            None => "every issuer here has public keys only",
        };
        return Err(format!("{whose}, which can't sign: get the token from the owner of the private key"));
    }
    candidates.retain(|issuer| secret(issuer).is_some() && speaks_for(issuer, order.tenant.as_deref()));
    match candidates.as_slice() {
        [one] => secret(one).ok_or_else(String::new),
        [] => Err(format!(
            "no issuer with a secret may issue tokens for {}: see `tenants` of `auth.issuers`",
            order.tenant.as_deref().map_or_else(|| "all tenants".to_owned(), |tenant| format!("`{tenant}`"))
        )),
        several => {
            let names: Vec<_> = several.iter().map(|issuer| format!("`{}`", issuer.issuer)).collect();
            Err(format!("several issuers could sign it: choose one with --issuer: {}", names.join(", ")))
        }
    }
}

fn are(auth: &config::Auth) -> String {
    let names: Vec<_> = auth.issuers.iter().map(|issuer| format!("`{}`", issuer.issuer)).collect();
    format!("the configuration has {}", names.join(", "))
}

fn speaks_for(issuer: &config::Issuer, tenant: Option<&str>) -> bool {
    match (&issuer.tenants, tenant) {
        (None | Some(IssuerTenants::Any), _) => true,
        (Some(IssuerTenants::List(ids)), Some(tenant)) => ids.iter().any(|id| id == tenant),
        (Some(IssuerTenants::Fixed(id)), Some(tenant)) => id == tenant,
        (Some(IssuerTenants::List(_) | IssuerTenants::Fixed(_)), None) => false,
    }
}

/// Sets the claim that the configuration calls `name`: a literal name, or a JSON pointer if it starts with
/// `/`.
fn put(claims: &mut Map<String, Value>, name: &str, value: impl Into<Value>) -> Result<(), String> {
    if !name.starts_with('/') {
        claims.insert(name.to_owned(), value.into());
        return Ok(());
    }
    let mut keys: Vec<_> = pointer::keys(name).collect();
    let last = keys.pop().unwrap_or_default();
    let mut place = claims;
    for key in keys {
        let next = place.entry(key).or_insert_with(|| Map::new().into());
        place = next.as_object_mut().ok_or_else(|| {
            format!(
                "the claim `{name}` is nested in another claim that isn't an object: this issuer's `claims` can't all \
                 be set"
            )
        })?;
    }
    place.insert(last.into_owned(), value.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    fn minted(claims: &Value, plugins: &[&str]) -> Result<Value, String> {
        let issuer = json!({
            "issuer": "me", "audience": "hookgate", "admin_audience": "hookgate-admin",
            "scopes": ["hookgate:plugin"], "claims": claims,
            "keys": [{ "alg": "HS256", "secret": "a-secret-of-at-least-32-bytes-for-hs256" }],
        });
        let auth = config::Auth { issuers: vec![serde_json::from_value(issuer).unwrap()] };
        let order = TokenRequest {
            issuer: None,
            tenant: None,
            operator: "deploy".to_owned(),
            scopes: vec![Scope::Plugin],
            plugins: plugins.iter().map(|name| (*name).to_owned()).collect(),
            ttl: Duration::from_secs(60),
            port: Port::Host,
        };
        let token = mint(&auth, &order, UNIX_EPOCH)?.token;
        let part = token.split('.').nth(1).unwrap();
        Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
    }

    #[test]
    fn the_plugins_are_an_array_in_the_claim_that_the_issuer_configures() {
        let claims = minted(&json!({}), &["guard", "quota"]).unwrap();
        assert_eq!(
            (&claims["plugins"], &claims["aud"]),
            (&json!(["guard", "quota"]), &json!("hookgate-admin"))
        );
        let claims = minted(&json!({ "plugins": "/hookgate/plugins" }), &["guard"]).unwrap();
        assert_eq!(claims["hookgate"]["plugins"], json!(["guard"]));
        assert!(minted(&json!({}), &[]).unwrap().get("plugins").is_none());
        assert!(minted(&json!({ "plugins": "/scope/plugins" }), &["guard"]).is_err());
    }
}
