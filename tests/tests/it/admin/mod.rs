//! The admin API: what operators see and do, over HTTP, gRPC and the socket.

mod auth;
mod drain_replicas;
mod events;
pub(crate) mod events_support;
pub(crate) mod grpc;
mod plan;
pub(crate) mod registry;
mod socket;
mod status;
mod tally;
mod tools;
mod trial;
mod upkeep;
pub(crate) mod upstream_check;
