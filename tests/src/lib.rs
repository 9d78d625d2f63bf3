//! Shared by the integration tests: scripted plugins, a faulty network in front of them, PostgreSQL
//! servers, a telemetry collector on real sockets, the gateway as a child process, agents over HTTP and
//! gRPC, and tokens.
//!
//! Nothing here knows the gateway's internals: it uses the contract and the configuration format, and
//! inspects answers, logs and exit codes.

pub mod agent;
mod broken_rule;
pub mod ca;
pub mod clients;
pub mod collector;
pub mod conforming_plugin;
pub mod fake;
pub mod gateway;
mod masked_window;
pub mod metrics;
pub mod openapi;
pub mod port;
pub mod postgres;
pub mod prometheus;
pub mod provider;
pub mod proxy;
pub mod python;
pub mod repository;
pub mod sources;
mod strict_fields;
pub mod token;
pub mod typescript;
