//! TLS on both sides of the gateway.

mod callers;
mod plugins;
mod rotation;
