//! The gateway's ports and sockets, opened before anything is written: a start that fails must change nothing that
//! other gateways see.

use std::{net::SocketAddr, path::Path};

use tokio::net::{TcpListener, UnixListener};

use super::{RunError, host::HostPorts};
use crate::{
    config::Config,
    net::unix_listener::{self, SocketFile},
};

/// The open listeners, which nobody serves yet.
pub(super) struct Listeners {
    pub(super) data: TcpListener,
    pub(super) ops: TcpListener,
    pub(super) admin: Option<TcpListener>,
    pub(super) admin_socket: Option<(UnixListener, SocketFile)>,
    pub(super) host: HostPorts,
}

impl Listeners {
    /// # Errors
    /// If an address is taken, or a socket can't be opened.
    pub(super) async fn open(config: &Config) -> Result<Self, RunError> {
        let server = &config.server;
        let data = listen(server.data_addr, "server.data_addr").await?;
        let ops = listen(server.ops_addr, "server.ops_addr").await?;
        let admin = listen_if_set(config.admin_addr(), "server.admin_addr").await?;
        let path = server.admin_socket.as_deref();
        let admin_socket =
            listen_on_socket_if_set(path, "server.admin_socket", unix_listener::OWNER_ONLY).await?;
        let host = HostPorts::listen(server).await?;
        Ok(Listeners { data, ops, admin, admin_socket, host })
    }
}

/// `None` if the configuration has no such socket.
pub(super) async fn listen_on_socket_if_set(
    path: Option<&Path>,
    key: &'static str,
    mode: u32,
) -> Result<Option<(UnixListener, SocketFile)>, RunError> {
    let Some(path) = path else { return Ok(None) };
    let listening = unix_listener::listen(path, mode).await;
    listening.map(Some).map_err(|why| RunError::Socket { path: path.to_owned(), key, why })
}

/// `None` if the configuration has no such address.
pub(super) async fn listen_if_set(
    address: Option<SocketAddr>,
    key: &'static str,
) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else { return Ok(None) };
    listen(address, key).await.map(Some)
}

async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Listen { address, key, source })
}

pub(super) fn bound(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound listener has an address")
}
