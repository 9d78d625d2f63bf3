//! Model calls that pass through the gateway: what plugins see of them, and how their changes get back into the bytes.
//!
//! Nothing is deserialised into a provider's types. A request or an answer is its bytes and views of them, and what
//! no plugin changes stays byte for byte. This module must not know where bytes come from, nor how plugins are called.

pub mod allowed_names;
pub(crate) mod answer_json;
pub(crate) mod answer_parts;
mod arguments;
pub(crate) mod chat;
mod citations;
mod demo_model;
pub(crate) mod edits;
pub(crate) mod embeddings;
pub(crate) mod error_text;
pub mod explain;
pub(crate) mod format;
pub(crate) mod guarded_points;
mod main_patch;
mod media;
pub mod memory;
mod merged;
mod message_content;
pub(crate) mod messages;
mod openai_error;
mod provider_client;
mod request_shape;
mod request_view;
pub(crate) mod responses;
pub mod routes;
mod same_value;
mod service;
mod spelling;
pub(crate) mod sse;
#[cfg(test)]
mod stream_test_support;
pub(crate) mod surface;
mod tool_results;
pub(crate) mod unit;
pub mod upstream;
pub mod upstream_check;
mod value;
mod violation_path;
mod withheld;

pub use service::{ExchangeLimits, Llm};
