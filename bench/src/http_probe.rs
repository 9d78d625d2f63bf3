//! One GET of a port that says how a process is doing: the gateway's ops port, or Envoy's admin port.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use crate::BenchError;

/// A process that accepts a connection and never answers fails the run.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer.
pub(crate) struct ProbeAnswer {
    /// Whether its status is 200.
    pub(crate) is_ok: bool,
    /// All of it: the status line, the headers and the body.
    pub(crate) text: String,
}

/// Gets `path` from `address`, which is `host:port`, over a connection of its own.
pub(crate) fn get(address: &str, path: &str) -> Result<ProbeAnswer, BenchError> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    Ok(ProbeAnswer { is_ok: text.get(9..12) == Some("200"), text })
}
