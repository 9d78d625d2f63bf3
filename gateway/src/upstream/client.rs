//! One plugin as the invoker sees it: a call with its time limit, the observers' queue, the status.

use std::{fmt, sync::Arc, time::Duration};

use hookgate_proto::plugin::v1 as plugin;
use http::HeaderValue;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    config,
    core::{failure::Failure, point::Point, step::Reason},
    telemetry::{Parent, PluginCall, PluginCalls, Telemetry},
    tls,
    upstream::{
        bulkhead::{Bulkhead, Full},
        classify,
        codec::{self, ExchangeError},
        connection::Rpc,
        consent::Wants,
        endpoint::Endpoint,
        observers::{DeliveryCallback, ObserverDelivery},
        pool::{self, Pool, Route, RouteError},
        registration::Registration,
        release::InUse,
        request::{CallMeta, EncodedPayload, PluginReply, PluginRequest, ServingEndpoint},
        resolve::{Resolver, SystemResolver},
        state::{EndpointStatus, NameStatus, Status},
        transport::{self, InProcess},
    },
};

/// A connection older than this is replaced, so that a balancer between us and the plugin can send us elsewhere.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
/// NOT_INITIALIZED once more.
const CONFIG_LOST_MESSAGE: &str = "the plugin does not know its configuration, though it was initialised";

