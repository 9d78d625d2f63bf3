//! Listeners and sockets: accepting connections, the admin socket, closing without losing an answer; the addresses of names;
//! and the bytes of a body. Doesn't interpret requests.

pub mod body_buffer;
pub(crate) mod connection_task;
pub(crate) mod egress_resolver;
pub mod lingering_close;
pub(crate) mod movable;
pub mod prefixed_io;
pub mod read_after_write_error;
pub mod server;
pub mod tracked_body;
pub mod unix_listener;
pub(crate) mod worker;
pub(crate) mod write_buffer;
