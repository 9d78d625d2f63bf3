//! One address of a plugin: finds or makes its connection, puts it through the handshake, and keeps the
//! plugin's status. Dials and Initialize are single flights that run detached, shared by the supervisor and
//! by calls.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use hookgate_proto::plugin::v1::ShutdownRequest;
use http::HeaderMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    acceptance::{self, Accepted, Unaccepted},
    cause::{Cause, DialError},
    client::Shared,
    codec,
    connection::{Connection, Rpc},
    initialize::{self, Prepared, Uninitialised},
    state::{StatusCell, Why},
    transport::Transport,
};
use crate::{config, flight::Flight, routing::Manifest};

/// A described and accepted connection with the configuration that goes with it.
pub(super) struct Live {
    pub(super) connection: Arc<Connection>,
    pub(super) manifest: Arc<Manifest>,
    pub(super) config: Prepared,
    /// Whether Initialize is known to have been answered for this configuration. A plugin that restarted
    /// behind the same address says otherwise itself (NOT_INITIALIZED).
    initialised: AtomicBool,
    /// Initialize calls answered here; tells a late NOT_INITIALIZED from a new one.
    generation: AtomicU64,
    initializes: Flight<Result<(), Down>>,
    withdrawn: CancellationToken,
    pub(super) since: Instant,
}

impl Live {
    fn usable(&self) -> bool {
        !self.connection.is_closed() && !self.withdrawn.is_cancelled()
    }

    pub(super) fn is_initialised(&self) -> bool {
        self.initialised.load(Ordering::Acquire)
    }

    /// Initialize calls answered over this connection.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns when it is no longer used.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.connection.closed() => {}
            () = self.withdrawn.cancelled() => {}
        }
    }
}

/// Why there is no usable connection.
#[derive(Clone)]
pub(super) enum Down {
    /// Tried again soon.
    Away(String),
    /// Refused or out of rotation: tried again when this connection has ended, and now and then.
    Out(String, Arc<Connection>),
}

/// What was initialised last.
#[derive(Default)]
struct Initialised {
    digest: Option<Arc<str>>,
    first: Option<Instant>,
}

pub(super) struct Endpoint {
    plugin: config::Plugin,
    shared: Shared,
    transport: Box<dyn Transport>,
    pub(super) status: StatusCell,
    live: ArcSwapOption<Live>,
    accepted: ArcSwapOption<Accepted>,
    dials: Flight<Result<Arc<Live>, Down>>,
    initialised: Mutex<Initialised>,
}

impl Endpoint {
    pub(super) fn new(plugin: config::Plugin, shared: Shared, transport: Box<dyn Transport>) -> Arc<Self> {
        let why = if plugin.enabled { Why::NotDialled } else { Why::SwitchedOff };
        let status = StatusCell::new(plugin.name.as_str().into(), why, shared.changes.clone());
        Arc::new(Endpoint {
            plugin,
            shared,
            transport,
            status,
            live: ArcSwapOption::empty(),
            accepted: ArcSwapOption::empty(),
            dials: Flight::new(),
            initialised: Mutex::default(),
        })
    }

    pub(super) fn address(&self) -> &str {
        self.transport.address()
    }

