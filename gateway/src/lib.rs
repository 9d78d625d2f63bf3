//! Hookgate: a plugin gateway for AI agents.
//!
//! An agent calls the gateway at four points of its loop. For each call the gateway runs the tenant's chain of
//! plugins over the payload and answers with the final payload, with a block, or with the reason why there is no
//! decision.
//!
//! ```text
//!            token              Identity                       Plan               reply
//!   agent ─────────► dataplane ───────────► dataplane::stack ────────► invoke ◄────────► upstream ──► plugin
//!                    http|grpc    auth           │                      chain             a client per plugin
//!                        ▲                       │ edge::admission, edge::body, transcode, payload
//!                        └── edge::response ◄────┘ the chain's outcome, or an error
//!
//!   config, registry ──► control ──► snapshot (published as a whole, taken once per call)
//! ```
//!
//! Two planes: [`dataplane`] serves calls; [`control`], [`admin`] and [`registry`] change configuration. Both share
//! [`core`] (the vocabulary) and [`snapshot`] (the configuration that calls use). [`app`] wires everything. No circle
//! of imports joins two top-level modules; a test keeps that.
// The layers of a call are one future: rustc computes its layout deeper than the default limit.
#![recursion_limit = "256"]

pub mod admin;
pub mod app;
pub mod auth;
pub mod builtin;
pub mod config;
pub mod control;
pub mod core;
pub mod dataplane;
pub mod edge;
pub mod egress;
pub(crate) mod fairness;
pub mod fs;
pub mod grpc;
pub mod host;
pub mod invoke;
pub mod json;
pub mod llm;
pub mod net;
pub mod ops;
pub mod payload;
pub mod records;
pub mod registry;
pub mod routing;
pub mod snapshot;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tls;
pub mod transcode;
pub mod upstream;
