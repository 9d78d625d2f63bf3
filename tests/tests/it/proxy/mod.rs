//! A plugin behind a faulty network.

mod calls;
mod dead;
pub(crate) mod support;