    /// The connection in use, if it is not known to have ended.
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.load_full().filter(|live| live.usable())
    }

    /// When the plugin was first initialised.
    pub(super) fn initialised_at(&self) -> Option<Instant> {
        self.initialised.lock().unwrap_or_else(PoisonError::into_inner).first
    }

    /// The connection in use, or a new one that was described and accepted.
    pub(super) async fn dial(self: &Arc<Self>) -> Result<Arc<Live>, Down> {
        let dialled = self.dials.join(
            || self.live().map(Ok),
            || {
                let endpoint = Arc::clone(self);
                async move { endpoint.connect().await }
            },
        );
        dialled.await.unwrap_or_else(|| Err(Down::Away("the gateway is shutting down".into())))
    }

    async fn connect(&self) -> Result<Arc<Live>, Down> {
        if self.status.why() == Why::ShuttingDown {
            return Err(Down::Away("the gateway is shutting down".into()));
        }
        let connection = self.reach().await.map_err(|error| {
            self.status.set(Why::Unreachable(error.cause), &*error.detail);
            Down::Away(error.detail)
        })?;
        let connection = Arc::new(connection);
        match self.handshake(&connection).await {
            Ok(live) => Ok(live),
            Err(Unaccepted::Away(why, detail)) => {
                self.status.set(why, &*detail);
                Err(Down::Away(detail))
            }
            Err(Unaccepted::Out(why, detail)) => {
                self.status.set(why, &*detail);
                Err(Down::Out(detail, connection))
            }
        }
    }

    async fn reach(&self) -> Result<Connection, DialError> {
        let (address, limit) = (self.address(), self.plugin.limits.connect.0);
        match tokio::time::timeout(limit, self.transport.connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => {
                Err(DialError::new(error.cause, format!("cannot connect to {address}: {error}")))
            }
            Err(_) => {
                let detail = format!("cannot connect to {address} within {limit:?}");
                Err(DialError::new(Cause::ConnectTimeout, detail))
            }
        }
    }

    async fn handshake(&self, connection: &Arc<Connection>) -> Result<Arc<Live>, Unaccepted> {
        let last = self.live.load_full();
        let described = acceptance::describe(connection, last.as_deref().map(|live| &live.config)).await?;
        let before = self.accepted.load_full();
        let accepted = acceptance::accept(&self.plugin, described, before.as_deref())?;
        let manifest = Arc::clone(&accepted.manifest);
        let config = Prepared::new(&self.plugin, &self.shared, &manifest, connection.private)?;
        let known = {
            let initialised = self.initialised.lock().unwrap_or_else(PoisonError::into_inner);
            initialised.digest.as_ref() == Some(&config.digest)
        };
        let live = Arc::new(Live {
            connection: Arc::clone(connection),
            manifest: Arc::clone(&manifest),
            config,
            initialised: AtomicBool::new(known),
            generation: AtomicU64::new(0),
            initializes: Flight::new(),
            withdrawn: CancellationToken::new(),
            since: Instant::now(),
        });
        self.accepted.store(Some(Arc::new(accepted)));
        self.live.store(Some(Arc::clone(&live)));
        let why = if known { Why::Serving } else { Why::Initializing };
        self.status.accept(why, manifest, self.address());
        Ok(live)
    }

    /// Initialises the plugin behind `live`, unless that was done after generation `seen` (see
    /// [`Live::generation`]).
    pub(super) async fn initialise(self: &Arc<Self>, live: &Arc<Live>, seen: u64) -> Result<(), Down> {
        let initialised = live.initializes.join(
            || (live.generation() > seen).then_some(Ok(())),
            || {
                let (endpoint, live) = (Arc::clone(self), Arc::clone(live));
                async move { endpoint.hand_over(&live).await }
            },
        );
        initialised.await.unwrap_or_else(|| Err(Down::Away("the gateway is shutting down".into())))
    }

    async fn hand_over(&self, live: &Live) -> Result<(), Down> {
        let done = initialize::initialize(&live.connection, &live.config, &self.plugin, &self.shared).await;
        match done {
            Ok(()) => {
                self.note_initialised(live);
                Ok(())
            }
            Err(Uninitialised::Unavailable(detail)) => {
                self.withdraw(live, Why::InitializeUnavailable, &detail);
                Err(Down::Away(detail))
            }
            Err(Uninitialised::Refused(refused)) => {
                self.withdraw(live, Why::Refused(refused.refusal), &refused.advice);
                Err(Down::Out(refused.to_string(), Arc::clone(&live.connection)))
            }
        }
    }

    fn note_initialised(&self, live: &Live) {
        {
            let mut initialised = self.initialised.lock().unwrap_or_else(PoisonError::into_inner);
            initialised.digest = Some(Arc::clone(&live.config.digest));
            initialised.first.get_or_insert_with(Instant::now);
        }
        live.initialised.store(true, Ordering::Release);
        live.generation.fetch_add(1, Ordering::AcqRel);
        if self.is_current(live) {
            self.status.set(Why::Serving, "");
        }
        let plugin = &*self.plugin.name;
        tracing::info!(
            event = "plugin.initialized",
            plugin,
            address = self.address(),
            "configuration handed over"
        );
    }

    /// Takes `live` out of use because the plugin doesn't know what it was just handed. The supervisor hands it
    /// over again, each time later: done by every call, secrets would be sent as often as there are calls.
    pub(super) fn forgot(&self, live: &Live, detail: &str) {
        self.withdraw(live, Why::InitializeUnavailable, detail);
    }

    /// Takes `live` out of use. What was initialised is forgotten: the next connection is handed it anew.
    fn withdraw(&self, live: &Live, why: Why, detail: &str) {
        if self.is_current(live) {
            self.initialised.lock().unwrap_or_else(PoisonError::into_inner).digest = None;
            self.status.set(why, detail);
        }
        live.withdrawn.cancel();
    }

    fn is_current(&self, live: &Live) -> bool {
        self.live.load().as_ref().is_some_and(|current| std::ptr::eq(&raw const **current, live))
    }

    /// Notes that `live` ended, unless something newer is known.
    pub(super) fn note_end(&self, live: &Live) {
        if self.is_current(live) && live.connection.is_closed() && self.status.why() == Why::Serving {
            self.status.set(Why::Disconnected, format!("the connection to {} ended", self.address()));
        }
    }

    /// Lets go of the plugin: no further calls, and Shutdown if it was ever initialised and can be reached.
    pub(super) async fn shut_down(&self, limit: Duration) {
        self.status.set(Why::ShuttingDown, "");
        let Some(live) = self.live() else { return };
        self.live.store(None);
        if self.initialised_at().is_none() {
            return;
        }
        let limit = limit.min(self.plugin.limits.shutdown.0);
        let request = ShutdownRequest { gateway_instance_id: self.shared.instance_id.as_ref().into() };
        let (frame, deadline) = (codec::message(&request), Instant::now() + limit);
        let reply = live
            .connection
            .unary(Rpc::Shutdown, frame, HeaderMap::new(), deadline, self.shared.max_reply())
            .await;
        if let Err(error) = reply {
            let plugin = &*self.plugin.name;
            let error = live.config.shown_error(&error);
            tracing::warn!(plugin, ?limit, error, "the plugin did not answer Shutdown");
        }
    }
}
