//! The HTTP form of the agent's messages (docs/protocol.md, section 1): converts JSON bodies from and to the
//! messages that gRPC carries, so that nothing behind the edge can tell the two apart.
//!
//! [`decode`] reads a request and reports every mistake it can find at once; [`encode`] writes an answer. `plugin.rs`
//! does the same for the plugin contract, for programs that speak JSON.
//! JSON values pass through byte for byte as the caller wrote them, as references into the body. Only
//! `messages.rs` lists the members of each message. This module must not know of HTTP itself: no status, no
//! header.

mod decode;
mod encode;
mod messages;
mod plugin;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub use decode::{HttpRequestMessage, decode, decode_at};
pub use encode::{CallAnswer, ProblemDetails, changes, encode, encode_block};
pub use plugin::{DecodedReply, ReplyMessage, decode_reply};
pub use writer::{Changes, ObjectWriter, WriteJson};
