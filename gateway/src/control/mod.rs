//! The control plane: how a configuration comes into effect.
//!
//! [`reconciler`] notices a changed file or registry revision and lets [`desired_config`] read it;
//! `reload_state` is its state machine. [`generation`] builds everything that one configuration needs and
//! reuses unchanged parts. [`candidate`] waits for the new plugins, and [`publisher`] publishes the snapshot
//! that calls use. [`client_drain`] shuts replaced clients down. Nothing here runs during a call.

pub mod active_bypasses;
pub mod candidate;
pub mod client_drain;
pub mod desired_config;
pub mod file_source;
pub mod generation;
pub mod pending_reloads;
pub mod publisher;
pub mod readiness_gate;
pub mod reconciler;
pub mod rejected_entries;
pub mod reload_requests;
mod reload_span;
mod reload_state;
