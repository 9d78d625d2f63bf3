//! Runs plugins as a process: listens, serves them, `grpc.health.v1` and reflection, registers them with a gateway if it
//! is asked to, and stops gracefully. [`crate::host`] answers the calls.

mod plugin_router;
mod registration;

use std::{io, time::Duration};

use futures::future::join_all;
use hookgate_proto::plugin::v1::plugin_service_server::PluginService;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tonic::transport::server::Router;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

pub use self::registration::{Registration, RegistrationError};
use self::{
    plugin_router::{PluginRouter, ServedPlugin},
    registration::RunningRegistrar,
};
use crate::{
    Address, AddressError, Plugin,
    listen::{Listener, connections, listen},
};

/// How long calls in flight may take to finish after a stop; less than the 30 s that Kubernetes allows.
const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// Why plugins could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Listening failed.
    #[error("can't listen at {address}: {source}")]
    Listen {
        /// The address.
        address: Address,
        /// The cause.
        source: io::Error,
    },
    /// No plugin was given.
    #[error("there is no plugin to serve: add one with `Server::with_plugin`")]
    NoPlugin,
    /// Two of the plugins have the same name.
    #[error("two of the plugins are named `{0}`: each needs a name of its own")]
    DuplicatePlugin(String),
    /// The process can't register itself.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// Signal handlers can't be installed.
    #[error("can't wait for signals: {0}")]
    Signal(io::Error),
    /// The connection handling failed.
    #[error("serving failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Serves a plugin at `unix:///path` or `http://host:port` until SIGTERM or Ctrl-C, then finishes the calls
/// in flight.
///
/// # Errors
/// If the address is malformed or taken.
pub async fn serve<P: Plugin>(address: &str) -> Result<(), ServeError> {
    let stop = stop_signal()?;
    Server::bind(address).await?.with_plugin::<P>().run(stop).await
}

/// Resolves on SIGTERM or Ctrl-C. Signals are caught from this call on.
///
/// # Errors
/// When the signals can't be caught.
pub fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signal)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// A listener, and the plugins that [`Server::run`] serves there.
pub struct Server {
    listener: Listener,
    address: Address,
    plugins: Vec<ServedPlugin>,
    drain: Duration,
    registration: Option<Registration>,
}

impl Server {
    /// Listens at `unix:///path` or `http://host:port`. A stale socket file is replaced, one in use is not.
    /// The new file has the mode 0660.
    ///
    /// # Errors
    /// If the address is malformed or taken.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        let wanted: Address = address.parse()?;
        let bound = listen(&wanted).await;
        let (listener, address) = bound.map_err(|source| ServeError::Listen { address: wanted, source })?;
        Ok(Server {
            listener,
            address,
            plugins: Vec::new(),
            drain: DEFAULT_DRAIN_TIMEOUT,
            registration: None,
        })
    }

    /// The address with the actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Adds a plugin. Several plugins at one address are separate plugins to a gateway, each with its own entry,
    /// configuration and storage.
    #[must_use]
    pub fn with_plugin<P: Plugin>(mut self) -> Self {
        self.plugins.push(ServedPlugin::new::<P>());
        self
    }

    /// Adds a plugin that implements the contract itself, for a program that learns only at run time what its plugins
    /// are. The program ends its instances after [`Server::run`].
    #[must_use]
    pub fn with_service(mut self, name: &str, version: &str, service: impl PluginService) -> Self {
        self.plugins.push(ServedPlugin::of_service(name, version, service));
        self
    }

    /// How long calls in flight may take to finish after a stop. The default is 25 s.
    #[must_use]
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Registers each plugin with a gateway while it is served.
    #[must_use]
    pub fn with_registration(mut self, registration: Registration) -> Self {
        self.registration = Some(registration);
        self
    }

    /// Serves until `stop` resolves. Then ends the registration, accepts no more calls, finishes those in flight, and
    /// shuts the instances down.
    ///
    /// # Errors
    /// When there is no plugin or two have the same name, when the registration can't work, or the connection handling
    /// fails.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let Server { listener, address, plugins, drain, registration } = self;
        let socket = SocketFile(&address);
        check_names(&plugins)?;
        let register = |registration: Registration| -> Result<Vec<_>, _> {
            plugins.iter().map(|plugin| registration.clone().start(&plugin.name, &address)).collect()
        };
        let registrars = registration.map(register).transpose()?.unwrap_or_default();
        let (health, health_service) = tonic_health::server::health_reporter();
        let router = tonic::transport::Server::builder()
            .add_service(health_service)
            .add_service(reflection())
            .add_service(PluginRouter::new(&plugins));
        for plugin in &plugins {
            tracing::info!(plugin = &*plugin.name, version = plugin.version, %address, "plugin listens");
        }
        let (stopping, stopped) = oneshot::channel();
        let stop = async {
            stop.await;
            join_all(registrars.into_iter().map(RunningRegistrar::stop)).await;
            health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
            // Before the drain, so that a successor can listen immediately.
            drop(socket);
            let _ = stopping.send(());
        };
        let overdue = async {
            // On an error, `stop` was dropped because serving has ended.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(drain).await;
        };
        let served = tokio::select! {
            served = run_listener(router, listener, stop) => served,
            () = overdue => {
                tracing::warn!(%address, "calls are still in flight; stopping without them");
                Ok(())
            }
        };
        join_all(plugins.iter().map(ServedPlugin::shutdown)).await;
        for plugin in &plugins {
            tracing::info!(plugin = &*plugin.name, "plugin stopped");
        }
        Ok(served?)
    }
}

/// Removes the file of a Unix socket when it is dropped.
struct SocketFile<'a>(&'a Address);

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        if let Address::Unix(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn check_names(plugins: &[ServedPlugin]) -> Result<(), ServeError> {
    let mut names: Vec<_> = plugins.iter().map(|plugin| &*plugin.name).collect();
    if names.is_empty() {
        return Err(ServeError::NoPlugin);
    }
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ServeError::DuplicatePlugin(pair[0].to_owned())),
        None => Ok(()),
    }
}

async fn run_listener(
    router: Router,
    listener: Listener,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    match listener {
        Listener::Unix(unix) => router.serve_with_incoming_shutdown(connections(unix), stop).await,
        Listener::Tcp(tcp) => router.serve_with_incoming_shutdown(connections(tcp), stop).await,
    }
}

/// Reflection over the contract and the health service.
fn reflection() -> ServerReflectionServer<impl ServerReflection> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(hookgate_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("both descriptor sets are generated code")
}

#[cfg(test)]
mod tests;
