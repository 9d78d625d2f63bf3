//! Tests the consequences of every failure of a plugin.

mod builtins;
mod cells;
mod groups;
mod matrix;
pub(crate) mod rig;
