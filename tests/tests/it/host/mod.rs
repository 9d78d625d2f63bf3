//! The gateway's services for plugins (`hookgate.host.v1`): storage and its tokens, over real sockets.

mod crash;
mod offer;
mod replicas;
mod requests;
mod support;
mod tokens;
