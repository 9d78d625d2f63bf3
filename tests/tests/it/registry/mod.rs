//! Tests the registry with the gateways that follow it.

mod bypass;
mod bypass_waiting;
pub(crate) mod consent;
mod consent_unmet;
mod crash;
mod egress;
mod file;
mod full;
mod hooks;
mod outage;
mod pairs;
mod plugins;
mod replicas;
mod required;
pub(crate) mod support;
