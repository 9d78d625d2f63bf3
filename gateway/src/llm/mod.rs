//! Model calls that pass through the gateway: what plugins see of them, and how their changes get back into the bytes.
//!
//! Nothing is deserialised into a provider's types. A request or an answer is its bytes and views of them, and what
//! no plugin changes stays byte for byte. This module must not know where bytes come from, nor how plugins are called.

pub(crate) mod chat;
mod demo_model;
pub(crate) mod edits;
pub mod memory;
pub mod routes;
mod service;
mod spelling;
pub(crate) mod sse;
pub(crate) mod surface;
pub mod upstream;
mod value;

pub use service::{ExchangeLimits, Llm};
