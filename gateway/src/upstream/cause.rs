//! Why an address can't be reached: stable words for status and logs, so that an operator sees what to mend without
//! reading the system's own sentence.

use std::{fmt, io};

/// Why there is no connection to an address of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nobody listens there.
    NobodyListens,
    /// There is nothing at the path of a Unix socket.
    NoSocket,
    /// What is at the path is no socket.
    NotASocket,
    /// The system doesn't let this process use the socket.
    SocketPermission,
    /// The name can't be resolved.
    NameUnresolved,
    /// The name has no address.
    NoAddress,
    /// No connection within `limits.connect`.
    ConnectTimeout,
    /// The other end hung up before it answered anything.
    Closed,
    /// Anything else.
    Other,
}

impl Cause {
    /// The name used in status and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::NobodyListens => "connection_refused",
            Cause::NoSocket => "no_socket",
            Cause::NotASocket => "not_a_socket",
            Cause::SocketPermission => "socket_permission",
            Cause::NameUnresolved => "name_unresolved",
            Cause::NoAddress => "no_address",
            Cause::ConnectTimeout => "connect_timeout",
            Cause::Closed => "closed_without_answer",
            Cause::Other => "unreachable",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A dial that came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct DialError {
    pub(super) cause: Cause,
    /// For the operator: what happened, and what to mend where that isn't plain.
    pub(super) detail: String,
}

impl DialError {
    pub(super) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        DialError { cause, detail: detail.into() }
    }

    /// What the system said of a socket.
    pub(super) fn of_socket(error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::NobodyListens,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Cause::Closed,
            io::ErrorKind::TimedOut => Cause::ConnectTimeout,
            _ => Cause::Other,
        };
        DialError::new(cause, error.to_string())
    }
}
