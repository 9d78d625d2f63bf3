//! Who asks at the admin API, and by which right: a token, or a socket whose file let him in. What he may see and who he
//! is called where it is written down is the same question whichever it was.

use std::{borrow::Cow, sync::Arc};

use super::{Refusal, Verified};

/// Who asks at the admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// By the token of an issuer, within its tenant and its scopes.
    Token(Arc<Verified>),
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
    pub fn reader(&self) -> Result<Option<&Arc<str>>, Refusal> {
        match self {
            Operator::Token(verified) => verified.reader(),
            Operator::Local { .. } => Ok(None),
        }
    }

    /// What he is called where it is written down what he did: the token's operator, or `unix:UID`.
    pub fn author(&self) -> Cow<'_, str> {
        match self {
            Operator::Token(verified) => Cow::Borrowed(&verified.operator),
            Operator::Local { uid } => Cow::Owned(format!("unix:{uid}")),
        }
    }
}
