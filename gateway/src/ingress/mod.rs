//! The edge: how calls come in over HTTP and gRPC and how answers go out.
//!
//! [`server`] accepts connections, [`http`] and [`grpc`] know the two protocols, [`call`] is the way of one call
//! through both, [`answer`] the one place where its outcome or error becomes an answer. Knows nothing of plugins,
//! but for [`admin`], which shows how they are, [`overview`], which counts them, and [`upkeep`], which has them described
//! again, let go of and tried out. What HTTP answers is described in
//! docs/openapi.json.

pub mod admin;
pub mod admission;
pub mod answer;
pub mod applied;
pub mod arrival;
mod body;
pub mod call;
pub mod common;
pub mod grpc;
mod header;
pub mod http;
mod linger;
pub mod local;
pub mod ops;
pub mod overview;
pub(crate) mod page;
mod rewound;
mod sending;
pub mod server;
pub mod upkeep;
pub mod whoami;
pub mod wire;
