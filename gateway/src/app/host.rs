//! The listeners for plugins that use the gateway's services (`server.host_addr`, `server.host_socket`).

use std::net::SocketAddr;

use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::TaskTracker;

use super::{RunError, bound, listen, listen_on_socket};
use crate::{
    config,
    net::{
        server::{self, DrainSignals, RequestHandler},
        unix_listener::{EVERY_USER, SocketFile},
    },
    tls,
};

/// The open listeners, which nobody serves yet.
pub(super) struct HostPorts {
    port: Option<TcpListener>,
    socket: Option<(UnixListener, SocketFile)>,
}

impl HostPorts {
    pub(super) async fn listen(server: &config::Server) -> Result<Self, RunError> {
        let port = match server.host_addr {
            Some(address) => Some(listen(address, "server.host_addr").await?),
            None => None,
        };
        let socket = match &server.host_socket {
            Some(path) => Some(listen_on_socket(path, "server.host_socket", EVERY_USER).await?),
            None => None,
        };
        Ok(HostPorts { port, socket })
    }

    /// The address of the port.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.port.as_ref().map(bound)
    }

    /// Serves `edge` until `drain`. Returns the socket's file, which is removed when it is dropped.
    pub(super) fn serve(
        self,
        edge: &(impl RequestHandler + Sync),
        tls: Option<&tls::Server>,
        drain: &DrainSignals,
    ) -> Option<SocketFile> {
        let (address, connections) = (self.address(), TaskTracker::new());
        if let Some(port) = self.port {
            let serving = server::serve(port, tls.cloned(), edge.clone(), drain.clone(), connections.clone());
            tokio::spawn(serving);
        }
        let file = self.socket.map(|(socket, file)| {
            tokio::spawn(server::serve_local(socket, edge.clone(), drain.clone(), connections));
            file
        });
        let socket = file.as_ref().map(|file| tracing::field::display(file.path().display()));
        let address = address.map(tracing::field::display);
        if address.is_some() || socket.is_some() {
            tracing::info!(host_addr = address, host_socket = socket, "plugins reach the host services here");
        }
        file
    }
}
