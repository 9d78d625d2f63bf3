//! The proxy's sockets, TCP and Unix.

use std::{io, net::SocketAddr, path::PathBuf};

use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixListener, UnixStream},
};

use crate::port::{ReservedPort, ShutdownListener};

#[derive(Debug, Clone)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

pub(super) enum Listener {
    Tcp(ShutdownListener),
    Unix(UnixListener),
}

/// Reserves an address: holds a port, or the folder of a Unix socket.
pub(super) struct Held {
    _port: Option<ReservedPort>,
    _folder: Option<TempDir>,
}

/// One end of a connection.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// Makes the connection end with RST instead of FIN, if the socket supports it.
    fn reset_on_drop(&self) {}
}

impl Socket for UnixStream {}

impl Socket for TcpStream {
    fn reset_on_drop(&self) {
        self.set_zero_linger().expect("the socket is ours");
    }
}

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Socket>> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Listener::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

impl Address {
    /// The plugin's address, and a free one of the same kind.
    pub(super) fn pair(endpoint: &str) -> (Self, Self, Held) {
        if let Some(path) = endpoint.strip_prefix("unix://") {
            let directory = tempfile::Builder::new().prefix("hg").tempdir();
            let directory = directory.expect("a temporary directory can be made");
            let address = Address::Unix(directory.path().join("p"));
            return (Address::Unix(path.into()), address, Held { _port: None, _folder: Some(directory) });
        }
        let plugin = endpoint.split_once("://").and_then(|(_, address)| address.parse().ok());
        let plugin = plugin.expect("fake plugins are at an address and a port");
        let reserved = ReservedPort::new().expect("a port is free");
        let address = Address::Tcp(reserved.address());
        (Address::Tcp(plugin), address, Held { _port: Some(reserved), _folder: None })
    }

    pub(super) async fn listen(&self) -> io::Result<Listener> {
        Ok(match self {
            Address::Tcp(address) => Listener::Tcp(ShutdownListener::bind(*address).await?),
            Address::Unix(path) => Listener::Unix(UnixListener::bind(path)?),
        })
    }

    /// Removes what a closed listener leaves behind.
    pub(super) fn clean_up(&self) {
        if let Address::Unix(path) = self {
            std::fs::remove_file(path).expect("the socket is there");
        }
    }

    pub(super) async fn dial(&self) -> io::Result<Box<dyn Socket>> {
        Ok(match self {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}
