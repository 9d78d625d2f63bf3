//! Behaviour over real sockets, against scripted plugins.
mod calls;
mod handshake;
mod lifecycle;
mod lying;
mod observing;
mod stale;
mod support;