/// Resolves the references in a plugin's configuration.
type ReferenceResolver = dyn Fn(&config::JsonObject, config::ReferenceScope<'_>) -> Result<config::ResolvedPluginConfig, String>
    + Send
    + Sync;

/// What all plugins of a gateway process share.
#[derive(Clone)]
pub struct Shared {
    pub(super) instance_id: Arc<str>,
    pub(super) limits: config::Limits,
    pub(super) observers: config::Observers,
    pub(super) resolve: Arc<ReferenceResolver>,
    pub(super) changes: watch::Sender<u64>,
    pub(super) resolver: Arc<dyn Resolver>,
    /// Age of a connection at which it is replaced.
    pub(super) most_age: Duration,
    pub(super) telemetry: Telemetry,
    pub(super) certificates: tls::CertificateWatch,
    pub(super) reach: Arc<config::ApiPluginPolicy>,
}

impl Shared {
    /// `instance_id` names this process to plugins; `telemetry` measures calls; `resolve` replaces the references of a configuration within
    /// a scope, its error naming the member and never a value.
    pub fn new(
        instance_id: impl Into<Arc<str>>,
        telemetry: Telemetry,
        limits: config::Limits,
        observers: config::Observers,
        resolve: impl Fn(
            &config::JsonObject,
            config::ReferenceScope<'_>,
        ) -> Result<config::ResolvedPluginConfig, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (changes, instance_id, resolve) = (watch::Sender::new(0), instance_id.into(), Arc::new(resolve));
        let (resolver, most_age, certificates) =
            (Arc::new(SystemResolver), MAX_CONNECTION_AGE, tls::CertificateWatch::default());
        Shared {
            instance_id,
            limits,
            observers,
            resolve,
            changes,
            resolver,
            most_age,
            telemetry,
            certificates,
            reach: Arc::default(),
        }
    }

    /// The files for TLS to plugins are among those that this follows.
    #[must_use]
    pub fn following(self, certificates: tls::CertificateWatch) -> Self {
        Shared { certificates, ..self }
    }

    /// The same process by the settings of `config`; without any, plugins of the admin API may reach nothing.
    #[must_use]
    pub fn by(&self, config: &config::Config) -> Self {
        let (limits, observers) = (config.limits.clone(), config.observers.clone());
        Shared { limits, observers, reach: Arc::new(config.reach()), ..self.clone() }
    }

    /// Tells of every change of any plugin's [`Status`]. The number means nothing; look at the statuses.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Largest call message in bytes: the request limit and 1 MiB for what stands beside the payload.
    pub(super) fn max_call(&self) -> usize {
        self.limits.request.in_memory().saturating_add(1 << 20)
    }

    /// Largest reply message in bytes: as much as a folded payload may have, and the notices.
    pub(super) fn max_reply(&self) -> usize {
        self.limits
            .request
            .in_memory()
            .saturating_add(64 << 10)
            .saturating_add(self.limits.notice_bytes.in_memory())
    }
}

/// One plugin: its endpoints, the places for calls, and the queue of what it observes.
pub struct PluginClient {
    name: Arc<str>,
    limits: config::PluginLimits,
    max_call: usize,
    max_reply: usize,
    pub(super) pool: Arc<Pool>,
    bulkhead: Bulkhead,
    pub(super) observers: ObserverDelivery,
    calls: PluginCalls,
}

impl fmt::Debug for PluginClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginClient").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PluginClient {
    /// A client for `plugin`; `builtin` is its service where it runs in this process. Nothing is dialled
    /// before [`PluginClient::start`].
    ///
    /// # Errors
    /// An endpoint can't be dialled; one sentence names the member and what would be right.
    pub fn new(
        plugin: &config::Plugin,
        shared: &Shared,
        builtin: Option<InProcess>,
    ) -> Result<Arc<Self>, String> {
        let targets = transport::targets_of_plugin(plugin, builtin, &shared.reach, &shared.certificates)?;
        let limits = plugin.limits.clone();
        let name: Arc<str> = plugin.name.as_str().into();
        Ok(Arc::new(PluginClient {
            calls: shared.telemetry.plugin_calls(&name),
            name,
            max_call: shared.max_call(),
            max_reply: shared.max_reply(),
            pool: Pool::new(Registration::new(plugin.clone(), shared.clone()), targets),
            bulkhead: Bulkhead::new(limits.in_flight, limits.queue),
            observers: ObserverDelivery::new(shared.observers.items, shared.observers.bytes.in_memory()),
            limits,
        }))
    }

    /// The registered name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plugin's state at this moment.
    pub fn status(&self) -> Status {
        self.pool.status()
    }

    /// Every endpoint of the plugin at this moment.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.pool.report()
    }

    /// What endpoints that stay out for it would have to be accepted as: each once, the highest version first.
    pub fn wants(&self) -> Vec<Arc<Wants>> {
        self.pool.wants()
    }

    /// Every name among its endpoints at this moment; what it stands for is among [`PluginClient::endpoints`].
    pub fn names(&self) -> Vec<NameStatus> {
        self.pool.names()
    }

    /// Calls under way to the plugin.
    pub fn in_flight(&self) -> usize {
        self.bulkhead.taken()
    }

    /// When what first initialised the plugin was sent; none: it never was. Shutdown goes in the reverse order.
    pub fn initialised_at(&self) -> Option<Instant> {
        self.pool.registration.initialised_at()
    }

    /// Says in the log that it is one of the gateway's plugins, and whether it is disabled.
    pub fn log_registered(&self) {
        self.pool.registration.log_registered();
    }

    /// Counts entries that were given up by a client in whose place this one is.
    pub fn add_dropped(&self, count: u64) {
        self.observers.add_dropped(count);
    }

    /// Starts what works in the background: what keeps the endpoints connected, until `cancel`, and the observers'
    /// delivery, until [`PluginClient::drain`].
    pub fn start(self: &Arc<Self>, cancel: CancellationToken) {
        self.observers.start(Arc::clone(self), self.limits.in_flight);
        self.pool.start(cancel);
    }

    /// One call at `point`: waits for a place, finds or makes a connection, sends, gives back the reply as it came.
    /// `call.config_digest` is filled in here. `limit` holds for everything; dropping the future cancels the plugin's call.
    ///
    /// # Errors
    /// Why there is no reply: `bulkhead_full`, `not_ready`, `unreachable`, `point_not_offered`, `timeout`,
    /// `rpc_error`, `bad_reply`, `too_large`.
    pub async fn call<M: prost::Message + 'static>(
        &self,
        point: Point,
        call: plugin::Call,
        payload: Arc<M>,
        meta: CallMeta,
        limit: Duration,
    ) -> Result<PluginReply, Failure> {
        self.run(PluginRequest { point, call, payload, meta, parent: Parent::current(), limit }).await
    }

    async fn run(&self, request: PluginRequest) -> Result<PluginReply, Failure> {
        let deadline = Instant::now() + request.limit;
        let wait = self.limits.queue_wait.map_or(request.limit / 10, |wait| wait.0.min(request.limit));
        let place = self.bulkhead.enter(&request.meta.tenant, wait).await.map_err(|full| {
            let (reason, late) = (Reason::BulkheadFull, "no permit became free in time");
            match full {
                Full::Queue => Failure::new(reason, "too many calls in flight and waiting"),
                Full::Wait if wait == request.limit => Failure::ran_out(reason, late),
                Full::Wait => Failure::new(reason, late),
            }
        })?;
        let (bytes, served) = self.send(request, deadline).await?;
        Ok(PluginReply { bytes, queue: place.waited, served })
    }

    /// Queues a call whose reply nobody waits for. Returns at once: of a full queue the tenant with the most loses its oldest entry.
    /// `done` is called exactly once with what came of it; an entry given up is `bulkhead_full` and counted.
    ///
    /// The payload is encoded here: its values may be slices of the whole message that was received, and an entry that
    /// kept that alive would hold more than the queue counts.
    pub fn observe(
        &self,
        point: Point,
        call: plugin::Call,
        payload: &impl prost::Message,
        meta: CallMeta,
        limit: Duration,
        done: Box<dyn FnOnce(Result<PluginReply, Failure>) + Send>,
    ) {
        let parent = Parent::current();
        let payload = Arc::new(EncodedPayload::new(payload));
        self.observers
            .push(PluginRequest { point, call, payload, meta, parent, limit }, DeliveryCallback::new(done));
    }

    /// Entries of the observers' queue that were given up so far.
    pub fn observers_dropped(&self) -> u64 {
        self.observers.dropped()
    }

    /// Ends the observers' queue: delivers what is queued within `limit`, gives up the rest, and says how many.
    pub async fn drain(&self, limit: Duration) -> u64 {
        self.drain_until(tokio::time::sleep(limit)).await
    }

    /// The same until `end` resolves.
    pub async fn drain_until(&self, end: impl Future<Output = ()>) -> u64 {
        self.observers.drain(end).await
    }

    /// Lets go of the plugin: no further calls, then Shutdown within the smaller of `limit` and the plugin's
    /// `limits.shutdown`. What goes wrong is logged.
    pub async fn shutdown(&self, limit: Duration) {
        self.pool.shut_down(limit, &InUse::default()).await;
    }

    /// The same for one that was replaced or left the configuration: Shutdown is for the endpoints that are
    /// not `in_use`. The others still serve this gateway, which the message would name; they hear that this
    /// configuration is released.
    pub async fn retire(&self, in_use: &InUse) {
        self.pool.shut_down(self.limits.shutdown.0, in_use).await;
    }

    /// Whether breakers alone are in the way of a call of `tenant`, or of anybody.
    pub(super) fn is_held_back(&self, tenant: Option<&str>) -> bool {
        self.pool.is_held_back(tenant)
    }

    /// Whether breakers of single tenants may be in the way of calls.
    pub(super) fn has_tenant_breakers(&self) -> bool {
        self.pool.has_tenant_breakers()
    }

    /// Delivers one observed call; its limit starts when it has a place.
    pub(super) async fn deliver(&self, request: PluginRequest) -> Result<PluginReply, Failure> {
        let place = self.bulkhead.enter_observer().await;
        let deadline = Instant::now() + request.limit;
        let (bytes, served) = self.send(request, deadline).await?;
        Ok(PluginReply { bytes, queue: place.waited, served })
    }

    /// Sends and measures; dropped, it is measured as broken off.
    async fn send(
        &self,
        request: PluginRequest,
        deadline: Instant,
    ) -> Result<(bytes::Bytes, ServingEndpoint), Failure> {
        let mut call = self.calls.start(request.point, &request.parent);
        let mut headers = http::HeaderMap::new();
        headers.insert("hookgate-depth", HeaderValue::from(request.meta.depth));
        if request.meta.trial {
            headers.insert("hookgate-test", HeaderValue::from_static("true"));
            call.is_trial();
        }
        call.inject(&mut headers);
        let result = self.exchange(request, headers, deadline, &mut call).await;
        call.ended(result.as_ref().map(drop).map_err(|failure| (failure.reason, failure.status)));
        result
    }

    /// Sends, and once more where the plugin provably did not process the call: after a connection that could
    /// not be made or that handed the request back, a refused stream, or NOT_INITIALIZED. The plugin sees a
    /// call at most twice, and processes it at most once. The second time it goes to another endpoint, where there is
    /// one.
    async fn exchange(
        &self,
        mut request: PluginRequest,
        headers: http::HeaderMap,
        deadline: Instant,
        call: &mut PluginCall<'_>,
    ) -> Result<(bytes::Bytes, ServingEndpoint), Failure> {
        let mut attempts = AttemptState::default();
        loop {
            let handed_over = attempts.again.is_some();
            let Route { live, ticket } = self.next_route(&mut attempts, &request, deadline).await?;
            call.sent_to(&ticket.endpoint().server);
            let generation = live.generation();
            let frame = request.frame(&live.config.digest);
            if frame.len() > self.max_call {
                let detail = format!("the call has {} bytes; the limit is {}", frame.len(), self.max_call);
                return Err(Failure::new(Reason::TooLarge, detail));
            }
            let whole = request.meta.whole && !handed_over && is_nearly(deadline, request.limit);
            let rpc = Rpc::At(request.point);
            let occupied = live.occupied();
            let reply = live.connection.unary(rpc, frame, headers.clone(), deadline, self.max_reply).await;
            drop(occupied);
            match reply {
                Ok(bytes) => {
                    live.note_answer();
                    return Ok((bytes, ServingEndpoint::by(ticket)));
                }
                Err(ExchangeError::Unsent(_)) if !attempts.unsent => {
                    attempts.unsent = true;
                    attempts.avoid = Some(Arc::clone(ticket.endpoint()));
                }
                Err(ExchangeError::StreamRefused) if !attempts.seen_by_plugin => {
                    attempts.seen_by_plugin = true;
                    attempts.avoid = Some(Arc::clone(ticket.endpoint()));
                }
                Err(ExchangeError::Status(status)) if codec::says_not_initialized(&status) => {
                    // On another connection it may be another process.
                    if handed_over {
                        ticket.endpoint().forgot(&live, CONFIG_LOST_MESSAGE);
                    }
                    self.hand_over_again(
                        &mut attempts,
                        &request.meta.tenant,
                        Route { live, ticket },
                        generation,
                        deadline,
                    )
                    .await?;
                }
                Err(error) => return Err(classify::failed(&error, &live, ticket, whole)),
            }
        }
    }

    /// Where the next attempt goes.
    async fn next_route(
        &self,
        attempts: &mut AttemptState,
        request: &PluginRequest,
        deadline: Instant,
    ) -> Result<Route, Failure> {
        if let Some(route) = attempts.again.take() {
            return Ok(route);
        }
        loop {
            match self.pool.route(request.point, &request.meta, attempts.avoid.as_ref(), deadline).await {
                Ok(route) => return Ok(route),
                Err(RouteError { failure, tried: Some(tried) })
                    if failure.reason == Reason::Unreachable
                        && !attempts.unsent
                        && Instant::now() < deadline =>
                {
                    attempts.unsent = true;
                    attempts.avoid = Some(tried);
                    attempts.failure = Some(failure);
                }
                Err(RouteError { failure, .. }) => {
                    let first = attempts.failure.take();
                    // Why it could not be reached says more than that this opened its breaker.
                    return Err(first.filter(|_| failure.reason == Reason::BreakerOpen).unwrap_or(failure));
                }
            }
        }
    }

    /// The plugin doesn't know its configuration, to a call sent after `generation`: it is handed over, and the call goes
    /// there again, or at once to another endpoint that is known to have it.
    async fn hand_over_again(
        &self,
        attempts: &mut AttemptState,
        tenant: &str,
        Route { live, ticket }: Route,
        generation: u64,
        deadline: Instant,
    ) -> Result<(), Failure> {
        if attempts.seen_by_plugin {
            return Err(Failure::new(Reason::NotReady, CONFIG_LOST_MESSAGE));
        }
        attempts.seen_by_plugin = true;
        live.note_forgotten(generation);
        let endpoint = Arc::clone(ticket.endpoint());
        if self.pool.has_proven_beside(&endpoint, tenant) {
            attempts.avoid = Some(Arc::clone(&endpoint));
            // What comes of it shows in the endpoint's status.
            tokio::spawn(async move { endpoint.initialise(&live, generation).await });
            return Ok(());
        }
        pool::initialised(&endpoint, &live, generation, deadline).await?;
        attempts.again = Some(Route { live, ticket });
        Ok(())
    }
}

/// What became of a call so far.
#[derive(Default)]
struct AttemptState {
    /// A connection could not be made, or handed the call back.
    unsent: bool,
    /// The plugin saw the call and did not process it.
    seen_by_plugin: bool,
    /// Where it was tried last.
    avoid: Option<Arc<Endpoint>>,
    /// Where the configuration was just handed over.
    again: Option<Route>,
    /// Why no connection could be made the first time.
    failure: Option<Failure>,
}

/// Whether what is left until `deadline` is about as much as `limit`: the queue's tenth may be gone, but no dial and no
/// Initialize.
fn is_nearly(deadline: Instant, limit: Duration) -> bool {
    deadline.saturating_duration_since(Instant::now()) >= limit.mul_f64(0.85)
}
