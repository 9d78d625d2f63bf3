//! The HTTP form of the agent's messages (docs/protocol.md, section 1): JSON bodies to and from the very
//! messages that gRPC carries, so that nothing behind the edge can tell the two apart.
//!
//! [`decode`] reads a request and reports every mistake that it can find in one go; [`encode`] writes an
//! answer. JSON values pass through as the caller wrote them, byte for byte, by reference into the body. Which
//! members a message has stands once, in `messages.rs`. Must not know of HTTP itself: no status, no header.

mod decode;
mod encode;
mod messages;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub use decode::{HttpRequestMessage, decode};
pub use encode::{DecisionAnswer, ProblemDetails, changes, encode, encode_block};
pub use writer::{Changes, ObjectWriter, WriteJson};
