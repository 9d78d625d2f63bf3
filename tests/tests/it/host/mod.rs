//! The gateway's services for plugins (`hookgate.host.v1`): storage, log, events and their tokens, over real sockets.

mod crash;
mod deletion;
mod histories;
mod offer;
mod output;
mod registration;
mod replicas;
mod requests;
mod support;
mod tls;
mod tokens;
