//! One address of a plugin: finds or makes its connections, runs the handshake on them, and tracks how well
//! the address works.
//!
//! Dials and Initialize are single flights that run detached, shared by the supervisor and by calls.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::{
    core::control_span::record_error,
    task::single_flight::SingleFlight,
    telemetry::ServerAttributes,
    upstream::{
        breakers::Breakers,
        connection::Connection,
        consent::Wants,
        control_call,
        dial_error::{DialError, DialErrorKind},
        health::{self, EndpointHealth, HealthCheckOutcome},
        initialize::{self, InitializeError, PreparedConfig},
        manifest_validation::{self, AcceptedManifest, DescribeError},
        manifests::ManifestAdmission,
        p2c::EndpointLoad,
        ready_connection::{ConnectError, ReadyConnection},
        registration::Registration,
        state::{EndpointStatus, StatusCell, Why},
        transport::Transport,
    },
};

const SHUTTING_DOWN_MESSAGE: &str = "the gateway is closing this endpoint";

pub(super) struct Endpoint {
    pub(super) registration: Arc<Registration>,
    transport: Box<dyn Transport>,
    /// Telemetry attributes of calls to this endpoint.
    pub(super) server: Arc<ServerAttributes>,
    pub(super) status: StatusCell,
    pub(super) breakers: Breakers,
    pub(super) load: EndpointLoad,
    health: EndpointHealth,
    /// The count of answered calls at the last health check.
    answered_before: AtomicU64,
    /// An additional connection is being made, or failed a moment ago.
    pub(super) growing: AtomicBool,
    pub(super) lives: ArcSwap<Vec<Arc<ReadyConnection>>>,
    dials: SingleFlight<Result<Arc<ReadyConnection>, ConnectError>>,
    /// Serialises Initialize across all connections.
    pub(super) handing_over: tokio::sync::Mutex<()>,
    /// Digest of the configuration that was delivered last.
    handed_over: Mutex<Option<Arc<str>>>,
    most_age: Duration,
    /// Notified when the address can't be reached: its name may resolve to other addresses now.
    dial_failed: Arc<Notify>,
    /// Notified when something other than the supervisor has tried the endpoint, so that the supervisor looks
    /// again.
    pub(super) tried: Notify,
    pub(super) closing: CancellationToken,
}

impl Endpoint {
    pub(super) fn new(
        registration: Arc<Registration>,
        transport: Box<dyn Transport>,
        server: Arc<ServerAttributes>,
        dial_failed: Arc<Notify>,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let plugin = &registration.plugin;
        let why = if plugin.enabled { Why::NotDialled } else { Why::Disabled };
        let (name, changes) = (plugin.name.as_str().into(), registration.shared.changes.clone());
        Arc::new(Endpoint {
            status: StatusCell::new(name, transport.address().into(), why, changes),
            breakers: Breakers::new(plugin.breaker.clone()),
            load: EndpointLoad::new(Instant::now()),
            health: EndpointHealth::default(),
            answered_before: AtomicU64::new(0),
            growing: AtomicBool::new(false),
            lives: ArcSwap::default(),
            dials: SingleFlight::new(),
            handing_over: tokio::sync::Mutex::default(),
            handed_over: Mutex::default(),
            // Varied by a tenth, so that connections don't all expire at once.
            most_age: registration.shared.most_age.mul_f64(0.9 + fastrand::f64() / 5.0),
            dial_failed,
            tried: Notify::new(),
            closing,
            registration,
            transport,
            server,
        })
    }

    pub(super) fn address(&self) -> &str {
        self.transport.address()
    }

    /// The least busy of the connections that are not known to have ended, of this thread's worker if it has one.
    pub(super) fn live(&self) -> Option<Arc<ReadyConnection>> {
        let lives = self.lives.load();
        let order = |live: &&Arc<ReadyConnection>| {
            (!live.is_initialised(), !live.connection.is_local(), live.in_flight())
        };
        usable_of(&lives).min_by_key(order).map(Arc::clone)
    }

