//! The Helm chart, the images and the Compose file.

mod agent_egress;
mod chart;
mod chart_pod;
pub(crate) mod chart_support;
mod compose;
mod dashboards;
mod image;
mod pod;
pub(crate) mod support;
