//! Tests plugins of every kind, and plugins that misbehave.

mod bad_endpoints;
mod builtin;
mod initialize_order;
mod limits;
mod output_validate;
pub(crate) mod process;
mod redact;
mod reference_page;
mod refused_config;
mod run;
mod secrets;
mod shared_endpoint;
mod stored;
mod tool_policy;
mod unoffered_point;
mod webhook;
