//! The data plane: one call of an agent, from its headers to its answer.
//!
//! [`http`] and [`grpc`] decode the two protocols, [`call`] runs one call through both, and [`crate::edge::response`] is the one place
//! where an outcome or an error becomes an answer. Knows no plugin and no operator. `docs/openapi.json` describes what
//! HTTP answers.

pub mod call;
pub mod grpc;
pub mod http;
pub mod whoami;
