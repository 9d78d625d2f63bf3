//! The listeners for plugins that use the gateway's services (`server.host_addr`, `server.host_socket`).

use std::{net::SocketAddr, sync::Arc};

use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::TaskTracker;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{
    App, RunError, ShutdownPhases,
    edges::HostEdge,
    listeners::{bound, listen_if_set, listen_on_socket_if_set},
};
use crate::{
    config,
    host::PluginRegistrar,
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
        let port = listen_if_set(server.host_addr, "server.host_addr").await?;
        let path = server.host_socket.as_deref();
        let socket = listen_on_socket_if_set(path, "server.host_socket", EVERY_USER).await?;
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

impl App {
    /// Serves the host ports until the end: plugins may still write when they are shut down.
    pub(super) async fn serve_plugins(
        &self,
        ports: HostPorts,
        health: HealthServer<impl Health>,
        lifecycle: &ShutdownPhases,
    ) -> Option<SocketFile> {
        let host = self.host.as_ref()?;
        host.prepare().await;
        if let Some(address) = ports.address() {
            host.bound_to(address);
        }
        let registrar = self.registrar(lifecycle)?;
        registrar.prepare().await;
        tokio::spawn(Arc::clone(host).follow(lifecycle.ended.clone()));
        tokio::spawn(Arc::clone(&registrar).follow(lifecycle.ended.clone()));
        let (services, registrations) = (host.routes(), registrar.routes());
        let edge =
            HostEdge::new(services, registrations, &self.gateway.telemetry, health, lifecycle.to_the_end());
        ports.serve(&edge, self.tls.as_ref(), &lifecycle.to_the_end())
    }

    /// Takes plugins' registrations; there is none without a registry.
    fn registrar(&self, lifecycle: &ShutdownPhases) -> Option<Arc<PluginRegistrar>> {
        let registry = self.origin.as_ref()?.registry()?;
        Some(PluginRegistrar::new(
            Arc::clone(&self.gateway.snapshots),
            self.operations(),
            registry.plugin_data(),
            self.workshop.shared.clone(),
            self.gateway.telemetry.clone(),
            lifecycle.draining.clone(),
        ))
    }
}
