//! Plugins as this process calls them: transports, the handshake, connection states, and one call at a point
//! (docs/protocol.md, sections 2 and 6).
//!
//! ```text
//! invoke -> PluginClient::call -> Bulkhead -> Pool (draws an Endpoint) -> Live (dialled, described, initialised)
//!                 observe -> Observers (bounded queue, oldest dropped) ---^
//! ```
//!
//! Untyped: a call is a point, a `Call` and a message; the reply is bytes, which `invoke` decodes and judges.
//! Knows nothing of verdicts, tenants or plans; `telemetry` measures calls where they are sent.

mod acceptance;
mod again;
mod breaker;
mod breakers;
mod bulkhead;
mod cause;
mod classify;
mod client;
mod codec;
mod connection;
mod consent;
mod endpoint;
mod fair_queue;
mod health;
mod heard;
mod initialize;
mod live;
mod load;
mod manifests;
mod observers;
mod pool;
mod redaction;
mod refusal;
mod registration;
mod release;
mod remedy;
mod request;
mod resolve;
mod state;
mod supervisor;
mod ticket;
mod transport;
mod turns;

#[cfg(test)]
mod tests;

pub use again::Described;
pub use breaker::BreakerState;
pub use cause::Cause;
pub use client::{PluginClient, Shared};
pub use consent::Wants;
pub use refusal::Refusal;
pub use release::InUse;
pub use request::{CallMeta, Failure, Replied, Served};
pub use state::{EndpointStatus, NameStatus, State, Status, Why};
pub use transport::InProcess;
pub use turns::start_in_order;
