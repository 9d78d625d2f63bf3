//! Tests reading and writing the registry over the admin API.

mod failing;
mod ids;
pub(crate) mod isolation;
mod objects;
mod prune;
mod seen;
pub(crate) mod support;
