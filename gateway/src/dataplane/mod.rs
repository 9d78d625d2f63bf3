//! The data plane: one call of an agent, from its headers to its answer.
//!
//! [`stack`] is the list of what happens to a request, in order; start there. [`http`] and [`grpc`] are the two protocols,
//! [`call`] has the forms of a call between the layers, and [`crate::edge::response`] is the one place where an outcome or
//! an error becomes an answer. Knows no plugin and no operator. `docs/openapi.json` describes what HTTP answers.

mod abort;
pub mod call;
mod catch_panic;
pub mod grpc;
pub mod http;
mod llm;
mod protocol;
mod record;
mod server_span;
pub mod stack;
mod stage;
mod stages;
pub mod tools;
pub mod whoami;
