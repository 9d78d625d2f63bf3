//! Why a caller was refused: a closed set of reasons for logs and metrics, and what the caller is told. Nothing in
//! here ever holds a part of the token.

use std::borrow::Cow;

use crate::core::error::{Code, Error};

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $code:ident;)+) => {
        /// Why a caller was refused; finer than the [`Code`] of the answer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum RefusalReason { $($(#[$doc])* $variant,)+ }

        impl RefusalReason {
            /// All of them.
            pub const ALL: &'static [RefusalReason] = &[$(RefusalReason::$variant,)+];

            /// The stable name, for logs and metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(RefusalReason::$variant => $text,)+ }
            }

            /// The code of the answer.
            pub const fn code(self) -> Code {
                match self { $(RefusalReason::$variant => Code::$code,)+ }
            }
        }
    };
}

reasons! {
    /// No bearer token.
    Missing = "missing", TokenMissing;
    /// Longer than 8 KiB.
    TooLarge = "too_large", TokenInvalid;
    /// Not a signed JWT in compact form (RFC 7515, section 7.1).
    Malformed = "malformed", TokenInvalid;
    /// The header brings a key of its own, or an extension that must be understood.
    Header = "header", TokenInvalid;
    /// The header's algorithm is unknown, or not the key's.
    Algorithm = "algorithm", TokenInvalid;
    /// `iss` names nobody whose tokens are accepted.
    Issuer = "issuer", TokenInvalid;
    /// No key fits, or more than one.
    Kid = "kid", TokenInvalid;
    /// The issuer's keys could not be fetched, or not for too long: our outage, so no 401.
    KeysUnavailable = "keys_unavailable", Internal;
    /// The signature does not verify.
    Signature = "signature", TokenInvalid;
    /// The audience is another.
    Audience = "audience", TokenInvalid;
    /// A claim is missing or of the wrong shape.
    Claims = "claims", TokenInvalid;
    /// Past `exp`.
    Expired = "expired", TokenExpired;
    /// Before `nbf`.
    NotYetValid = "not_yet_valid", TokenInvalid;
    /// The issuer may not speak for the tenant.
    Tenant = "tenant", TenantUnknown;
    /// The token lacks the scope.
    Scope = "scope", ScopeMissing;
}

/// A caller turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", reason.as_str())]
pub struct AuthRefusal {
    /// Why, for the operator.
    pub reason: RefusalReason,
    /// One sentence for the caller that says what would be right.
    pub detail: Cow<'static, str>,
}

impl AuthRefusal {
    pub(super) fn new(reason: RefusalReason, detail: impl Into<Cow<'static, str>>) -> Self {
        AuthRefusal { reason, detail: detail.into() }
    }

    /// The claim `name` (its configured name) is missing or not `shape`.
    pub(super) fn claim(name: &str, shape: &str) -> Self {
        AuthRefusal::new(RefusalReason::Claims, format!("The token's claim `{name}` must be {shape}"))
    }
}

impl From<AuthRefusal> for Error {
    fn from(refusal: AuthRefusal) -> Self {
        Error::new(refusal.reason.code(), refusal.detail)
    }
}
