//! The composition root: turns a configuration into a running gateway and takes it down again. The only place that
//! knows every part.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    auth::Authenticator,
    builtin,
    config::{self, Config, Loaded, Problem, Problems, resolve_references},
    ingress::{
        admin::{Admin, Registered},
        admission::Admission,
        answer::BlockStatuses,
        call::{Gateway, Limits},
        ops::Readiness,
        overview::Overview,
        server,
    },
    invoke::{Invoker, ReplyLimits, Routes},
    routing::RouteTable,
    telemetry::Telemetry,
    tls,
    upstream::{PluginClient, Shared},
};

mod drain;
mod edges;
mod gauges;
mod publisher;
mod start;

pub use drain::TELEMETRY;
use edges::{AdminEdge, DataEdge, OpsEdge};
use publisher::Publisher;
pub use start::Missing;

/// Revision of the routing that a file makes; it stays the same until the process ends.
const FILE_REVISION: u64 = 1;

/// A gateway, put together and not started.
pub struct App {
    config: Config,
    gateway: Arc<Gateway>,
    clients: Vec<Arc<PluginClient>>,
    shared: Shared,
    /// Of the data and the admin port.
    tls: Option<tls::Server>,
    certificates: tls::Watch,
}

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
    /// A plugin that must be there isn't.
    #[error(transparent)]
    Missing(#[from] Missing),
}

impl App {
    /// Reads the file at `path`, starts its telemetry with `telemetry`, and puts the gateway together: what `serve` does
    /// before it binds anything, and all that `config check` does.
    ///
    /// # Errors
    /// Every mistake of the configuration, with the lines.
    pub fn load(
        path: &Path,
        telemetry: impl FnOnce(&Config) -> Result<Telemetry, String>,
    ) -> Result<(Self, Telemetry), Problems> {
        let loaded = config::load(path, environment())?;
        let telemetry = telemetry(&loaded.config)
            .map_err(|wrong| loaded.render(&[Problem::new("/telemetry/otlp_endpoint", wrong)]))?;
        Ok((App::build(loaded, telemetry.clone())?, telemetry))
    }

    /// What it was put together from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Puts a gateway together; nothing is bound or dialled yet.
    ///
    /// # Errors
    /// Every mistake of the configuration that its parts find, with the lines.
    pub fn build(loaded: Loaded, telemetry: Telemetry) -> Result<Self, Problems> {
        let config = &loaded.config;
        let mut problems = Vec::new();
        let auth = keep(Authenticator::new(&config.auth), &mut problems, |violations| {
            violations.into_iter().map(|wrong| Problem::new(wrong.pointer, wrong.message)).collect()
        });
        let (limits, observers) = (config.limits.clone(), config.observers.clone());
        let resolve = |config: &_| resolve_references(config, environment());
        let certificates = tls::Watch::default();
        let shared = Shared::new(telemetry.instance(), telemetry.clone(), limits, observers, resolve)
            .following(certificates.clone());
        let tls = config.server.tls.as_ref().map(|tls| tls::Server::new(tls, &certificates)).transpose();
        let tls = keep(tls, &mut problems, |wrong| vec![Problem::new("/server/tls", wrong)]);
        let clients = keep(clients(config, &shared), &mut problems, |found| found);
        let no_manifests = vec![None; config.plugins.len()];
        let table =
            keep(RouteTable::build(config, &no_manifests, FILE_REVISION), &mut problems, |found| found);
        let (Some(auth), Some(clients), Some(table), Some(tls)) = (auth, clients, table, tls) else {
            return Err(loaded.render(&problems));
        };
        let observed = Arc::new(telemetry.clone());
        let (replies, abort) = (reply_limits(config), CancellationToken::new());
        let routes = Routes { table, clients: clients.clone(), replies, observed, abort: abort.clone() };
        let gateway = Gateway {
            auth,
            invoker: Invoker::new(routes, config.limits.budget.0),
            admission: Admission::new(config.limits.in_flight, bytes(config.limits.bytes_in_flight)),
            limits: Limits { request: bytes(config.limits.request), detail: config.answer.detail },
            statuses: block_statuses(config),
            telemetry,
            abort,
        };
        let gateway = Arc::new(gateway);
        gauges::register(&gateway, &clients, &certificates);
        Ok(App { config: loaded.config, gateway, clients, shared, tls, certificates })
    }

