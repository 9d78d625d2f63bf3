//! One plugin as the rest of the gateway sees it: its endpoints, its limits, the observers' queue and the status. [`super::call`]
//! is how a call goes.

use std::{fmt, sync::Arc, time::Duration};

use hookgate_proto::plugin::v1 as plugin;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    config,
    core::{failure::Failure, point::Point},
    telemetry::{Parent, PluginCalls, Telemetry},
    tls,
    upstream::{
        bulkhead::Bulkhead,
        consent::Wants,
        observers::{DeliveryCallback, ObserverDelivery},
        pool::Pool,
        registration::Registration,
        release::InUse,
        request::{CallMeta, EncodedPayload, PluginReply, PluginRequest},
        resolve::{Resolver, SystemResolver},
        state::{EndpointStatus, NameStatus, Status},
        transport::{self, InProcess},
    },
};

/// A connection older than this is replaced, so that a balancer between us and the plugin can send us elsewhere.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);

/// Resolves the references in a plugin's configuration.
type ReferenceResolver = dyn Fn(&config::JsonObject, config::ReferenceScope<'_>) -> Result<config::ResolvedPluginConfig, String>
    + Send
    + Sync;

/// What all plugins of a gateway process share.
#[derive(Clone)]
pub struct SharedResources {
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

impl SharedResources {
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
        SharedResources {
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
        SharedResources { certificates, ..self }
    }

    /// The same process by the settings of `config`; without any, plugins of the admin API may reach nothing.
    #[must_use]
    pub fn by(&self, config: &config::Config) -> Self {
        let (limits, observers) = (config.limits.clone(), config.observers.clone());
        SharedResources { limits, observers, reach: Arc::new(config.reach()), ..self.clone() }
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
    pub(super) limits: config::PluginLimits,
    pub(super) max_call: usize,
    pub(super) max_reply: usize,
    pub(super) pool: Arc<Pool>,
    pub(super) bulkhead: Bulkhead,
    pub(super) observers: ObserverDelivery,
    pub(super) calls: PluginCalls,
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
        shared: &SharedResources,
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
}
