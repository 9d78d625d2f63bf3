//! The contents of a verified token: identity, scopes and validity. Scopes and times are checked on every
//! call, even if the verification itself is cached.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::refusal::{AuthRefusal, RefusalReason};
use crate::{config::Scope, core::context::Identity};

/// A set of scopes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// The intersection with `other`.
    #[must_use]
    pub const fn and(self, other: Scopes) -> Scopes {
        Scopes(self.0 & other.0)
    }

    /// The scopes' names in tokens.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        ALL.into_iter().filter(move |scope| self.contains(*scope)).map(scope_name)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | bit(scope)))
    }
}

const fn bit(scope: Scope) -> u8 {
    match scope {
        Scope::Invoke => 1,
        Scope::Read => 2,
        Scope::Admin => 4,
        Scope::Plugin => 8,
    }
}

const ALL: [Scope; 4] = [Scope::Invoke, Scope::Read, Scope::Admin, Scope::Plugin];

/// The scope's name in tokens.
pub const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Invoke => "hookgate:invoke",
        Scope::Read => "hookgate:read",
        Scope::Admin => "hookgate:admin",
        Scope::Plugin => "hookgate:plugin",
    }
}

/// The scope named `text` in tokens, if it is a known one.
pub fn scope_named(text: &str) -> Option<Scope> {
    ALL.into_iter().find(|scope| scope_name(*scope) == text)
}

/// When a token is valid. `exp` and `nbf` are whole seconds since 1970 (RFC 7519, sections 4.1.4 and 4.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Option<u64>,
    pub(super) expires: u64,
    /// Tolerance for clock differences, at both ends.
    pub(super) leeway: Duration,
}

impl Validity {
    /// Rejects times before `nbf` minus the leeway, and from `exp` plus the leeway on.
    pub(super) fn check(&self, now: SystemTime) -> Result<(), AuthRefusal> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if now >= Duration::from_secs(self.expires).saturating_add(self.leeway) {
            let detail = "The token has expired: get a new one from its issuer";
            return Err(AuthRefusal::new(RefusalReason::Expired, detail));
        }
        match self.not_before {
            Some(from) if now.saturating_add(self.leeway) < Duration::from_secs(from) => {
                let detail = "The token is not valid yet: check `nbf` and the clocks";
                Err(AuthRefusal::new(RefusalReason::NotYetValid, detail))
            }
            _ => Ok(()),
        }
    }
}

/// The contents of a verified token.
#[derive(Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The value of `iss`, as configured.
    pub issuer: Arc<str>,
    /// The operator that the token names.
    pub operator: Arc<str>,
    /// The tenant and user. `None` if the token names no tenant, which is allowed only for a read or admin
    /// token.
    pub identity: Option<Arc<Identity>>,
    /// The token's scopes, without those that its issuer may not grant.
    pub scopes: Scopes,
    /// Names of the plugins that the token's owner may register.
    pub plugins: Vec<String>,
    pub(super) validity: Validity,
}

impl VerifiedToken {
    /// Returns SCOPE_MISSING unless the token has `scope`.
    pub fn require(&self, scope: Scope) -> Result<(), AuthRefusal> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        Err(AuthRefusal::new(
            RefusalReason::Scope,
            format!("The token lacks the scope `{}`", scope_name(scope)),
        ))
    }

    /// The tenant whose status the token may read; `None` allows everything. Returns SCOPE_MISSING without
    /// `hookgate:read` or `hookgate:admin`, which includes it.
    pub fn reader(&self) -> Result<Option<&Arc<str>>, AuthRefusal> {
        if !self.scopes.contains(Scope::Admin) {
            self.require(Scope::Read)?;
        }
        Ok(self.identity.as_ref().map(|identity| &identity.tenant))
    }

    /// The identity for a call at an extension point. Returns SCOPE_MISSING without `hookgate:invoke`,
    /// TOKEN_INVALID without a tenant.
    pub fn invoker(&self) -> Result<&Arc<Identity>, AuthRefusal> {
        self.require(Scope::Invoke)?;
        self.caller()
    }

    /// Checks that the token's owner may register the plugin `name`.
    ///
    /// # Errors
    /// SCOPE_MISSING without `hookgate:plugin`, TOKEN_INVALID if the token names a tenant or doesn't name the plugin.
    pub fn registers(&self, name: &str) -> Result<(), AuthRefusal> {
        self.registers_any()?;
        if self.plugins.iter().any(|plugin| plugin == name) {
            return Ok(());
        }
        let detail = format!("The token's claim with plugins doesn't have `{name}`");
        Err(AuthRefusal::new(RefusalReason::Claims, detail))
    }

    /// Checks that the token is one for registering plugins.
    ///
    /// # Errors
    /// SCOPE_MISSING without `hookgate:plugin`, TOKEN_INVALID if the token names a tenant.
    pub fn registers_any(&self) -> Result<(), AuthRefusal> {
        self.require(Scope::Plugin)?;
        if self.identity.is_none() {
            return Ok(());
        }
        let detail = "A token that registers plugins names no tenant, because plugins serve all";
        Err(AuthRefusal::new(RefusalReason::Claims, detail))
    }

    /// The name recorded with the changes of the token's owner: operator and issuer, `alice (https://id.example.com)`.
    pub fn author(&self) -> String {
        format!("{} ({})", self.operator, self.issuer)
    }

    /// The value of `exp`, in seconds since 1970.
    pub fn expires(&self) -> u64 {
        self.validity.expires
    }

    /// When the token stops being accepted: `exp` plus the leeway.
    pub fn until(&self) -> SystemTime {
        let expires = Duration::from_secs(self.validity.expires).saturating_add(self.validity.leeway);
        // An expiry beyond the range of the clock becomes a year from now: a task that waits for it then
        // checks again.
        let far = || SystemTime::now() + Duration::from_secs(365 * 24 * 3600);
        UNIX_EPOCH.checked_add(expires).unwrap_or_else(far)
    }

    /// The identity for any call at the data port. Returns TOKEN_INVALID without a tenant.
    pub fn caller(&self) -> Result<&Arc<Identity>, AuthRefusal> {
        self.identity.as_ref().ok_or_else(|| {
            AuthRefusal::new(RefusalReason::Claims, "The token must name a tenant to call an extension point")
        })
    }
}
