//! The composition root: builds a running gateway from a configuration and shuts it down. The only module
//! that knows every part.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use tokio::{
    net::TcpListener,
    signal::unix::Signal,
    sync::{mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::{ServingStatus, server::HealthReporter};

mod connect;
mod drain;
mod dry_run;
mod edges;
mod gauges;
mod host;
mod listeners;

pub use crate::app::connect::{ConnectReport, EndpointReport, PluginReport};
pub use crate::app::dry_run::{StartDryRun, StoreReport};

pub use crate::control::file_source::Source;
pub use crate::control::readiness_gate::MissingPlugin;
use crate::{
    admin::{Admin, WriteTracker, process_ops::ReloadRequest},
    config::{Config, LoadedConfig, Problems},
    control::{
        desired_config::{ConfigDryRunner, DesiredConfig},
        generation::{ConfigBasis, Generation, InitialGeneration, RuntimeBuilder},
        pending_reloads::PendingReloads,
        publisher::{self, Publisher},
        readiness_gate::{self, ReadinessGate},
        reconciler::Reconciler,
    },
    dataplane::call::Gateway,
    host::HostServices,
    net::{server, unix_listener::SocketFile, worker::Workers},
    ops::status::StatusSource,
    registry::{Registry, operations::Operations},
    snapshot::readiness::Readiness,
    telemetry::Telemetry,
    tls,
};
pub use drain::{MAX_LOG_FLUSH, TELEMETRY};
use edges::{AdminEdge, OpsEdge, data_edge};
use listeners::{Listeners, bound};

/// A gateway that is built but not started.
pub struct App {
    workshop: Arc<RuntimeBuilder>,
    /// The generation that it starts with.
    first: Arc<Generation>,
    /// The current generation.
    seen: Arc<ArcSwap<Generation>>,
    gateway: Arc<Gateway>,
    /// For the data and the admin port.
    tls: Option<tls::Server>,
    /// Where the configuration is reloaded from; `None` if it never is.
    origin: Option<Arc<DesiredConfig>>,
    /// Services for plugins; `None` without a store.
    host: Option<Arc<HostServices>>,
    /// Reload requests from operators.
    asks: (mpsc::Sender<ReloadRequest>, mpsc::Receiver<ReloadRequest>),
    /// `None` until they are open.
    listeners: Option<Listeners>,
}

/// The maximum number of operators waiting for a reload.
const MAX_PENDING_RELOADS: usize = 16;

/// Why a gateway can't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has mistakes.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// An address is taken, or a socket can't be opened.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Why a gateway ended, other than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("can't listen on {address} (`{key}`): {source}")]
    Listen {
        address: SocketAddr,
        /// The key in the configuration.
        key: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A socket can't be opened.
    #[error("can't listen on unix://{} (`{key}`): {why}", path.display())]
    Socket {
        path: PathBuf,
        /// The key in the configuration.
        key: &'static str,
        /// The cause and the remedy.
        why: String,
    },
    /// The system refuses a thread or its event queue.
    #[error("the workers can't be started: {0}")]
    Workers(io::Error),
    /// A required plugin is missing.
    #[error(transparent)]
    Missing(#[from] MissingPlugin),
}

impl App {
    /// Reads `source`, starts telemetry with `telemetry`, opens the ports, brings the file into the registry if there is
    /// one, and builds the gateway. Nothing is served yet.
    ///
    /// # Errors
    /// Every mistake in the configuration, with line numbers; or the address that is taken. Then the registry is
    /// unchanged.
    pub async fn start(
        source: Source,
        telemetry: impl FnOnce(&Config) -> Result<Telemetry, String>,
    ) -> Result<(Self, Telemetry), StartError> {
        let (loaded, telemetry) = source.load(telemetry)?;
        let (workshop, config) =
            (RuntimeBuilder::new(&loaded.config, telemetry.clone()), loaded.config.clone());
        let origin = Arc::new(DesiredConfig::new(source, loaded)?);
        let services =
            |registry: &Arc<Registry>| HostServices::new(&config, registry.plugin_data(), telemetry.clone());
        let workshop = Arc::new(workshop.with_host(origin.registry().map(services)));
        let listeners = match Listeners::open(&config).await {
            Ok(open) => open,
            Err(error) => {
                telemetry.shutdown(TELEMETRY).await;
                return Err(error.into());
            }
        };
        let (loaded, basis) = origin.first(&workshop).await?;
        let app = App::put_together(workshop, loaded, basis, Some(origin))?;
        Ok((App { listeners: Some(listeners), ..app }, telemetry))
    }

    /// Builds a gateway as [`App::start`] would, but from the file only and without contacting a collector
    /// or store. `config check` does this before it connects to plugins.
    ///
    /// # Errors
    /// See [`App::build`].
    pub fn dry_run(loaded: LoadedConfig) -> Result<Self, Problems> {
        let telemetry = crate::control::file_source::observed(&loaded, Telemetry::dry_run)?;
        App::build(loaded, telemetry)
    }

    pub fn config(&self) -> &Config {
        &self.first.config
    }

    /// Builds a gateway from `loaded` only. Nothing is bound or connected yet.
    ///
    /// # Errors
    /// Every mistake in the configuration that its parts find, with line numbers.
    pub fn build(loaded: LoadedConfig, telemetry: Telemetry) -> Result<Self, Problems> {
        let workshop = Arc::new(RuntimeBuilder::new(&loaded.config, telemetry));
        let basis = ConfigBasis::from_file(&loaded);
        App::put_together(workshop, loaded, basis, None)
    }

    fn put_together(
        workshop: Arc<RuntimeBuilder>,
        loaded: LoadedConfig,
        basis: ConfigBasis,
        origin: Option<Arc<DesiredConfig>>,
    ) -> Result<Self, Problems> {
        let InitialGeneration { generation: first, tls } = workshop.build(loaded, basis, &[])?;
        let snapshots = Arc::new(publisher::snapshots(&workshop, &first));
        let gateway = Arc::new(Gateway::new(snapshots, workshop.telemetry.clone(), workshop.abort.clone()));
        let registry = origin.as_ref().and_then(|origin| origin.registry());
        gauges::register(&gateway, &workshop.certificates, registry);
        let first = Arc::new(first);
        let seen = Arc::new(ArcSwap::new(Arc::clone(&first)));
        let (host, asks) = (workshop.host.clone(), mpsc::channel(MAX_PENDING_RELOADS));
        Ok(App { workshop, first, seen, gateway, tls, origin, host, asks, listeners: None })
    }

    /// Runs until SIGTERM or Ctrl-C, then drains. The process exits when the drain's time is over, even if
    /// this function hangs. `ready` is called once the gateway serves.
    ///
    /// # Errors
    /// If an address is taken or a required plugin is missing.
    pub async fn run(self, ready: impl FnOnce(&RunningGateway)) -> Result<(), RunError> {
        let (first, longest) = (Arc::clone(&self.first), drain::longest(&self.config().drain));
        let signals = drain::StopSignals::listen(longest);
        let hangups = crate::control::file_source::hangups();
        let bound = self.bind().await?;
        let started = tokio::select! {
            started = bound.start() => started.map(Some),
            () = signals.next() => Ok(None),
        };
        match started {
            Ok(Some(running)) => {
                // From here on, only the snapshot holds the first generation. When it is replaced, fetching
                // of its keys stops.
                drop(first);
                running.listen(hangups);
                ready(&running);
                running.until(|| signals.next()).await;
            }
            // Nothing was served yet, but plugins may have been initialised.
            Ok(None) => drain::let_go(&first).await,
            Err(error) => {
                drain::let_go(&first).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Opens the ports, unless [`App::start`] has, and starts to connect to the plugins. The gateway is not ready yet.
    ///
    /// # Errors
    /// If an address is taken.
    pub async fn bind(mut self) -> Result<BoundGateway, RunError> {
        let listeners = match self.listeners.take() {
            Some(open) => open,
            None => Listeners::open(self.config()).await?,
        };
        let Listeners { data, ops, admin, admin_socket: local, host: host_ports } = listeners;
        let (count, compute) = (self.config().server.workers(), self.workshop.shared.compute_pool());
        let workers = Workers::start(count, compute).map(Arc::new).map_err(RunError::Workers)?;
        let (data_addr, ops_addr, admin_addr) = (bound(&data), bound(&ops), admin.as_ref().map(bound));
        let lifecycle = ShutdownPhases::default();
        let readiness = Readiness::new(Arc::clone(&self.gateway.snapshots), lifecycle.draining.clone());
        gauges::register_readiness(&self.gateway.telemetry, &readiness);
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", ServingStatus::NotServing).await;

        let edge = data_edge(&self.gateway, health_service.clone(), lifecycle.data_drain());
        let connections = lifecycle.connections.clone();
        // Track the listener like a connection: the tracker can't finish while connections are still
        // accepted.
        let (drain, tls) = (lifecycle.data_drain(), self.tls.clone());
        let serving = server::serve_on(Arc::clone(&workers), data, tls, edge, drain, connections.clone());
        connections.spawn(serving);
        let registry = self.origin.as_ref().and_then(|origin| origin.registry().cloned());
        let overview = StatusSource::new(Arc::clone(&self.gateway), Arc::clone(&readiness), registry);
        let overview = Arc::new(overview);
        let edge = OpsEdge::new(Arc::clone(&overview), health_service.clone(), lifecycle.to_the_end());
        tokio::spawn(server::serve(ops, None, edge, lifecycle.to_the_end(), TaskTracker::new()));
        let (asks, writes) = (self.asks.0.clone(), lifecycle.writes.clone());
        let operators = Admin::new(overview, self.operations(), asks, writes, lifecycle.ended.clone());
        let host_socket = self.serve_plugins(host_ports, health_service.clone(), &lifecycle).await;
        let edge = AdminEdge::new(operators, health_service, lifecycle.to_the_end());
        let admin_socket = local.map(|(listener, file)| {
            let (edge, drain) = (edge.clone(), lifecycle.to_the_end());
            tokio::spawn(server::serve_local(listener, edge, drain, lifecycle.operators.clone()));
            file
        });
        match admin {
            Some(listener) => self.serve_admin(listener, edge, &lifecycle),
            None => tracing::info!("the admin port stays closed, because no issuer has an `admin_audience`"),
        }
        let (admin_addr, socket) = (admin_addr.map(tracing::field::display), admin_socket.as_ref());
        let socket = socket.map(|file| tracing::field::display(file.path().display()));
        tracing::info!(%data_addr, %ops_addr, admin_addr, admin_socket = socket, "listening");

        self.first.clients().for_each(|client| client.log_registered());
        self.first.start(&[], &lifecycle.ended);
        let (certificates, ended) = (self.workshop.certificates.clone(), lifecycle.ended.clone());
        tokio::spawn(async move { certificates.follow(ended).await });
        Ok(BoundGateway {
            app: self,
            data_addr,
            ops_addr,
            admin_socket,
            host_socket,
            workers,
            lifecycle,
            readiness,
            health,
        })
    }

    /// The operations on the registry, or on the file if there is none.
    fn operations(&self) -> Operations {
        let registry = self.origin.as_ref().and_then(|origin| Some((origin, origin.registry()?)));
        let Some((origin, registry)) = registry else {
            let seen = Arc::clone(&self.seen);
            return Operations::from_file(move || seen.load().basis.contents());
        };
        let dry_runner = ConfigDryRunner {
            origin: Arc::clone(origin),
            workshop: Arc::clone(&self.workshop),
            snapshots: Arc::clone(&self.gateway.snapshots),
            current: Arc::clone(&self.seen),
        };
        Operations::new(Arc::clone(registry), Arc::new(dry_runner))
    }

    fn serve_admin(&self, listener: TcpListener, edge: AdminEdge, lifecycle: &ShutdownPhases) {
        let (drain, operators) = (lifecycle.to_the_end(), lifecycle.operators.clone());
        tokio::spawn(server::serve(listener, self.tls.clone(), edge, drain, operators));
    }
}

/// A gateway whose ports are open, but which isn't ready yet.
pub struct BoundGateway {
    app: App,
    data_addr: SocketAddr,
    ops_addr: SocketAddr,
    admin_socket: Option<SocketFile>,
    host_socket: Option<SocketFile>,
    workers: Arc<Workers>,
    lifecycle: ShutdownPhases,
    readiness: Arc<Readiness>,
    health: HealthReporter,
}

impl BoundGateway {
    /// Waits for the file's required plugins, then serves. The gateway becomes ready as soon as the plugins
    /// that the registry requires are up too.
    ///
    /// # Errors
    /// If a required plugin of the file is missing.
    pub async fn start(self) -> Result<RunningGateway, RunError> {
        readiness_gate::wait(&self.app.first, self.app.workshop.shared.changes()).await?;
        readiness_gate::wait_for_registered(&self.app.first, self.app.workshop.shared.changes()).await;
        let BoundGateway {
            app,
            data_addr,
            ops_addr,
            admin_socket,
            host_socket,
            workers,
            lifecycle,
            readiness,
            health,
        } = self;
        let App { workshop, first, seen, gateway, origin, asks: (_, asks), .. } = app;
        let started = Arc::clone(&first.config);
        drop(first);
        // Subscribe first, because a plugin may connect while the table is built.
        let changes = workshop.shared.changes();
        let registry = origin.as_ref().and_then(|origin| origin.registry());
        let mut publisher =
            Publisher::new(Arc::clone(&workshop), Arc::clone(&gateway.snapshots), seen, registry);
        publisher.catch_up().await;
        let mut gate = ReadinessGate::new(readiness, health.clone());
        gate.look(publisher.current()).await;
        let ended = lifecycle.ended.clone();
        let (requests, shared, of_all) =
            (PendingReloads::new(asks), Arc::clone(&workshop), Arc::clone(&gateway.snapshots));
        let reload = Reconciler::new(shared, of_all, publisher, origin, requests, gate, ended);
        Ok(RunningGateway {
            changes,
            gateway,
            started,
            data_addr,
            ops_addr,
            sockets: [admin_socket, host_socket],
            workers,
            lifecycle,
            health,
            reload,
        })
    }
}

/// A gateway that serves. [`RunningGateway::until`] applies configuration changes and shuts it down.
pub struct RunningGateway {
    /// Changes of plugins' states since before the first table.
    changes: watch::Receiver<u64>,
    gateway: Arc<Gateway>,
    /// The configuration at the start. The generation is not kept, because it would keep its clients and
    /// the fetching of its keys alive.
    started: Arc<Config>,
    data_addr: SocketAddr,
    ops_addr: SocketAddr,
    /// The files of the admin and the host socket.
    sockets: [Option<SocketFile>; 2],
    workers: Arc<Workers>,
    lifecycle: ShutdownPhases,
    health: HealthReporter,
    reload: Reconciler,
}

impl RunningGateway {
    /// The address for agents.
    pub fn data_addr(&self) -> SocketAddr {
        self.data_addr
    }

    /// The address for probes and people.
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops_addr
    }

    /// Reloads the configuration on each of `hangups`, and when its file changes.
    fn listen(&self, hangups: io::Result<Signal>) {
        self.reload.follow();
        match hangups {
            Ok(hangups) => self.reload.listen(hangups),
            Err(error) => {
                tracing::error!(%error, "the SIGHUP handler can't be installed: the file will not be \
                                                   reloaded on SIGHUP")
            }
        }
    }

    /// Runs until a first `stop` resolves, then drains. A second `stop` after the first cuts the drain
    /// short.
    pub async fn until<F: Future<Output = ()>>(self, stop: impl Fn() -> F) {
        let RunningGateway {
            changes, gateway, started, sockets, workers, lifecycle, health, mut reload, ..
        } = self;
        tokio::select! {
            () = reload.run(changes) => {}
            () = stop() => {}
        }
        reload.give_up();
        let drained = drain::run(&started.drain, &gateway, reload.publisher(), &lifecycle, &health);
        tokio::select! {
            () = drained => {}
            () = stop() => tracing::warn!("second signal: abandoning calls in flight"),
        }
        lifecycle.writes.close();
        lifecycle.ended.cancel();
        drain::take_leave(&lifecycle.operators).await;
        drop(sockets);
        reload.close().await;
        // Last: the connections to plugins are theirs.
        drop(workers);
    }
}

/// The phases of a shutdown, in this order.
#[derive(Default)]
struct ShutdownPhases {
    /// Readiness is off, but calls are still accepted.
    draining: CancellationToken,
    /// No new connections are accepted, and existing ones are told to close.
    goaway: CancellationToken,
    /// Everything has ended.
    ended: CancellationToken,
    /// The data port's connections.
    connections: TaskTracker,
    /// The admin port's connections.
    operators: TaskTracker,
    /// Operators' writes, accepted as long as calls are.
    writes: WriteTracker,
}

impl ShutdownPhases {
    fn data_drain(&self) -> server::DrainSignals {
        server::DrainSignals { soon: self.draining.clone(), goaway: self.goaway.clone() }
    }

    fn to_the_end(&self) -> server::DrainSignals {
        server::DrainSignals { goaway: self.ended.clone(), ..server::DrainSignals::default() }
    }
}
