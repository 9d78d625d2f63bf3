//! A plugin behind a network that fails.

mod calls;
mod dead;
pub(crate) mod support;
