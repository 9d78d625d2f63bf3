//! Tests plugins of every kind, and plugins that misbehave.

mod bad_endpoints;
mod builtin;
mod initialize_order;
mod limits;
pub(crate) mod process;
mod refused_config;
mod run;
