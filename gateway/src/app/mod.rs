//! The composition root: turns a configuration into a running gateway and takes it down again. The only place that
//! knows every part.

use crate::control::publisher;
use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use tokio::{
    net::{TcpListener, UnixListener},
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

pub use crate::app::connect::{ConnectReport, EndpointReport, PluginReport};
pub use crate::app::dry_run::{DryRun, StoreReport};

pub use crate::control::file_source::Source;
pub use crate::control::readiness_gate::Missing;
use crate::{
    admin::{Admin, WriteTracker, process_ops::Ask},
    config::{Config, LoadedConfig, Problems},
    control::{
        desired_config::{ConfigPreview, DesiredConfig},
        generation::{Built, ConfigBasis, Generation, RuntimeBuilder},
        pending_reloads::Asked,
        publisher::Publisher,
        readiness_gate::ReadinessGate,
        reconciler::Reload,
    },
    dataplane::call::Gateway,
    net::{
        server,
        unix_listener::{self, SocketFile},
    },
    ops::status::StatusSource,
    registry::operations::Operations,
    snapshot::readiness::Readiness,
    telemetry::Telemetry,
    tls,
};
pub use drain::{MAX_LOG_FLUSH, TELEMETRY};
use edges::{AdminEdge, DataEdge, OpsEdge};

/// A gateway, put together and not started.
pub struct App {
    workshop: Arc<RuntimeBuilder>,
    /// What it starts with.
    first: Arc<Generation>,
    /// What is in force.
    seen: Arc<ArcSwap<Generation>>,
    gateway: Arc<Gateway>,
    /// Of the data and the admin port.
    tls: Option<tls::Server>,
    /// Where the configuration is read again; none: it isn't.
    origin: Option<Arc<DesiredConfig>>,
    /// What operators ask for, once it runs.
    asks: (mpsc::Sender<Ask>, mpsc::Receiver<Ask>),
}

/// Most operators that wait until it is looked at what they ask for.
const MAX_PENDING_RELOADS: usize = 16;

/// Why a gateway ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An address can't be listened on.
    #[error("can't listen on {address} (`{key}`): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The key that says it.
        key: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The admin socket can't be had.
    #[error("can't listen on unix://{} (`server.admin_socket`): {why}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What is in its way, and what to do.
        why: String,
    },
    /// A plugin that must be there isn't.
    #[error(transparent)]
    Missing(#[from] Missing),
}

impl App {
    /// Reads `source`, starts its telemetry with `telemetry`, reads the registry where there is one, and puts the gateway
    /// together: what `serve` does before it binds anything.
    ///
    /// # Errors
    /// Every mistake of the configuration, with the lines.
    pub async fn start(
        source: Source,
        telemetry: impl FnOnce(&Config) -> Result<Telemetry, String>,
    ) -> Result<(Self, Telemetry), Problems> {
        let (loaded, telemetry) = source.load(telemetry)?;
        let workshop = Arc::new(RuntimeBuilder::new(&loaded.config, telemetry.clone()));
        let origin = Arc::new(DesiredConfig::new(source, loaded)?);
        let (loaded, basis) = origin.first(&workshop).await?;
        Ok((App::put_together(workshop, loaded, basis, Some(origin))?, telemetry))
    }

    /// Puts a gateway together as [`App::start`] would, of what is in a file alone: what `config check` does before it asks
    /// plugins. No collector is reached, and no registry.
    ///
    /// # Errors
    /// See [`App::build`].
    pub fn rehearse(loaded: LoadedConfig) -> Result<Self, Problems> {
        let telemetry = crate::control::file_source::observed(&loaded, Telemetry::rehearse)?;
        App::build(loaded, telemetry)
    }

    /// What it was put together from.
    pub fn config(&self) -> &Config {
        &self.first.config
    }

    /// Puts a gateway together of what is in `loaded` alone; nothing is bound or dialled yet.
    ///
    /// # Errors
    /// Every mistake of the configuration that its parts find, with the lines.
    pub fn build(loaded: LoadedConfig, telemetry: Telemetry) -> Result<Self, Problems> {
        let workshop = Arc::new(RuntimeBuilder::new(&loaded.config, telemetry));
        let basis = ConfigBasis::of_file(&loaded);
        App::put_together(workshop, loaded, basis, None)
    }

