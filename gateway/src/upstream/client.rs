//! One plugin as the rest of the gateway sees it: its endpoints, its limits, the observers' queue and the status. [`super::call`]
//! is how a call goes.

use std::{fmt, sync::Arc, time::Duration};

use hookgate_proto::{SelectFields, plugin::v1 as plugin};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    config,
    core::{call_site::CallSite, failure::Failure},
    fairness::{bulkhead::Bulkhead, compute_pool::ComputePool},
    telemetry::{Parent, PluginCalls, Telemetry},
    tls,
    upstream::{
        consent::Wants,
        host_access::HostOffer,
        observers::{DeliveryCallback, ObserverDelivery},
        pool::Pool,
        registered::RegisteredEndpoints,
        registration::Registration,
        release::InUse,
        request::{CallMeta, EncodedPayload, PluginReply, PluginRequest},
        resolve::{Resolver, SystemResolver},
        state::{EndpointStatus, NameStatus, Status},
        transport::{self, InProcess},
    },
};

/// A connection older than this is replaced, so that a load balancer in front of the plugin can choose again.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);

/// Resolves the references in a plugin's configuration.
type ReferenceResolver = dyn Fn(&config::JsonObject, config::ReferenceScope<'_>) -> Result<config::ResolvedPluginConfig, String>
    + Send
    + Sync;

/// Shared by all plugins of a gateway process.
#[derive(Clone)]
pub struct SharedResources {
    pub(super) instance_id: Arc<str>,
    pub(super) limits: config::Limits,
    pub(super) observers: config::Observers,
    pub(super) resolve: Arc<ReferenceResolver>,
    pub(super) changes: watch::Sender<u64>,
    pub(super) resolver: Arc<dyn Resolver>,
    /// The age at which a connection is replaced.
    pub(super) most_age: Duration,
    pub(super) telemetry: Telemetry,
    /// For large payloads.
    pub(super) compute: ComputePool,
    pub(super) certificates: tls::CertificateWatch,
    pub(super) reach: Arc<config::ApiPluginPolicy>,
    pub(super) host: HostOffer,
    /// The endpoints that plugins' processes registered.
    pub(super) registered: watch::Sender<Arc<RegisteredEndpoints>>,
}

impl SharedResources {
    /// `instance_id` identifies this process to plugins. `telemetry` measures calls. `resolve` replaces
    /// references in a configuration within a scope; its errors name the member and never a value.
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
            compute: ComputePool::default(),
            certificates,
            reach: Arc::default(),
            host: HostOffer::default(),
            registered: watch::Sender::default(),
        }
    }

    /// Replaces the endpoints that plugins' processes registered.
    pub fn set_registered(&self, endpoints: RegisteredEndpoints) {
        self.registered.send_if_modified(|current| {
            let is_other = **current != endpoints;
            if is_other {
                *current = Arc::new(endpoints);
            }
            is_other
        });
    }

    /// Adds the files for TLS to plugins to those that `certificates` watches.
    #[must_use]
    pub fn following(self, certificates: tls::CertificateWatch) -> Self {
        SharedResources { certificates, ..self }
    }

    /// Plugins may use `host`.
    #[must_use]
    pub fn offering(self, host: HostOffer) -> Self {
        SharedResources { host, ..self }
    }

    /// The same resources with the settings of `config`. If it has none, plugins of the admin API may reach
    /// nothing.
    #[must_use]
    pub fn by(&self, config: &config::Config) -> Self {
        let (limits, observers) = (config.limits.clone(), config.observers.clone());
        SharedResources { limits, observers, reach: Arc::new(config.reach()), ..self.clone() }
    }

    /// The threads for large payloads.
    pub(crate) fn compute_pool(&self) -> ComputePool {
        self.compute.clone()
    }

    /// Signals changes of any plugin's [`Status`]. The number has no meaning; read the statuses.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Largest call message in bytes: the request limit, plus 1 MiB for everything except the payload.
    pub(super) fn max_call(&self) -> usize {
        self.limits.request.in_memory().saturating_add(1 << 20)
    }

    /// Largest reply message in bytes: the limit of a patched payload, plus the notices.
    pub(super) fn max_reply(&self) -> usize {
        self.limits
            .request
            .in_memory()
            .saturating_add(64 << 10)
            .saturating_add(self.limits.notice_bytes.in_memory())
    }
}

/// One plugin: its endpoints, the permits for calls, and its queue of observed calls.
pub struct PluginClient {
    name: Arc<str>,
    pub(super) limits: config::PluginLimits,
    pub(super) max_call: usize,
    pub(super) max_reply: usize,
    pub(super) pool: Arc<Pool>,
    pub(super) bulkhead: Bulkhead,
    pub(super) observers: ObserverDelivery,
    pub(super) calls: PluginCalls,
    pub(super) host: HostOffer,
}

