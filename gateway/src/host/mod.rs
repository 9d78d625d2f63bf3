//! What the gateway offers to plugins, `hookgate.host.v1` (docs/protocol.md, section 2): storage in the registry's
//! database, lines in the log, events for operators, the tokens that give access to them, and registration of plugins by
//! their own processes.
//!
//! A token alone decides whose data a request reaches and whose name a line bears; requests name keys only. Knows
//! nothing of chains: [`crate::upstream`] asks for tokens through [`HostAccess`].

mod attributes;
mod error;
mod grants;
mod log_service;
mod operation;
mod quota;
mod rate_limit;
mod registration;
mod signing;
mod storage;
mod token;
mod token_service;
mod trial;

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::State,
    middleware::{self, Next},
};
use tonic::{Status, service::Routes};

use self::{
    grants::GrantTable,
    log_service::{EventServer, LogServer},
    quota::QuotaCheck,
    rate_limit::RateLimit,
    signing::KeyRing,
    storage::StorageServer,
    token::{Refusal, TokenClaims},
    token_service::TokenServer,
};
use crate::{
    config,
    store::{DataEntry, EntryContent, PluginData},
    telemetry::Telemetry,
    upstream::{CallTokenRequest, HostAccess},
};
use hookgate_proto::{
    Capability,
    host::v1::{
        event_service_server::EventServiceServer, log_service_server::LogServiceServer,
        storage_service_server::StorageServiceServer, token_service_server::TokenServiceServer,
    },
};
use tokio_util::sync::CancellationToken;

pub use self::{registration::PluginRegistrar, trial::TrialHost};

/// How long a call's token is valid after the call's deadline: a plugin may finish its writes.
const CALL_TOKEN_GRACE: Duration = Duration::from_secs(5);
/// How long a plugin's own token is valid. Below the age at which a signing key is deleted, which is twice
/// [`signing::KEY_AGE`].
const PLUGIN_TOKEN_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How often expired entries are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// What a counter counts as, in bytes.
const COUNTER_BYTES: u64 = 8;
/// How many log lines, and how many events, a plugin may write per second.
const MAX_LINES_PER_SECOND: u32 = 1000;
const MAX_EVENTS_PER_SECOND: u32 = 100;
/// Largest event: 32 attributes, which are cut.
const MAX_EVENT_BYTES: usize = 64 << 10;
/// Largest request: 32 values of 64 KiB, with their keys.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The services, for plugins over a listener and in this process.
pub struct HostServices {
    data: Arc<dyn PluginData>,
    keys: KeyRing,
    quota: QuotaCheck,
    grants: GrantTable,
    log_limit: RateLimit,
    event_limit: RateLimit,
    endpoints: HostEndpoints,
    telemetry: Telemetry,
}

/// Where plugins reach the services.
struct HostEndpoints {
    /// For plugins on a Unix socket.
    local: Option<String>,
    /// For all others. Set when the port is bound, if the configuration doesn't say it.
    remote: OnceLock<String>,
    /// The scheme of the port.
    scheme: &'static str,
}

impl HostEndpoints {
    fn new(server: &config::Server) -> Self {
        let local = server.host_socket.as_deref().map(|path| format!("unix://{}", path.display()));
        let remote = server.host_endpoint.clone().map_or_else(OnceLock::new, OnceLock::from);
        HostEndpoints { local, remote, scheme: if server.tls.is_some() { "https" } else { "http" } }
    }
}

impl HostServices {
    /// The services over `data`. Nothing is read before [`HostServices::prepare`].
    pub fn new(config: &config::Config, data: Arc<dyn PluginData>, telemetry: Telemetry) -> Arc<Self> {
        let endpoints = HostEndpoints::new(&config.server);
        Self::assemble(data, &config.limits, &config.plugins, endpoints, telemetry)
    }

    fn assemble(
        data: Arc<dyn PluginData>,
        limits: &config::Limits,
        plugins: &[Arc<config::Plugin>],
        endpoints: HostEndpoints,
        telemetry: Telemetry,
    ) -> Arc<Self> {
        Arc::new(HostServices {
            keys: KeyRing::new(Arc::clone(&data)),
            quota: QuotaCheck::new(limits),
            grants: GrantTable::new(plugins),
            log_limit: RateLimit::new(MAX_LINES_PER_SECOND),
            event_limit: RateLimit::new(MAX_EVENTS_PER_SECOND),
            endpoints,
            data,
            telemetry,
        })
    }

    /// The port listens on `address`. Called before the first plugin is dialled.
    pub fn bound_to(&self, address: SocketAddr) {
        let HostEndpoints { remote, scheme, .. } = &self.endpoints;
        remote.get_or_init(|| format!("{scheme}://{address}"));
    }

