//! One plugin as the invoker sees it: a call with its time limit, the observers' queue, the status.

use std::{fmt, sync::Arc, time::Duration};

use hookgate_proto::plugin::v1 as plugin;
use http::HeaderValue;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    bulkhead::{Bulkhead, Full},
    codec::{self, ExchangeError},
    connection::Rpc,
    endpoint::{Down, Endpoint, Live},
    observers::{Done, Observers},
    request::{CallMeta, Encoded, Failure, Replied, Request},
    state::{EndpointStatus, Status},
    supervisor,
    transport::{self, InProcess},
};
use crate::{
    config,
    point::Point,
    step::Reason,
    telemetry::{Parent, PluginCalls, Telemetry},
    tls,
};

/// NOT_INITIALIZED once more.
const FORGOT: &str = "the plugin does not know its configuration, though it was initialised";

/// Resolves the references in a plugin's configuration.
type Resolve = dyn Fn(&config::Object) -> Result<config::Resolved, String> + Send + Sync;

/// What all plugins of a gateway process share.
#[derive(Clone)]
pub struct Shared {
    pub(super) instance_id: Arc<str>,
    pub(super) limits: config::Limits,
    pub(super) observers: config::Observers,
    pub(super) resolve: Arc<Resolve>,
    pub(super) changes: watch::Sender<u64>,
    telemetry: Telemetry,
    certificates: tls::Watch,
}

impl Shared {
    /// `instance_id` names this process to plugins; `telemetry` measures calls; `resolve` replaces the references of a configuration, its
    /// error naming the member and never a value.
    pub fn new(
        instance_id: impl Into<Arc<str>>,
        telemetry: Telemetry,
        limits: config::Limits,
        observers: config::Observers,
        resolve: impl Fn(&config::Object) -> Result<config::Resolved, String> + Send + Sync + 'static,
    ) -> Self {
        let changes = watch::Sender::new(0);
        let (instance_id, resolve) = (instance_id.into(), Arc::new(resolve));
        let certificates = tls::Watch::default();
        Shared { instance_id, limits, observers, resolve, changes, telemetry, certificates }
    }

    /// The files for TLS to plugins are among those that this follows.
    #[must_use]
    pub fn following(self, certificates: tls::Watch) -> Self {
        Shared { certificates, ..self }
    }

    /// Tells of every change of any plugin's [`Status`]. The number means nothing; look at the statuses.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Largest call message in bytes: the request limit and 1 MiB for what stands beside the payload.
    pub(super) fn max_call(&self) -> usize {
        bytes(self.limits.request).saturating_add(1 << 20)
    }

    /// Largest reply message in bytes: as much as a folded payload may have, and the notices.
    pub(super) fn max_reply(&self) -> usize {
        bytes(self.limits.request).saturating_add(64 << 10).saturating_add(bytes(self.limits.notice_bytes))
    }
}

