//! What the integration tests share: scripted plugins, a bad network before them, PostgreSQL servers, and a telemetry collector on real sockets, the built gateway as a child process,
//! agents that call it over HTTP and gRPC, and tokens.
//!
//! Nothing in here knows how the gateway works inside: it speaks the contract, reads the configuration format
//! that a person writes, and looks at answers, logs and exit codes.

pub mod agent;
pub mod ca;
pub mod collector;
pub mod fake;
pub mod gateway;
pub mod metrics;
pub mod openapi;
pub mod port;
pub mod postgres;
pub mod prometheus;
pub mod proxy;
pub mod repository;
pub mod sources;
pub mod token;
