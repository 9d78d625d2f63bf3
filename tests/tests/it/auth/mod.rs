//! Tokens and the keys of their issuers.

pub(crate) mod jwks;
pub(crate) mod keys;
mod tokens;