fn bytes(size: config::Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// One plugin: its connection, the places for calls, and the queue of what it observes.
pub struct PluginClient {
    name: Arc<str>,
    limits: config::PluginLimits,
    max_call: usize,
    max_reply: usize,
    pub(super) endpoint: Arc<Endpoint>,
    bulkhead: Bulkhead,
    pub(super) observers: Observers,
    calls: PluginCalls,
    closing: CancellationToken,
}

impl fmt::Debug for PluginClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginClient").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PluginClient {
    /// A client for `plugin`; `builtin` is its service where it runs in this process. Nothing is dialled
    /// before [`PluginClient::spawn`].
    ///
    /// # Errors
    /// The endpoint can't be dialled; one sentence names the member and what would be right.
    pub fn new(
        plugin: &config::Plugin,
        shared: &Shared,
        builtin: Option<InProcess>,
    ) -> Result<Arc<Self>, String> {
        let transport = transport::of_plugin(plugin, builtin, &shared.certificates)?;
        let limits = plugin.limits.clone();
        let name: Arc<str> = plugin.name.as_str().into();
        Ok(Arc::new(PluginClient {
            calls: shared.telemetry.plugin_calls(&name, transport.address()),
            name,
            max_call: shared.max_call(),
            max_reply: shared.max_reply(),
            endpoint: Endpoint::new(plugin.clone(), shared.clone(), transport),
            bulkhead: Bulkhead::new(limits.in_flight, limits.queue),
            observers: Observers::new(shared.observers.items, bytes(shared.observers.bytes)),
            closing: CancellationToken::new(),
            limits,
        }))
    }

    /// The registered name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the plugin is reached, for people, traces and logs.
    pub fn address(&self) -> &str {
        self.endpoint.address()
    }

    /// The plugin's state at this moment.
    pub fn status(&self) -> Arc<Status> {
        self.endpoint.status.now()
    }

    /// Every address of the plugin at this moment.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        let Status { state, why, detail, manifest, .. } = &*self.status();
        let version = manifest.as_ref().map(|manifest| manifest.version.clone());
        let address = self.address().to_owned();
        vec![EndpointStatus { address, state: *state, why: *why, detail: detail.clone(), version }]
    }

    /// Calls under way to the plugin.
    pub fn in_flight(&self) -> usize {
        self.bulkhead.taken()
    }

    /// When the plugin was first initialised; none: never. Shutdown goes in the reverse order.
    pub fn initialised_at(&self) -> Option<Instant> {
        self.endpoint.initialised_at()
    }

    /// Starts what works in the background: the connection's supervisor, until `cancel`, and the observers'
    /// delivery, until [`PluginClient::drain`]. The handle is the supervisor's.
    pub fn spawn(self: &Arc<Self>, cancel: CancellationToken) -> JoinHandle<()> {
        self.observers.start(Arc::clone(self), self.limits.in_flight);
        let (endpoint, closing) = (Arc::clone(&self.endpoint), self.closing.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = closing.cancelled() => {}
                () = supervisor::supervise(&endpoint) => {}
            }
        })
    }

    /// One call at `point`: waits for a place, finds or makes a connection, sends, gives back the reply as it
    /// came. `call.config_digest` is filled in here. `limit` holds for everything; dropping the future
    /// cancels the plugin's call.
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
    ) -> Result<Replied, Failure> {
        self.run(Request { point, call, payload, meta, parent: Parent::current(), limit }).await
    }

    async fn run(&self, request: Request) -> Result<Replied, Failure> {
        let deadline = Instant::now() + request.limit;
        let wait = self.limits.queue_wait.map_or(request.limit / 10, |wait| wait.0.min(request.limit));
        let place = self.bulkhead.enter(wait).await.map_err(|full| {
            let reason = Reason::BulkheadFull;
            match full {
                Full::Queue => Failure::new(reason, "too many calls under way and waiting"),
                Full::Wait if wait == request.limit => {
                    Failure::ran_out(reason, "no place became free in time")
                }
                Full::Wait => Failure::new(reason, "no place became free in time"),
            }
        })?;
        let bytes = self.send(request, deadline).await?;
        Ok(Replied { bytes, queue: place.waited })
    }

    /// Queues a call whose reply nobody waits for. Returns at once: a full queue gives up its oldest entry.
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
        done: Box<dyn FnOnce(Result<Replied, Failure>) + Send>,
    ) {
        let parent = Parent::current();
        let payload = Arc::new(Encoded::new(payload));
        self.observers.push(Request { point, call, payload, meta, parent, limit }, Done::new(done));
    }

    /// Entries of the observers' queue that were given up so far.
    pub fn observers_dropped(&self) -> u64 {
        self.observers.dropped()
    }

    /// Ends the observers' queue: takes no more, delivers what is queued within `limit`, gives up the rest
    /// and says how many that were.
    pub async fn drain(&self, limit: Duration) -> u64 {
        self.observers.drain(limit).await
    }

    /// Lets go of the plugin: no further calls, then Shutdown within the smaller of `limit` and the plugin's
    /// `limits.shutdown`. What goes wrong is logged.
    pub async fn shutdown(&self, limit: Duration) {
        self.closing.cancel();
        self.endpoint.shut_down(limit).await;
    }

    /// Delivers one observed call; its limit starts when it has a place.
    pub(super) async fn deliver(&self, request: Request) -> Result<Replied, Failure> {
        let place = self.bulkhead.enter_patiently().await;
        let deadline = Instant::now() + request.limit;
        let bytes = self.send(request, deadline).await?;
        Ok(Replied { bytes, queue: place.waited })
    }

    /// Sends and measures; dropped, it is measured as broken off.
    async fn send(&self, request: Request, deadline: Instant) -> Result<bytes::Bytes, Failure> {
        let call = self.calls.start(request.point, &request.parent);
        let mut headers = http::HeaderMap::new();
        headers.insert("hookgate-depth", HeaderValue::from(request.meta.depth));
        call.inject(&mut headers);
        let result = self.exchange(request, headers, deadline).await;
        call.ended(result.as_ref().map(drop).map_err(|failure| (failure.reason, failure.status)));
        result
    }

    /// Sends, and once more where the plugin provably did not process the call: after a connection that could
    /// not be made or that handed the request back, a refused stream, or NOT_INITIALIZED. The plugin sees a
    /// call at most twice, and processes it at most once.
    async fn exchange(
        &self,
        mut request: Request,
        headers: http::HeaderMap,
        deadline: Instant,
    ) -> Result<bytes::Bytes, Failure> {
        let (mut unsent, mut seen_by_plugin) = (false, false);
        let mut handed_over: Option<Arc<Live>> = None;
        loop {
            let live = match self.connected(&request, deadline).await {
                Err(failure)
                    if failure.reason == Reason::Unreachable && !unsent && Instant::now() < deadline =>
                {
                    unsent = true;
                    continue;
                }
                live => live?,
            };
            let generation = live.generation();
            let frame = request.frame(&live.config.digest);
            if frame.len() > self.max_call {
                let detail = format!("the call has {} bytes; the limit is {}", frame.len(), self.max_call);
                return Err(Failure::new(Reason::TooLarge, detail));
            }
            let rpc = Rpc::At(request.point);
            match live.connection.unary(rpc, frame, headers.clone(), deadline, self.max_reply).await {
                Ok(bytes) => return Ok(bytes),
                Err(ExchangeError::Unsent(_)) if !unsent => unsent = true,
                Err(ExchangeError::StreamRefused) if !seen_by_plugin => seen_by_plugin = true,
                Err(ExchangeError::Status(status)) if codec::says_not_initialized(&status) => {
                    // On another connection it may be another process.
                    if handed_over.is_some_and(|before| Arc::ptr_eq(&before, &live)) {
                        self.endpoint.forgot(&live, FORGOT);
                    }
                    if seen_by_plugin {
                        return Err(Failure::new(Reason::NotReady, FORGOT));
                    }
                    seen_by_plugin = true;
                    self.initialised(&live, generation, deadline).await?;
                    handed_over = Some(live);
                }
                Err(error) => return Err(failure(&error, &live)),
            }
        }
    }

    /// A connection to a plugin that was described, accepted and initialised.
    async fn connected(&self, request: &Request, deadline: Instant) -> Result<Arc<Live>, Failure> {
        let live = match self.endpoint.live() {
            Some(live) => live,
            None => self.dialled(deadline).await?,
        };
        if !live.is_initialised() {
            self.initialised(&live, 0, deadline).await?;
        }
        if live.manifest.offers[request.point.index()].is_none() {
            let detail = format!("the plugin's manifest does not offer {}", request.point);
            return Err(Failure::new(Reason::PointNotOffered, detail));
        }
        Ok(live)
    }

    async fn dialled(&self, deadline: Instant) -> Result<Arc<Live>, Failure> {
        let status = self.endpoint.status.now();
        if status.manifest.is_none() || !status.why.may_dial() {
            let (why, detail) = (status.why.as_str(), &status.detail);
            return Err(Failure::new(
                Reason::NotReady,
                format!("the plugin is {}: {why} {detail}", status.state),
            ));
        }
        match tokio::time::timeout_at(deadline, self.endpoint.dial()).await {
            Ok(Ok(live)) => Ok(live),
            Ok(Err(Down::Away(detail))) => Err(Failure::new(Reason::Unreachable, detail)),
            Ok(Err(Down::Out(detail, _))) => Err(Failure::new(Reason::NotReady, detail)),
            Err(_) => Err(Failure::ran_out(Reason::Unreachable, "no connection in time")),
        }
    }

    async fn initialised(&self, live: &Arc<Live>, seen: u64, deadline: Instant) -> Result<(), Failure> {
        match tokio::time::timeout_at(deadline, self.endpoint.initialise(live, seen)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Down::Away(detail) | Down::Out(detail, _))) => Err(Failure::new(Reason::NotReady, detail)),
            Err(_) => Err(Failure::ran_out(Reason::NotReady, "Initialize is still under way")),
        }
    }
}

/// The step's reason for an exchange that is not tried again.
fn failure(error: &ExchangeError, live: &Live) -> Failure {
    let reason = match error {
        ExchangeError::Unsent(_) => Reason::Unreachable,
        ExchangeError::StreamRefused | ExchangeError::Status(_) | ExchangeError::Lost(_) => Reason::RpcError,
        ExchangeError::BadReply(_) => Reason::BadReply,
        ExchangeError::TooLarge(_) => Reason::TooLarge,
        ExchangeError::TimedOut => Reason::Timeout,
    };
    let status = match error {
        ExchangeError::Status(status) => Some(status.code()),
        // As gRPC has it: the plugin may or may not have seen the call.
        ExchangeError::StreamRefused | ExchangeError::Lost(_) => Some(tonic::Code::Unavailable),
        _ => None,
    };
    let ran_out = matches!(error, ExchangeError::TimedOut);
    Failure { reason, status, ran_out, detail: live.config.shown_error(error) }
}