    /// Runs until SIGTERM or Ctrl-C, then drains. The process ends by the end of the drain's time even where this
    /// doesn't return.
    ///
    /// # Errors
    /// When an address is taken, or a required plugin is missing.
    pub async fn run(self) -> Result<(), RunError> {
        let longest = drain::longest(&self.config.drain);
        let (clients, signals) = (self.clients.clone(), drain::Signals::listen(longest));
        let bound = self.bind().await?;
        let started = tokio::select! {
            started = bound.start() => started.map(Some),
            () = signals.next() => Ok(None),
        };
        match started {
            Ok(Some(running)) => running.until(|| signals.next()).await,
            // Nothing was served yet, but plugins may have been initialised.
            Ok(None) => drain::let_go(&clients).await,
            Err(error) => {
                drain::let_go(&clients).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Listens and dials the plugins; answers that it isn't ready.
    ///
    /// # Errors
    /// When an address is taken.
    pub async fn bind(self) -> Result<Bound, RunError> {
        let data = listen(self.config.server.data_addr, "server.data_addr").await?;
        let ops = listen(self.config.server.ops_addr, "server.ops_addr").await?;
        let admin = match self.config.admin_addr() {
            Some(address) => Some(listen(address, "server.admin_addr").await?),
            None => None,
        };
        let (data_addr, ops_addr, admin_addr) = (bound(&data), bound(&ops), admin.as_ref().map(bound));
        let lifecycle = Lifecycle::default();
        let readiness = Readiness::new(Arc::clone(&self.gateway), lifecycle.draining.clone());
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", ServingStatus::NotServing).await;

        let edge = DataEdge::new(Arc::clone(&self.gateway), health_service.clone());
        let connections = lifecycle.connections.clone();
        // Among the connections itself: as long as it accepts, nobody is let go of.
        let serving = server::serve(data, self.tls.clone(), edge, lifecycle.of_data(), connections.clone());
        connections.spawn(serving);
        let plugins = Registered::all(&self.config, &self.clients);
        let overview = Overview::new(Arc::clone(&self.gateway), Arc::clone(&readiness), plugins);
        let overview = Arc::new(overview);
        let edge = OpsEdge::new(Arc::clone(&overview), health_service);
        tokio::spawn(server::serve(ops, None, edge, lifecycle.to_the_end(), TaskTracker::new()));
        match admin {
            Some(listener) => self.serve_admin(listener, overview, lifecycle.to_the_end()),
            None => tracing::info!("no issuer has an `admin_audience`: the admin port stays closed"),
        }
        let admin_addr = admin_addr.map(tracing::field::display);
        tracing::info!(%data_addr, %ops_addr, admin_addr, "listening");

        for client in &self.clients {
            client.start(lifecycle.ended.clone());
        }
        let (gateway, ended) = (Arc::clone(&self.gateway), lifecycle.ended.clone());
        tokio::spawn(async move { gateway.auth.refresh(ended).await });
        let (certificates, ended) = (self.certificates.clone(), lifecycle.ended.clone());
        tokio::spawn(async move { certificates.follow(ended).await });
        Ok(Bound { app: self, data_addr, ops_addr, lifecycle, readiness, health })
    }

    fn serve_admin(&self, listener: TcpListener, overview: Arc<Overview>, drain: server::Drain) {
        let edge = AdminEdge(Arc::new(Admin::new(overview)));
        tokio::spawn(server::serve(listener, self.tls.clone(), edge, drain, TaskTracker::new()));
    }
}

/// A gateway that listens and isn't ready yet.
pub struct Bound {
    app: App,
    data_addr: SocketAddr,
    ops_addr: SocketAddr,
    lifecycle: Lifecycle,
    readiness: Arc<Readiness>,
    health: HealthReporter,
}

impl Bound {
    /// Waits for the required plugins; from then on it is ready.
    ///
    /// # Errors
    /// When a required plugin is missing.
    pub async fn start(self) -> Result<Running, RunError> {
        let app = &self.app;
        start::wait(&app.config, &app.clients, app.shared.changes()).await?;
        let publisher = Publisher::new(app.config.clone(), Arc::clone(&app.gateway), app.clients.clone());
        publisher.refresh();
        self.readiness.started();
        self.health.set_service_status("", ServingStatus::Serving).await;
        tracing::info!("started");
        Ok(Running { bound: self, publisher })
    }
}

/// A gateway that serves; [`Running::until`] keeps its routes up to date and ends it.
pub struct Running {
    bound: Bound,
    publisher: Publisher,
}

impl Running {
    /// Where agents call it.
    pub fn data_addr(&self) -> SocketAddr {
        self.bound.data_addr
    }

    /// Where operators look.
    pub fn ops_addr(&self) -> SocketAddr {
        self.bound.ops_addr
    }

    /// Runs until a first `stop` resolves, then drains; a second one, asked for after the first, cuts that short.
    pub async fn until<F: Future<Output = ()>>(self, stop: impl Fn() -> F) {
        let Running { bound: Bound { app, lifecycle, health, .. }, publisher } = self;
        tokio::select! {
            () = publisher.follow(app.shared.changes()) => {}
            () = stop() => {}
        }
        let drained = drain::run(&app.config, &app.gateway, &app.clients, &lifecycle, &health);
        tokio::select! {
            () = drained => {}
            () = stop() => tracing::warn!("asked a second time: calls under way are given up"),
        }
        lifecycle.ended.cancel();
    }
}

/// The process's environment. Variables that are not UTF-8 can't be named in a configuration and are left out.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Where a gateway is on its way down, in this order.
#[derive(Default)]
struct Lifecycle {
    /// Readiness is off, calls are still taken.
    draining: CancellationToken,
    /// No more connections, those there are told to go.
    goaway: CancellationToken,
    /// Everything is over.
    ended: CancellationToken,
    /// The data port's connections.
    connections: TaskTracker,
}

impl Lifecycle {
    fn of_data(&self) -> server::Drain {
        server::Drain { soon: self.draining.clone(), goaway: self.goaway.clone() }
    }

    fn to_the_end(&self) -> server::Drain {
        server::Drain { goaway: self.ended.clone(), ..server::Drain::default() }
    }
}

/// The value, or its problems added to `problems`.
fn keep<T, E>(
    result: Result<T, E>,
    problems: &mut Vec<Problem>,
    into: impl FnOnce(E) -> Vec<Problem>,
) -> Option<T> {
    result.map_err(|error| problems.extend(into(error))).ok()
}

fn clients(config: &Config, shared: &Shared) -> Result<Vec<Arc<PluginClient>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut clients = Vec::with_capacity(config.plugins.len());
    for (index, plugin) in config.plugins.iter().enumerate() {
        let builtin = plugin.builtin.as_deref().and_then(builtin::service);
        let client = PluginClient::new(plugin, shared, builtin);
        let at_plugin = |message| vec![Problem::new(format!("/plugins/{index}"), message)];
        clients.extend(keep(client, &mut problems, at_plugin));
    }
    if problems.is_empty() { Ok(clients) } else { Err(problems) }
}

fn reply_limits(config: &Config) -> ReplyLimits {
    ReplyLimits {
        request: bytes(config.limits.request),
        notices: config.limits.notices,
        notice_bytes: bytes(config.limits.notice_bytes),
        details_bytes: bytes(config.limits.details_bytes),
    }
}

fn block_statuses(config: &Config) -> BlockStatuses {
    let of_plugin = config.plugins.iter().map(|plugin| (plugin.name.clone(), plugin.block_status.clone()));
    BlockStatuses { of_all: config.block_status.clone(), of_plugin: of_plugin.collect() }
}

fn bytes(size: config::Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Listen { address, key, source })
}

fn bound(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound listener has an address")
}
