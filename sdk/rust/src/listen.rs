//! Listeners: binding a Unix socket or a TCP port, and the streams of connections that come from them.

use std::{
    convert::Infallible,
    io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use futures::Stream;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::Address;

/// The pause after a failed accept, for example when no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Readable and writable for the owner and the group, because the gateway runs as another user of the same
/// group.
const SOCKET_MODE: u32 = 0o660;

pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Listens on an address and returns it with the actual port.
pub(crate) async fn listen(address: &Address) -> io::Result<(Listener, Address)> {
    match address {
        Address::Unix(path) => Ok((Listener::Unix(listen_unix(path).await?), address.clone())),
        Address::Tcp(authority) => {
            let listener = TcpListener::bind(authority).await?;
            let bound = Address::Tcp(listener.local_addr()?.to_string());
            Ok((Listener::Tcp(listener), bound))
        }
    }
}

async fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
        }
        Ok(_) => remove_stale(path).await?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Removes a socket file that a dead process left behind: one that refuses connections.
async fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// A listener whose connections are ready for use.
pub(crate) trait Accept: Send + 'static {
    type Connection: Send;

    fn accept_one(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Accept for UnixListener {
    type Connection = UnixStream;

    async fn accept_one(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl Accept for TcpListener {
    type Connection = TcpStream;

    async fn accept_one(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // tonic sets this only on its own listeners. Without it, replies wait 40 ms for an acknowledgement.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// An endless stream of connections. Failed accepts are skipped.
pub(crate) fn connections<A: Accept>(
    listener: A,
) -> impl Stream<Item = Result<A::Connection, Infallible>> + Send {
    futures::stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept_one().await {
                Ok(connection) => return Some((Ok(connection), listener)),
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_accepted_tcp_connection_sends_without_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(listener.accept_one().await.unwrap().nodelay().unwrap());
    }
}
