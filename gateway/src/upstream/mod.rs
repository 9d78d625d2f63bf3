//! The plugin client: transports, the handshake, connection states, and one call at a point
//! (docs/protocol.md, sections 2 and 6).
//!
//! ```text
//! invoke -> PluginClient::call -> Bulkhead -> Pool (picks an Endpoint) -> ReadyConnection (initialised)
//!                observe -> Observers (bounded queue, oldest dropped) ---^
//! ```
//!
//! Untyped: a call is a point, a `Call` and a message. The reply is bytes, which `invoke` decodes and judges.
//! This module knows nothing of verdicts or plans.

mod breaker;
mod breakers;
mod call;
mod call_guard;
mod classify;
mod client;
mod codec;
mod connection;
mod consent;
mod control_call;
mod dial_error;
mod endpoint;
mod health;
mod hints;
mod host_access;
mod http2;
mod initialize;
mod initialize_order;
mod keep_alive;
mod manifest_validation;
mod manifests;
mod observers;
mod p2c;
mod pool;
mod ready_connection;
mod redaction;
mod redescribe;
mod refusal;
mod registered;
mod registration;
mod release;
mod request;
mod resolve;
mod scale_up;
mod state;
mod supervisor;
mod tools;
mod transport;
mod trial;

#[cfg(test)]
mod tests;

pub use crate::upstream::dial_error::DialErrorKind;
pub use crate::upstream::initialize_order::start_in_order;
pub use crate::upstream::redescribe::RedescribeOutcome;
pub use breaker::BreakerState;
pub use client::{PluginClient, SharedResources};
pub use connection::Rpc;
pub use consent::Wants;
pub use health::HealthCheckOutcome;
pub use host_access::{CallTokenRequest, HostAccess, HostOffer};
pub use redaction::Redaction;
pub use refusal::Refusal;
pub use registered::RegisteredEndpoints;
pub use release::InUse;
pub use request::{CallMeta, PluginReply, ServingEndpoint};
pub use state::{EndpointStatus, NameStatus, State, Status, Why};
pub use transport::InProcess;
pub use trial::{PluginTrial, TrialConfig, TrialConnection, TrialError};
