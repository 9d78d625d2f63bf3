//! The ops port: probes, Prometheus metrics, the status page.

pub mod page;
pub mod routes;
pub mod status;