    /// Takes over the grants and limits of a configuration that became active.
    pub fn apply(&self, config: &config::Config) {
        self.grants.update(&config.plugins);
        self.quota.update(&config.limits);
        for limit in [&self.log_limit, &self.event_limit] {
            limit.retain(|plugin| self.grants.knows(plugin));
        }
    }

    /// The gRPC services, for a listener or for plugins of this process.
    pub fn routes(self: &Arc<Self>) -> Routes {
        let storage = StorageServiceServer::new(StorageServer::new(Arc::clone(self)));
        let events = EventServiceServer::new(EventServer::new(Arc::clone(self)));
        let services = Routes::new(storage.max_decoding_message_size(MAX_REQUEST_BYTES))
            .add_service(LogServiceServer::new(LogServer::new(Arc::clone(self))))
            .add_service(events.max_decoding_message_size(MAX_EVENT_BYTES))
            .add_service(TokenServiceServer::new(TokenServer::new(Arc::clone(self))));
        let authentication = middleware::from_fn_with_state(Arc::clone(self), authenticate);
        Routes::from(services.into_axum_router().route_layer(authentication))
    }

    /// Reads the signing keys. Called before the first plugin is dialled.
    pub async fn prepare(&self) {
        self.keys.prepare().await;
    }

    /// Keeps the signing keys current and deletes expired entries, until `ended`.
    pub async fn follow(self: Arc<Self>, ended: CancellationToken) {
        let work = async { tokio::join!(self.keys.follow(), self.delete_expired()) };
        ended.run_until_cancelled(work).await;
    }

    async fn delete_expired(&self) {
        loop {
            tokio::time::sleep(EXPIRY_INTERVAL).await;
            // The store deletes them in small batches.
            if let Err(error) = self.data.delete_expired(now_ms(), usize::MAX).await {
                tracing::debug!(%error, "expired entries of plugins could not be deleted");
            }
        }
    }

    /// The claims of the request's token, which [`authenticate`] has verified, if it grants `capability`.
    fn authorize(
        &self,
        extensions: &tonic::Extensions,
        capability: Option<Capability>,
    ) -> Result<TokenClaims, Status> {
        let claims = extensions.get::<TokenClaims>().ok_or_else(|| self.refuse(Refusal::Missing, None))?;
        match self.refusal(claims, capability) {
            None => Ok(claims.clone()),
            Some(refusal) => Err(self.refuse(refusal, Some(&claims.plugin))),
        }
    }

    fn refuse(&self, refusal: Refusal, plugin: Option<&str>) -> Status {
        self.telemetry.record_host_refusal(refusal.as_str(), plugin);
        error::refused(refusal)
    }

    fn refusal(&self, claims: &TokenClaims, capability: Option<Capability>) -> Option<Refusal> {
        if capability.is_some_and(|capability| !claims.grants(capability)) {
            return Some(Refusal::Capability);
        }
        // A call's token is short-lived. A plugin's own lives for a day, so what it may is checked again.
        if claims.tenant.is_some() {
            return None;
        }
        let is_granted = match capability {
            Some(capability) => self.grants.grants(&claims.plugin, capability),
            None => self.grants.knows(&claims.plugin),
        };
        (!is_granted).then_some(Refusal::Unregistered)
    }
}

/// Verifies the token before the body is read, so that nobody else makes the gateway read and keep messages.
async fn authenticate(
    State(host): State<Arc<HostServices>>,
    mut request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let claims = match token::bearer(request.headers()) {
        Ok(token) => host.keys.verify(token).await,
        Err(refusal) => Err(refusal),
    };
    match claims {
        Ok(claims) => {
            request.extensions_mut().insert(claims);
            next.run(request).await
        }
        Err(refusal) => host.refuse(refusal, None).into_http(),
    }
}

impl HostAccess for HostServices {
    fn endpoint(&self, is_local: bool) -> Option<&str> {
        let HostEndpoints { local, remote, .. } = &self.endpoints;
        let (local, remote) = (local.as_ref(), remote.get());
        let chosen = if is_local { local.or(remote) } else { remote.or(local) };
        chosen.map(String::as_str)
    }

    fn plugin_token(&self, plugin: &str, capabilities: &[String]) -> String {
        let expires = SystemTime::now() + PLUGIN_TOKEN_AGE;
        let claims = TokenClaims::for_plugin(plugin, capabilities, expires);
        self.keys.sign(&claims).unwrap_or_default()
    }

    fn call_token(&self, call: &CallTokenRequest<'_>) -> String {
        let expires = SystemTime::now() + call.left + CALL_TOKEN_GRACE;
        self.keys.sign(&TokenClaims::for_call(call, expires)).unwrap_or_default()
    }
}

/// What an entry counts as, in bytes.
fn entry_bytes(entry: &DataEntry) -> u64 {
    let content = match &entry.content {
        EntryContent::Value(value) => value.len() as u64,
        EntryContent::Counter(_) => COUNTER_BYTES,
    };
    entry.key.len() as u64 + content
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
