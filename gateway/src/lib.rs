//! Hookgate: a plugin gateway for AI agents.
pub mod config;
pub mod context;
pub mod error;
pub mod point;
pub mod step;