    /// `Some(true)` if a connection is initialised, `Some(false)` if there are only uninitialised ones,
    /// `None` if there is none.
    pub(super) fn is_initialised(&self) -> Option<bool> {
        usable_of(&self.lives.load()).map(|live| live.is_initialised()).max()
    }

    /// Whether the last dial failed.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.status.why(), Why::Unreachable(_) | Why::DescribeTimeout | Why::DescribeFailed)
    }

    /// Why the endpoint gets no calls although it may be connected. Returns `None` if it gets calls.
    pub(super) fn out(&self) -> Option<Why> {
        self.health.out()
    }

    /// The endpoint's status as operators see it.
    pub(super) fn report(&self) -> EndpointStatus {
        let (status, usable, now) = (self.status.now(), self.usable(), Instant::now());
        EndpointStatus {
            address: self.address().to_owned(),
            state: status.why.state(),
            why: status.why,
            detail: status.detail.clone(),
            version: usable.last().map(|live| live.accepted.version().clone()),
            breaker: self.breakers.state(now),
            tenant_breakers_open: self.breakers.tenant_breakers_open(now),
            in_flight: self.load.in_flight(),
            connections: usable.len(),
            wants: status.wants.clone(),
            health_answered: self.health.answered(),
        }
    }

    /// A connection in use, or a new one that was described and accepted.
    pub(super) async fn dial(self: &Arc<Self>) -> Result<Arc<ReadyConnection>, ConnectError> {
        self.connect_unless(|endpoint| endpoint.live().map(Ok), None).await
    }

    /// Replaces connections that are too old. The new one serves before the old one is withdrawn.
    pub(super) async fn renew(self: &Arc<Self>) {
        let old = |live: &Arc<ReadyConnection>| {
            live.since.elapsed() >= self.most_age && live.is_usable() && !live.connection.is_in_process()
        };
        let aged: Vec<_> = self.lives.load().iter().filter(|live| old(live)).map(Arc::clone).collect();
        let fresh = |endpoint: &Self| {
            let lives = endpoint.lives.load();
            lives.iter().find(|live| live.is_usable() && !old(live)).map(|live| Ok(Arc::clone(live)))
        };
        if aged.is_empty() {
            return;
        }
        let Ok(live) = self.connect_unless(fresh, None).await else { return };
        if live.is_initialised() || self.initialise(&live, 0).await.is_ok() {
            aged.iter().for_each(|live| live.withdraw());
            self.forget_ended();
        }
    }

    /// `beside` is the connection that another one is made for.
    pub(super) async fn connect_unless(
        self: &Arc<Self>,
        enough: impl FnOnce(&Self) -> Option<Result<Arc<ReadyConnection>, ConnectError>>,
        beside: Option<Arc<ReadyConnection>>,
    ) -> Result<Arc<ReadyConnection>, ConnectError> {
        let dialled = self.dials.join(
            || enough(self),
            || {
                let endpoint = Arc::clone(self);
                let span = control_call::handshake_span(&self.registration, self.address());
                async move { endpoint.connect(beside.as_deref()).await }.instrument(span)
            },
        );
        dialled.await.unwrap_or_else(|| Err(ConnectError::Away(SHUTTING_DOWN_MESSAGE.into())))
    }

    async fn connect(&self, beside: Option<&ReadyConnection>) -> Result<Arc<ReadyConnection>, ConnectError> {
        if self.status.why() == Why::ShuttingDown {
            return Err(ConnectError::Away(SHUTTING_DOWN_MESSAGE.into()));
        }
        let connection = self.reach().await.map_err(|error| {
            self.trouble(Why::Unreachable(error.cause), &error.detail);
            record_error(&Span::current(), error.cause.as_str());
            self.dial_failed.notify_one();
            ConnectError::Away(error.detail)
        })?;
        let connection = Arc::new(connection);
        match self.handshake(&connection, beside).await {
            Ok(live) => Ok(live),
            Err(DescribeError::Away(why, detail)) => {
                self.trouble(why, &detail);
                record_error(&Span::current(), why.as_str());
                Err(ConnectError::Away(detail))
            }
            Err(DescribeError::Out { why, detail, wants }) => {
                record_error(&Span::current(), why.as_str());
                if self.live().is_none() {
                    self.status.out(why, &detail, wants.as_ref());
                }
                Err(ConnectError::Out(why, detail, connection))
            }
        }
    }

    /// Records that an additional connection failed, unless another one serves.
    fn trouble(&self, why: Why, detail: &str) {
        if self.live().is_none() {
            self.status.set(why, detail);
        }
    }

    async fn reach(&self) -> Result<Connection, DialError> {
        let plugin = &self.registration.plugin;
        let (address, limit) = (self.address(), plugin.limits.connect.0);
        match tokio::time::timeout(limit, self.transport.connect()).await {
            Ok(Ok(connection)) => Ok(connection.naming(&plugin.name)),
            Ok(Err(error)) => {
                Err(DialError::new(error.cause, format!("cannot connect to {address}: {error}")))
            }
            Err(_) => {
                let detail = format!("cannot connect to {address} within {limit:?}");
                Err(DialError::new(DialErrorKind::ConnectTimeout, detail))
            }
        }
    }

    async fn handshake(
        &self,
        connection: &Arc<Connection>,
        beside: Option<&ReadyConnection>,
    ) -> Result<Arc<ReadyConnection>, DescribeError> {
        let Registration { plugin, shared, manifests, prepared, .. } = &*self.registration;
        let described = manifest_validation::describe(connection, plugin, prepared.load().as_deref()).await?;
        let before = manifests.accepted();
        let accepted = manifest_validation::judge(plugin, described, before.as_deref(), shared)?;
        // One process keeps one configuration, even if a secret has changed since.
        let same = |live: &&ReadyConnection| {
            live.accepted.version() == accepted.version() && self.is_delivered(&live.config)
        };
        let beside = beside.filter(same);
        let config = match beside {
            Some(live) => Arc::clone(&live.config),
            None => Arc::new(PreparedConfig::new(plugin, shared, &accepted.manifest, connection.private)?),
        };
        prepared.store(Some(Arc::clone(&config)));
        // A process behind a new connection may have other tools than the last one, or work outside of calls, for which it needs
        // the token of Initialize.
        let needs_initialize =
            !(accepted.manifest.tool_names.is_empty() && accepted.manifest.capabilities.is_empty());
        let known = self.is_delivered(&config) && (!needs_initialize || beside.is_some());
        let live = ReadyConnection::new(Arc::clone(connection), accepted, config, known);
        if let Some(tools) = beside.and_then(ReadyConnection::tools) {
            live.note_tools(tools);
        }
        let admitted = manifests.admit(&live);
        let admission = admitted.map_err(|accepted| mismatch(&accepted, &live))?;
        let mut lives: Vec<_> = self.usable();
        lives.push(Arc::clone(&live));
        let serves = lives.iter().any(|live| live.is_initialised());
        self.lives.store(Arc::new(lives));
        let version = live.accepted.version();
        self.status.accepted(if serves { self.serving() } else { (Why::Initializing, "") }, version);
        if admission == ManifestAdmission::Became {
            self.registration.upgraded(before.as_deref());
        }
        if known {
            self.breakers.note_reached(Instant::now());
        }
        Ok(live)
    }

    fn is_delivered(&self, config: &PreparedConfig) -> bool {
        self.lock_delivered_digest().as_ref() == Some(&config.digest)
    }

    fn lock_delivered_digest(&self) -> std::sync::MutexGuard<'_, Option<Arc<str>>> {
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections that can be used.
    pub(super) fn usable(&self) -> Vec<Arc<ReadyConnection>> {
        usable_of(&self.lives.load()).map(Arc::clone).collect()
    }

    /// The reason and detail once the endpoint is connected and initialised.
    fn serving(&self) -> (Why, &'static str) {
        match self.health.out() {
            None => (Why::Serving, ""),
            Some(Why::NotServing) => (Why::NotServing, "it answers its health check with NOT_SERVING"),
            Some(why) => (why, "its health check has not been answered since"),
        }
    }

    /// Initialises the plugin behind `live`, unless that was done after generation `seen` (see
    /// [`ReadyConnection::generation`]).
    pub(super) async fn initialise(
        self: &Arc<Self>,
        live: &Arc<ReadyConnection>,
        seen: u64,
    ) -> Result<(), ConnectError> {
        let initialised = live.initializes.join(
            || (live.generation() > seen).then_some(Ok(())),
            || {
                let (endpoint, live) = (Arc::clone(self), Arc::clone(live));
                let new_span = || control_call::handshake_span(&self.registration, self.address());
                let span = live.take_handshake().unwrap_or_else(new_span);
                async move { endpoint.hand_over(&live).await }.instrument(span)
            },
        );
        initialised.await.unwrap_or_else(|| Err(ConnectError::Away(SHUTTING_DOWN_MESSAGE.into())))
    }

    async fn hand_over(&self, live: &ReadyConnection) -> Result<(), ConnectError> {
        let turn = &self.registration.turn;
        tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(ConnectError::Away(SHUTTING_DOWN_MESSAGE.into())),
            () = turn.came() => {}
        }
        let _alone = self.handing_over.lock().await;
        let sent = Instant::now();
        match initialize::initialize(live, &self.registration, self.address()).await {
            Ok(tools) => {
                if live.tools().is_some_and(|before| before != tools) {
                    // Another process answers there now. The supervisor tries again with growing delays.
                    let detail = "its tools have changed";
                    self.withdraw(live, Why::InitializeUnavailable, detail);
                    return Err(ConnectError::Away(detail.into()));
                }
                if self.registration.manifests.note_tools(live, tools) {
                    self.registration.changed();
                }
                // Before the first call: a plugin may need time after it gets its configuration.
                if self.lock_delivered_digest().is_none() {
                    self.check_over(live).await;
                }
                self.note_initialised(live, sent);
                Ok(())
            }
            Err(InitializeError::Unavailable(detail)) => {
                record_error(&Span::current(), Why::InitializeUnavailable.as_str());
                self.withdraw(live, Why::InitializeUnavailable, &detail);
                Err(ConnectError::Away(detail))
            }
            Err(InitializeError::Unsent(detail)) => {
                record_error(&Span::current(), Why::Disconnected.as_str());
                live.withdraw();
                self.note_end();
                Err(ConnectError::Gone(detail))
            }
            Err(InitializeError::Refused(refused)) => {
                let why = Why::Refused(refused.refusal);
                record_error(&Span::current(), why.as_str());
                self.withdraw(live, why, &refused.advice);
                Err(ConnectError::Out(why, refused.to_string(), Arc::clone(&live.connection)))
            }
        }
    }

    fn note_initialised(&self, live: &ReadyConnection, sent: Instant) {
        *self.lock_delivered_digest() = Some(Arc::clone(&live.config.digest));
        self.registration.note_initialised(sent);
        live.note_initialised();
        self.breakers.note_reached(Instant::now());
        if self.holds(live) {
            let (why, detail) = self.serving();
            self.status.set(why, detail);
        }
        let plugin = &*self.registration.plugin.name;
        tracing::info!(
            event = "plugin.initialized",
            plugin,
            address = self.address(),
            "configuration handed over"
        );
    }

    /// Runs a health check.
    pub(super) async fn check(self: &Arc<Self>) {
        let Some(live) = self.live().filter(|live| live.is_initialised()) else { return };
        self.check_over(&live).await;
        // A restarted process may report healthy only once it has its configuration. It gets no calls while
        // it is out, so no call would discover that the configuration is missing.
        if self.out() == Some(Why::NotServing)
            && live.generation() == 0
            && self.initialise(&live, 0).await.is_ok()
        {
            self.check_over(&live).await;
        }
    }

    async fn check_over(&self, live: &ReadyConnection) {
        if live.lacks_health() {
            return;
        }
        let settings = &self.registration.plugin.health;
        let found = health::check(&live.connection, settings).await;
        if self.health.note_check(&found) {
            self.registration.changed();
        }
        if found == HealthCheckOutcome::Unsupported {
            live.note_lack_of_health();
        }
        // The endpoint answered calls since the last check, so it is busy and not dead.
        let now = self.load.answered();
        let is_busy = self.answered_before.swap(now, Ordering::Relaxed) != now;
        if is_busy && matches!(found, HealthCheckOutcome::Missed(_)) {
            return;
        }
        let Some(serves) = self.health.note(&found, settings) else { return };
        if let (false, HealthCheckOutcome::Missed(detail)) = (serves, found) {
            let detail = format!("{} health checks in a row were not answered: {detail}", settings.misses);
            // The other end may be gone without closing the connections, so the next check uses a new one.
            self.lives.load().iter().for_each(|live| live.withdraw());
            self.status.set(Why::HealthUnanswered, detail);
        } else if live.is_initialised() {
            let (why, detail) = self.serving();
            self.status.set(why, detail);
        }
    }

    /// Takes `live` out of use because the plugin doesn't know the configuration it just received. The
    /// supervisor delivers it again with growing delays. If calls did that, secrets would be sent at the rate
    /// of calls.
    pub(super) fn forgot(&self, live: &ReadyConnection, detail: &str) {
        self.withdraw(live, Why::InitializeUnavailable, detail);
    }

    /// Takes `live` out of use. Also forgets that the plugin was initialised, so that the next connection
    /// delivers the configuration again.
    fn withdraw(&self, live: &ReadyConnection, why: Why, detail: &str) {
        live.withdraw();
        if self.holds(live) {
            *self.lock_delivered_digest() = None;
            self.trouble(why, detail);
        }
        self.registration.connection_ended();
    }

    fn holds(&self, live: &ReadyConnection) -> bool {
        self.lives.load().iter().any(|held| std::ptr::eq(&raw const **held, live))
    }

    pub(super) fn note_end(&self) {
        self.forget_ended();
        if self.live().is_none() && matches!(self.status.why(), Why::Serving | Why::Initializing) {
            self.status.set(Why::Disconnected, format!("the connection to {} ended", self.address()));
        }
    }

    /// Drops the connections that have ended. While the endpoint closes they are kept: Shutdown or Release is
    /// sent over them.
    pub(super) fn forget_ended(&self) {
        if self.closing.is_cancelled() {
            return;
        }
        self.lives.rcu(|lives| usable_of(lives).map(Arc::clone).collect::<Vec<_>>());
        self.registration.connection_ended();
    }
}

/// Why `live` stays out while other endpoints have the `accepted` manifest.
fn mismatch(accepted: &AcceptedManifest, live: &ReadyConnection) -> DescribeError {
    let AcceptedManifest { manifest, shape } = &*live.accepted;
    let wants = Wants::new(manifest, shape.clone(), Some(&accepted.shape));
    let detail = format!(
        "version {} differs from the accepted manifest: it {}; it gets calls when no endpoint with the accepted \
         manifest is left",
        wants.version, wants.difference
    );
    DescribeError::Out { why: Why::ManifestMismatch, detail, wants: Some(wants) }
}

pub(super) fn usable_of(lives: &[Arc<ReadyConnection>]) -> impl Iterator<Item = &Arc<ReadyConnection>> {
    lives.iter().filter(|live| live.is_usable())
}
