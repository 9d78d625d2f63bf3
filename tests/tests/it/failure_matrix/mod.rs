//! Tests the consequences of every failure of a plugin.

mod cells;
mod matrix;
pub(crate) mod rig;
