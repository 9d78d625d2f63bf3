//! The registry, written and read over the admin API.

mod failing;
mod ids;
pub(crate) mod isolation;
mod objects;
mod prune;
mod seen;
pub(crate) mod support;
