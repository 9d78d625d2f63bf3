//! What every failure of a plugin leads to.

mod cells;
mod matrix;
pub(crate) mod rig;
