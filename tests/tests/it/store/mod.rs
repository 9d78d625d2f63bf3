//! The registry's databases.

mod contract;
mod crash;
mod model;
mod outage;
mod plugin_data;
mod scale;
mod schema;
pub(crate) mod support;
mod together;
