//! The operator behind an admin API request, authenticated by a token or by the admin socket. Both kinds have
//! the same questions answered here: what they may see, and which name is recorded.

use std::{sync::Arc, time::SystemTime};

use super::{AuthRefusal, VerifiedToken};
use crate::config::Scope;

/// The operator behind an admin API request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// Authenticated by a token, and limited to its tenant and scopes.
    Token(Arc<VerifiedToken>),
    /// Connected to the admin socket, which only its owner and root can open. Has all rights.
    Local {
        /// The user id of the connected process, as reported by the system.
        uid: u32,
    },
}

impl Operator {
    /// The tenant whose status the operator may read. `None` allows everything.
    ///
    /// # Errors
    /// SCOPE_MISSING for a token without `hookgate:read` and `hookgate:admin`.
    pub fn reader(&self) -> Result<Option<&Arc<str>>, AuthRefusal> {
        match self {
            Operator::Token(verified) => verified.reader(),
            Operator::Local { .. } => Ok(None),
        }
    }

    /// When the operator's access ends. `None` means with the connection.
    pub fn until(&self) -> Option<SystemTime> {
        match self {
            Operator::Token(verified) => Some(verified.until()),
            Operator::Local { .. } => None,
        }
    }

    /// Checks that the operator may write to the registry, and see who wrote what.
    ///
    /// # Errors
    /// SCOPE_MISSING for a token without `hookgate:admin`.
    pub fn administers(&self) -> Result<(), AuthRefusal> {
        match self {
            Operator::Token(verified) => verified.require(Scope::Admin),
            Operator::Local { .. } => Ok(()),
        }
    }

    /// The name recorded with the operator's changes: the token's operator and issuer, `alice
    /// (https://id.example.com)`, or `unix:UID`. No token can produce the name of another issuer's operator
    /// or of a local user.
    pub fn author(&self) -> String {
        match self {
            Operator::Token(verified) => verified.author(),
            Operator::Local { uid } => format!("unix:{uid}"),
        }
    }
}
