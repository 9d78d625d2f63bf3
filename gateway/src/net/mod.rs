//! Listeners and sockets: accepting connections, the admin socket, closing without losing an answer. Knows no request.

pub mod lingering_close;
pub mod prefixed_io;
pub mod read_after_write_error;
pub mod server;
pub mod tracked_body;
pub mod unix_listener;
