//! Who asks at the admin API, and by which right: a token, or a socket whose file let him in. What he may see and who he
//! is called where it is written down is the same question whichever it was.

use std::{sync::Arc, time::SystemTime};

use super::{AuthRefusal, VerifiedToken};
use crate::config::Scope;

/// Who asks at the admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// By the token of an issuer, within its tenant and its scopes.
    Token(Arc<VerifiedToken>),
    /// By the admin socket, which its owner and root alone may open: everything.
    Local {
        /// The user id of the process at the other end, as the system says.
        uid: u32,
    },
}

impl Operator {
    /// Whose status he may read, none for everything.
    ///
    /// # Errors
    /// SCOPE_MISSING for a token without `hookgate:read` and `hookgate:admin`.
    pub fn reader(&self) -> Result<Option<&Arc<str>>, AuthRefusal> {
        match self {
            Operator::Token(verified) => verified.reader(),
            Operator::Local { .. } => Ok(None),
        }
    }

    /// Until when he is let in; none: as long as he is connected.
    pub fn until(&self) -> Option<SystemTime> {
        match self {
            Operator::Token(verified) => Some(verified.until()),
            Operator::Local { .. } => None,
        }
    }

    /// Whether he may write to the registry, and see who wrote what.
    ///
    /// # Errors
    /// SCOPE_MISSING for a token without `hookgate:admin`.
    pub fn administers(&self) -> Result<(), AuthRefusal> {
        match self {
            Operator::Token(verified) => verified.require(Scope::Admin),
            Operator::Local { .. } => Ok(()),
        }
    }

    /// What he is called where it is written down what he did: the token's operator and its issuer, `alice
    /// (https://id.example.com)`, or `unix:UID`. No token makes anybody be called as another issuer's, or as a user here.
    pub fn author(&self) -> String {
        match self {
            Operator::Token(verified) => format!("{} ({})", verified.operator, verified.issuer),
            Operator::Local { uid } => format!("unix:{uid}"),
        }
    }
}
