//! The registry's databases.

mod contract;
mod crash;
mod model;
mod outage;
mod scale;
mod schema;
pub(crate) mod support;
mod together;
