//! Tests the commands that show and write the registry.

mod apply;
mod objects;
mod prune;
pub(crate) mod support;