    fn put_together(
        workshop: Arc<RuntimeBuilder>,
        loaded: LoadedConfig,
        basis: ConfigBasis,
        origin: Option<Arc<DesiredConfig>>,
    ) -> Result<Self, Problems> {
        let Built { generation: first, tls } = workshop.build(loaded, basis, &[])?;
        let snapshots = Arc::new(publisher::snapshots(&workshop, &first));
        let gateway = Arc::new(Gateway::new(snapshots, workshop.telemetry.clone(), workshop.abort.clone()));
        let registry = origin.as_ref().and_then(|origin| origin.registry());
        gauges::register(&gateway, &workshop.certificates, registry);
        let first = Arc::new(first);
        let seen = Arc::new(ArcSwap::new(Arc::clone(&first)));
        Ok(App { workshop, first, seen, gateway, tls, origin, asks: mpsc::channel(MAX_PENDING_RELOADS) })
    }

    /// Runs until SIGTERM or Ctrl-C, then drains. The process ends by the end of the drain's time even where this
    /// doesn't return. `ready` is called once it serves.
    ///
    /// # Errors
    /// When an address is taken, or a required plugin is missing.
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
                // From here on it goes when it is replaced, and with it the fetching of its keys.
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

    /// Listens and dials the plugins; answers that it isn't ready.
    ///
    /// # Errors
    /// When an address is taken.
    pub async fn bind(self) -> Result<BoundGateway, RunError> {
        let server = &self.config().server;
        let data = listen(server.data_addr, "server.data_addr").await?;
        let ops = listen(server.ops_addr, "server.ops_addr").await?;
        let admin = match self.config().admin_addr() {
            Some(address) => Some(listen(address, "server.admin_addr").await?),
            None => None,
        };
        let local = self.listen_locally().await?;
        let (data_addr, ops_addr, admin_addr) = (bound(&data), bound(&ops), admin.as_ref().map(bound));
        let lifecycle = ShutdownPhases::default();
        let readiness = Readiness::new(Arc::clone(&self.gateway.snapshots), lifecycle.draining.clone());
        gauges::register_readiness(&self.gateway.telemetry, &readiness);
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", ServingStatus::NotServing).await;

        let edge = DataEdge::new(Arc::clone(&self.gateway), health_service.clone(), lifecycle.data_drain());
        let connections = lifecycle.connections.clone();
        // Among the connections itself: as long as it accepts, nobody is let go of.
        let serving =
            server::serve(data, self.tls.clone(), edge, lifecycle.data_drain(), connections.clone());
        connections.spawn(serving);
        let registry = self.origin.as_ref().and_then(|origin| origin.registry().cloned());
        let overview = StatusSource::new(Arc::clone(&self.gateway), Arc::clone(&readiness), registry);
        let overview = Arc::new(overview);
        let edge = OpsEdge::new(Arc::clone(&overview), health_service.clone(), lifecycle.to_the_end());
        tokio::spawn(server::serve(ops, None, edge, lifecycle.to_the_end(), TaskTracker::new()));
        let (asks, writes) = (self.asks.0.clone(), lifecycle.writes.clone());
        let operators = Admin::new(overview, self.operations(), asks, writes, lifecycle.ended.clone());
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
        Ok(BoundGateway { app: self, data_addr, ops_addr, admin_socket, lifecycle, readiness, health })
    }

    /// What operators do with the registry, or with the file where there is none.
    fn operations(&self) -> Operations {
        let registry = self.origin.as_ref().and_then(|origin| Some((origin, origin.registry()?)));
        let Some((origin, registry)) = registry else {
            let seen = Arc::clone(&self.seen);
            return Operations::from_file(move || seen.load().basis.contents());
        };
        let foresight = ConfigPreview {
            origin: Arc::clone(origin),
            workshop: Arc::clone(&self.workshop),
            snapshots: Arc::clone(&self.gateway.snapshots),
            current: Arc::clone(&self.seen),
        };
        Operations::new(Arc::clone(registry), Arc::new(foresight))
    }

    /// Listens on the admin socket, if there is to be one.
    async fn listen_locally(&self) -> Result<Option<(UnixListener, SocketFile)>, RunError> {
        let Some(path) = &self.config().server.admin_socket else { return Ok(None) };
        let listening = unix_listener::listen(path).await;
        listening.map(Some).map_err(|why| RunError::Socket { path: path.clone(), why })
    }

