//! Plugins as this process calls them: transports, the handshake, connection states, and one call at a point
//! (docs/protocol.md, sections 2 and 6).
//!
//! ```text
//! invoke -> PluginClient::call -> Bulkhead -> Endpoint (finds, dials, describes, initialises) -> Connection
//!                 observe -> Observers (bounded queue, oldest dropped) ---^
//! ```
//!
//! Untyped: a call is a point, a `Call` and a message; the reply is bytes, which `invoke` decodes and judges.
//! Knows nothing of verdicts, tenants or plans; `telemetry` measures calls where they are sent.

mod acceptance;
mod bulkhead;
mod cause;
mod client;
mod codec;
mod connection;
mod endpoint;
mod initialize;
mod observers;
mod redaction;
mod refusal;
mod request;
mod state;
mod supervisor;
mod transport;

#[cfg(test)]
mod tests;

pub use cause::Cause;
pub use client::{PluginClient, Shared};
pub use refusal::Refusal;
pub use request::{CallMeta, Failure, Replied};
pub use state::{EndpointStatus, State, Status, Why};
pub use transport::InProcess;