impl fmt::Debug for PluginClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginClient").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PluginClient {
    /// A client for `plugin`. `builtin` is its service if it runs in this process. Nothing is dialled before
    /// [`PluginClient::start`].
    ///
    /// # Errors
    /// An endpoint can't be dialled. The sentence names the member and the remedy.
    pub fn new(
        plugin: &config::Plugin,
        shared: &SharedResources,
        builtin: Option<InProcess>,
    ) -> Result<Arc<Self>, String> {
        let targets = transport::targets_of_plugin(plugin, builtin, shared)?;
        let limits = plugin.limits.clone();
        let name: Arc<str> = plugin.name.as_str().into();
        Ok(Arc::new(PluginClient {
            calls: shared.telemetry.plugin_calls(&name),
            host: shared.host.clone(),
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

    /// The plugin's current state.
    pub fn status(&self) -> Status {
        self.pool.status()
    }

    /// The plugin's current endpoints.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.pool.report()
    }

    /// The manifests that pending endpoints need consent for: each once, the highest version first.
    pub fn wants(&self) -> Vec<Arc<Wants>> {
        self.pool.wants()
    }

    /// The host names among its endpoints. Their addresses are in [`PluginClient::endpoints`].
    pub fn names(&self) -> Vec<NameStatus> {
        self.pool.names()
    }

    /// Calls in flight to the plugin.
    pub fn in_flight(&self) -> usize {
        self.bulkhead.taken()
    }

    /// When the plugin was first initialised, or `None` if it never was. Shutdown goes out in the reverse
    /// order.
    pub fn initialised_at(&self) -> Option<Instant> {
        self.pool.registration.initialised_at()
    }

    /// Logs that the plugin is registered, and whether it is disabled.
    pub fn log_registered(&self) {
        self.pool.registration.log_registered();
    }

    /// Adds the entries that its replaced client dropped.
    pub fn add_dropped(&self, count: u64) {
        self.observers.add_dropped(count);
    }

    /// Starts the background work: keeping the endpoints connected, until `cancel`, and delivery to
    /// observers, until [`PluginClient::drain`].
    pub fn start(self: &Arc<Self>, cancel: CancellationToken) {
        self.observers.start(Arc::clone(self), self.limits.in_flight);
        self.pool.start(cancel);
    }

    /// Queues a call whose reply nobody waits for, and returns at once. If the queue is full, the tenant with
    /// the most entries loses its oldest one. `done` is called exactly once with the result; for a dropped
    /// entry that is `bulkhead_full`.
    ///
    /// The payload is encoded here, with the fields that the accepted manifest reads: its values may be slices of the whole
    /// received message, and an entry that kept the message alive would use more memory than the queue counts.
    pub fn observe<M: prost::Message + SelectFields + Default + 'static>(
        &self,
        site: impl Into<CallSite>,
        call: plugin::Call,
        payload: &M,
        meta: CallMeta,
        limit: Duration,
        done: Box<dyn FnOnce(Result<PluginReply, Failure>) + Send>,
    ) {
        let (parent, site) = (Parent::current(), site.into());
        let accepted = self.pool.registration.manifests.accepted();
        let offer = accepted.and_then(|accepted| accepted.manifest.offers_at(&site));
        let payload = Arc::new(EncodedPayload::new(payload, offer.and_then(|offer| offer.reads)));
        self.observers
            .push(PluginRequest { site, call, payload, meta, parent, limit }, DeliveryCallback::new(done));
    }

    /// How many entries the observers' queue has dropped.
    pub fn observers_dropped(&self) -> u64 {
        self.observers.dropped()
    }

    /// Closes the observers' queue: delivers entries within `limit`, drops the rest, and returns how many.
    pub async fn drain(&self, limit: Duration) -> u64 {
        self.drain_until(tokio::time::sleep(limit)).await
    }

    /// The same, until `end` resolves.
    pub async fn drain_until(&self, end: impl Future<Output = ()>) -> u64 {
        self.observers.drain(end).await
    }

    /// Ends the use of the plugin: no further calls, then Shutdown within the smaller of `limit` and the
    /// plugin's `limits.shutdown`. Failures are logged.
    pub async fn shutdown(&self, limit: Duration) {
        self.pool.shut_down(limit, &InUse::default()).await;
    }

    /// The same for a client that was replaced or removed. Only endpoints that are not `in_use` get Shutdown,
    /// because it would end all use by this gateway; the others get Release for this configuration.
    pub async fn retire(&self, in_use: &InUse) {
        self.pool.shut_down(self.limits.shutdown.0, in_use).await;
    }

    /// Whether only breakers prevent a call of `tenant`, or of any tenant.
    pub(super) fn is_held_back(&self, tenant: Option<&str>) -> bool {
        self.pool.is_held_back(tenant)
    }

    /// Whether breakers of single tenants may prevent calls.
    pub(super) fn has_tenant_breakers(&self) -> bool {
        self.pool.has_tenant_breakers()
    }
}