    fn serve_admin(&self, listener: TcpListener, edge: AdminEdge, lifecycle: &ShutdownPhases) {
        let (drain, operators) = (lifecycle.to_the_end(), lifecycle.operators.clone());
        tokio::spawn(server::serve(listener, self.tls.clone(), edge, drain, operators));
    }
}

/// A gateway that listens and isn't ready yet.
pub struct BoundGateway {
    app: App,
    data_addr: SocketAddr,
    ops_addr: SocketAddr,
    admin_socket: Option<SocketFile>,
    lifecycle: ShutdownPhases,
    readiness: Arc<Readiness>,
    health: HealthReporter,
}

impl BoundGateway {
    /// Waits for the required plugins of the file; from then on it serves, and is ready as soon as those that the registry
    /// requires are there, too.
    ///
    /// # Errors
    /// When a required plugin of the file is missing.
    pub async fn start(self) -> Result<RunningGateway, RunError> {
        crate::control::readiness_gate::wait(&self.app.first, self.app.workshop.shared.changes()).await?;
        let BoundGateway { app, data_addr, ops_addr, admin_socket, lifecycle, readiness, health } = self;
        let App { workshop, first, seen, gateway, origin, asks: (_, asks), .. } = app;
        let started = Arc::clone(&first.config);
        drop(first);
        // Before it is looked at what there is: a plugin may come while the table is built.
        let changes = workshop.shared.changes();
        let registry = origin.as_ref().and_then(|origin| origin.registry());
        let mut publisher =
            Publisher::new(Arc::clone(&workshop), Arc::clone(&gateway.snapshots), seen, registry);
        publisher.catch_up().await;
        let mut ending = ReadinessGate::new(readiness, health.clone());
        ending.look(publisher.current()).await;
        let ended = lifecycle.ended.clone();
        let (asked, shared, of_all) =
            (Asked::new(asks), Arc::clone(&workshop), Arc::clone(&gateway.snapshots));
        let reload = Reload::new(shared, of_all, publisher, origin, asked, ending, ended);
        Ok(RunningGateway {
            changes,
            gateway,
            started,
            data_addr,
            ops_addr,
            admin_socket,
            lifecycle,
            health,
            reload,
        })
    }
}

/// A gateway that serves; [`RunningGateway::until`] keeps what is in force up to date and ends it.
pub struct RunningGateway {
    /// Of plugins, from before the first table on.
    changes: watch::Receiver<u64>,
    gateway: Arc<Gateway>,
    /// What it was started with. Its generation isn't kept: that would keep its clients and the fetching of its keys.
    started: Arc<Config>,
    data_addr: SocketAddr,
    ops_addr: SocketAddr,
    admin_socket: Option<SocketFile>,
    lifecycle: ShutdownPhases,
    health: HealthReporter,
    reload: Reload,
}

impl RunningGateway {
    /// Where agents call it.
    pub fn data_addr(&self) -> SocketAddr {
        self.data_addr
    }

    /// Where operators look.
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops_addr
    }

    /// Has the configuration read again when it is asked for by `hangups`, or its file changed.
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

    /// Runs until a first `stop` resolves, then drains; a second one, asked for after the first, cuts that short.
    pub async fn until<F: Future<Output = ()>>(self, stop: impl Fn() -> F) {
        let RunningGateway { changes, gateway, started, admin_socket, lifecycle, health, mut reload, .. } =
            self;
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
        drop(admin_socket);
        reload.close().await;
    }
}

/// Where a gateway is on its way down, in this order.
#[derive(Default)]
struct ShutdownPhases {
    /// Readiness is off, calls are still taken.
    draining: CancellationToken,
    /// No more connections, those there are told to go.
    goaway: CancellationToken,
    /// Everything is over.
    ended: CancellationToken,
    /// The data port's connections.
    connections: TaskTracker,
    /// The admin port's.
    operators: TaskTracker,
    /// What operators write: taken as long as calls are.
    writes: WriteTracker,
}

impl ShutdownPhases {
    fn data_drain(&self) -> server::Drain {
        server::Drain { soon: self.draining.clone(), goaway: self.goaway.clone() }
    }

    fn to_the_end(&self) -> server::Drain {
        server::Drain { goaway: self.ended.clone(), ..server::Drain::default() }
    }
}

async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Listen { address, key, source })
}

fn bound(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound listener has an address")
}
