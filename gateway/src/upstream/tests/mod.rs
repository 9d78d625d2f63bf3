//! Behaviour over real sockets, against scripted plugins.
mod calls;
mod connections;
mod consent;
mod goaway;
mod handshake;
mod health;
mod lifecycle;
mod lying;
mod names;
mod observing;
mod raw;
mod reads;
mod rollout;
mod several;
mod stale;
pub(super) mod support;
