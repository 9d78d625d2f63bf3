//! What a verified token says: who, with which scopes, until when. Scopes and times are checked on every call,
//! also when the verification itself is remembered.

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
    /// Whether `scope` is among them.
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// Those that are in `other` too.
    #[must_use]
    pub const fn and(self, other: Scopes) -> Scopes {
        Scopes(self.0 & other.0)
    }

    /// Their names in tokens.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        ALL.into_iter().filter(move |scope| self.contains(*scope)).map(scope_name)
    }

    /// Whether none is left.
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

/// The scope that a token calls `text`, if it is one of ours.
pub fn scope_named(text: &str) -> Option<Scope> {
    ALL.into_iter().find(|scope| scope_name(*scope) == text)
}

/// When a token is valid. `exp` and `nbf` are whole seconds since 1970 (RFC 7519, sections 4.1.4 and 4.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Option<u64>,
    pub(super) expires: u64,
    /// Tolerance for clocks that differ, on both ends.
    pub(super) leeway: Duration,
}

impl Validity {
    /// Refuses before `nbf` less the leeway, and from `exp` plus the leeway on.
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

/// What a verified token says.
#[derive(Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Its `iss`, as configured.
    pub issuer: Arc<str>,
    /// Who acts.
    pub operator: Arc<str>,
    /// For whom; None: the token names no tenant, which only a read or admin token may.
    pub identity: Option<Arc<Identity>>,
    /// What it may be used for: what it says, less what its issuer may not grant.
    pub scopes: Scopes,
    pub(super) validity: Validity,
}

impl VerifiedToken {
    /// Refuses with SCOPE_MISSING unless the token has `scope`.
    pub fn require(&self, scope: Scope) -> Result<(), AuthRefusal> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        Err(AuthRefusal::new(
            RefusalReason::Scope,
            format!("The token lacks the scope `{}`", scope_name(scope)),
        ))
    }

    /// Whose status it may read, none for everything: SCOPE_MISSING without `hookgate:read` or `hookgate:admin`,
    /// which includes it.
    pub fn reader(&self) -> Result<Option<&Arc<str>>, AuthRefusal> {
        if !self.scopes.contains(Scope::Admin) {
            self.require(Scope::Read)?;
        }
        Ok(self.identity.as_ref().map(|identity| &identity.tenant))
    }

    /// Who calls an extension point: SCOPE_MISSING without `hookgate:invoke`, TOKEN_INVALID without a tenant.
    pub fn invoker(&self) -> Result<&Arc<Identity>, AuthRefusal> {
        self.require(Scope::Invoke)?;
        self.caller()
    }

    /// Its `exp`, in seconds since 1970.
    pub fn expires(&self) -> u64 {
        self.validity.expires
    }

    /// How long it is good, `exp` and the tolerance for clocks that differ.
    pub fn until(&self) -> SystemTime {
        let expires = Duration::from_secs(self.validity.expires).saturating_add(self.validity.leeway);
        // One that no clock reaches is good for a year at a time: whoever waits for its end looks again then.
        let far = || SystemTime::now() + Duration::from_secs(365 * 24 * 3600);
        UNIX_EPOCH.checked_add(expires).unwrap_or_else(far)
    }

    /// Who calls at the data port, whatever for: TOKEN_INVALID without a tenant.
    pub fn caller(&self) -> Result<&Arc<Identity>, AuthRefusal> {
        self.identity.as_ref().ok_or_else(|| {
            AuthRefusal::new(RefusalReason::Claims, "The token must name a tenant to call an extension point")
        })
    }
}
