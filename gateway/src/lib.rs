//! Hookgate: a plugin gateway for AI agents.
//!
//! An agent calls the gateway at four points of its loop. For each call the gateway runs the tenant's chain of
//! plugins over the payload and answers with the final payload, with a block, or with the reason why there is no
//! decision.
//!
//! ```text
//!            token             Identity                   Plan              reply
//!   agent ─────────► ingress ──────────► ingress::call ─────────► invoke ◄────────► upstream ──► plugin
//!                    http|grpc   auth         │                    chain            a client per plugin
//!                       ▲                     │ admission, body, json, payload
//!                       └── ingress::answer ◄─┘ Result<Ended, Error>
//!
//!   config ──► routing::RouteTable ──► ingress::call::InForce (published as a whole, taken once per call)
//! ```
//!
//! Arrows point one way: `ingress` -> `invoke` -> {`routing`, `upstream`} -> the contract. [`app`] wires it all.
//! The vocabularies that everybody shares stand at the root: [`point`], [`step`], [`error`], [`context`].

pub mod app;
pub mod auth;
mod bounded;
pub mod builtin;
pub mod cli;
pub mod config;
mod confined;
pub mod context;
pub mod digest;
mod egress;
pub mod error;
mod fair_share;
mod flight;
pub mod ingress;
pub mod invoke;
mod joined;
pub mod json;
pub mod payload;
pub mod point;
pub mod registry;
pub mod routing;
pub mod step;
pub mod store;
pub mod telemetry;
mod terminal;
pub mod tls;
pub mod upstream;
