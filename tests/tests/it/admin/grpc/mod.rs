//! The admin API over gRPC.

mod acts;
pub(crate) mod events;
mod isolation;
mod rpcs;
mod same;
pub(crate) mod support;
mod who;
