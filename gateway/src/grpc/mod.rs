//! What gRPC over HTTP/2 fixes for both ends of a call: how a message is framed, and how the header `grpc-timeout`
//! is written. Must not know whose call it is, nor what an error becomes.

pub mod framing;
pub mod timeout;
