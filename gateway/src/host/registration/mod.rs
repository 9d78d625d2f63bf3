//! Plugins whose processes register themselves (docs/protocol.md, section 2; docs/decisions/0060).
//!
//! ```text
//! plugin -> RegistrationService (any replica) -> LeaseStore -> PluginRegistrar::follow (every replica) -> upstream
//! ```

mod error;
mod lease_store;
mod lease_table;
mod service;

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    middleware::{self, Next},
};
use hookgate_proto::host::v1::registration_service_server::RegistrationServiceServer;
use serde_json::json;
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, service::Routes};
use uuid::Uuid;

use self::{
    lease_store::LeaseStore,
    lease_table::{Lease, LeaseKey, LeaseTable},
    service::RegistrationServer,
};
use crate::{
    auth::{Port, VerifiedToken},
    config::{self, ApiPluginPolicy, DialPolicy, UnknownPlugins},
    core::object::ObjectKind,
    host::error::{self as host_error, FieldViolation},
    registry::{
        Writer,
        edit::{Edit, EditAction, EditError},
        operations::{OperationError, Operations},
    },
    snapshot::SnapshotCell,
    store::PluginData,
    telemetry::Telemetry,
    upstream::{RegisteredEndpoints, SharedResources},
};

/// A registered endpoint is removed when this long nobody renewed it.
const LEASE: Duration = Duration::from_secs(30);
/// How often the leases are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// As many as `endpoints` may list.
const MAX_ENDPOINTS: usize = 64;
const MAX_ENDPOINT_BYTES: usize = 400;
/// Open streams of registrations at this process.
const MAX_STREAMS: usize = 4096;
/// Largest message: a plugin's name and an endpoint, with room to say that one is too long.
const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// Leases are read again at most this often, however many begin and end.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);

/// Takes registrations at this process, and follows those at all processes.
pub struct PluginRegistrar {
    snapshots: Arc<SnapshotCell>,
    operations: Operations,
    leases: LeaseStore,
    upstream: SharedResources,
    telemetry: Telemetry,
    streams: Arc<Semaphore>,
    /// Notified when a lease began or ended at this process.
    changed: Notify,
    /// The gateway takes no more registrations.
    draining: CancellationToken,
}

impl PluginRegistrar {
    /// A registrar that writes plugins with `operations` and leases to `data`.
    pub fn new(
        snapshots: Arc<SnapshotCell>,
        operations: Operations,
        data: Arc<dyn PluginData>,
        upstream: SharedResources,
        telemetry: Telemetry,
        draining: CancellationToken,
    ) -> Arc<Self> {
        let (leases, streams) = (LeaseStore::new(data), Arc::new(Semaphore::new(MAX_STREAMS)));
        let changed = Notify::new();
        Arc::new(PluginRegistrar {
            snapshots,
            operations,
            leases,
            upstream,
            telemetry,
            streams,
            changed,
            draining,
        })
    }

    /// The gRPC service, for a listener.
    pub fn routes(self: &Arc<Self>) -> Routes {
        let service = RegistrationServiceServer::new(RegistrationServer::new(Arc::clone(self)));
        let service = service.max_decoding_message_size(MAX_MESSAGE_BYTES);
        let authentication = middleware::from_fn_with_state(Arc::clone(self), authenticate);
        Routes::from(Routes::new(service).into_axum_router().route_layer(authentication))
    }

    /// Keeps the registered endpoints current after [`PluginRegistrar::prepare`], until `ended`.
    pub async fn follow(self: Arc<Self>, ended: CancellationToken) {
        let follow = async {
            let mut table = LeaseTable::default();
            loop {
                sleep(MIN_READ_INTERVAL).await;
                tokio::select! {
                    () = sleep(READ_INTERVAL) => {}
                    () = self.changed.notified() => {}
                }
                self.read_leases(&mut table).await;
            }
        };
        ended.run_until_cancelled(follow).await;
    }

    /// Reads the registered endpoints, so that they are known before the first plugin is dialled.
    pub async fn prepare(&self) {
        self.read_leases(&mut LeaseTable::default()).await;
    }

    async fn read_leases(&self, table: &mut LeaseTable) {
        let is_used = self.snapshots.current().config.plugins.iter().any(|plugin| plugin.self_registration);
        if !is_used {
            self.upstream.set_registered(RegisteredEndpoints::default());
            return;
        }
        // The registry reports an unreachable store.
        let Ok(leases) = self.leases.read(None).await else { return };
        let ended = table.observe(&leases, Instant::now());
        let is_alive = |lease: &&Lease| !ended.contains(lease);
        let alive = leases.iter().filter(is_alive).map(|lease| {
            let LeaseKey { plugin, endpoint } = lease.key.clone();
            (plugin, endpoint)
        });
        self.upstream.set_registered(alive.collect::<RegisteredEndpoints>());
        for lease in ended {
            // Every replica tries; one of them deletes it.
            if matches!(self.leases.delete(&lease.key, lease.version).await, Ok(true)) {
                log_removed(&lease.key, "lease_ended");
            }
        }
    }

    /// Registers `key`, and returns whether the plugin waits for an operator's approval.
    async fn begin(&self, token: &VerifiedToken, key: &LeaseKey, holder: Uuid) -> Result<bool, Status> {
        let LeaseKey { plugin, endpoint } = key;
        if !config::is_name(plugin) {
            let rule = "must be a letter and up to 63 letters, digits, `_` and `-`".into();
            return Err(host_error::invalid(FieldViolation { field: "plugin".into(), rule }));
        }
        if let Err(refusal) = token.registers(plugin) {
            self.telemetry.record_auth_failure(Port::Host, Uuid::now_v7(), &refusal);
            return Err(error::plugin_not_covered(&refusal));
        }
        check_endpoint(endpoint)?;
        let reach = self.reach();
        // First: a refused registration must not add a plugin.
        if let Some(flaw) = DialPolicy::for_registered(&reach).flaw(endpoint) {
            return Err(error::endpoint_not_permitted(&flaw));
        }
        let entry = self.entry(token, plugin).await?;
        if let Some(flaw) = config::unverified(&entry, endpoint) {
            return Err(error::endpoint_not_permitted(flaw));
        }
        let others = self.leases.read(Some(plugin)).await.map_err(|error| host_error::unavailable(&error))?;
        if others.iter().filter(|lease| lease.key != *key).count() >= MAX_ENDPOINTS {
            return Err(error::too_many_endpoints(plugin));
        }
        self.leases.begin(key, holder).await.map_err(|error| host_error::unavailable(&error))?;
        self.changed.notify_one();
        let author = token.author();
        tracing::info!(
            event = "endpoint.registered",
            plugin,
            endpoint,
            author,
            "a plugin registered an endpoint"
        );
        Ok(awaits_approval(&entry, &reach))
    }

    /// Renews the lease of `key`. Returns whether the plugin waits for an operator's approval.
    async fn renew(&self, key: &LeaseKey, holder: Uuid) -> Result<bool, Status> {
        let contents = self.operations.contents().await.map_err(|error| error::not_written(&error))?;
        let Some(entry) = contents.plugin(&key.plugin).filter(|entry| entry.self_registration) else {
            self.end(key, holder, "plugin_removed").await;
            return Err(error::plugin_removed(&key.plugin));
        };
        self.leases.renew(key, holder).await.map_err(|error| host_error::unavailable(&error))?;
        Ok(awaits_approval(entry, &self.reach()))
    }

    /// Ends the lease of `key`. If that fails, the lease ends by itself.
    async fn end(&self, key: &LeaseKey, holder: Uuid, reason: &'static str) {
        match self.leases.end(key, holder).await {
            Ok(true) => log_removed(key, reason),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "a lease could not be ended"),
        }
        self.changed.notify_one();
    }

    fn reach(&self) -> ApiPluginPolicy {
        self.snapshots.current().config.reach()
    }

    /// The entry of a plugin whose processes register themselves, which is made for an unknown plugin if that is
    /// permitted.
    async fn entry(&self, token: &VerifiedToken, name: &str) -> Result<Arc<config::Plugin>, Status> {
        for _ in 0..2 {
            let newest = self.operations.newest_plugin(name).await;
            match newest.map_err(|error| error::not_written(&error))? {
                Some(entry) if entry.self_registration => return Ok(entry),
                Some(_) => return Err(error::endpoints_configured(name)),
                None if self.reach().self_registration.unknown_plugins == UnknownPlugins::Deny => {
                    return Err(error::unknown_plugin(name));
                }
                None => self.add(token, name).await?,
            }
        }
        Err(error::not_added(name))
    }

    /// Adds the plugin `name` to the registry, unless it is there already.
    async fn add(&self, token: &VerifiedToken, name: &str) -> Result<(), Status> {
        let (reason, upon) = ("the plugin registered itself".to_owned(), None);
        let writer = Writer { author: token.author(), reason, upon };
        let wish = EditAction::Be(json!({ "self_registration": true }));
        let edit = Edit { kind: ObjectKind::Plugin, name: name.to_owned(), expected: Some(0), wish };
        match self.operations.write(&writer, &[edit], None, false).await {
            Ok(_) | Err(OperationError::Refused(EditError::Version { .. })) => Ok(()),
            Err(error) => Err(error::not_written(&error)),
        }
    }
}

/// Verifies the token before the stream begins.
async fn authenticate(
    State(registrar): State<Arc<PluginRegistrar>>,
    mut request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let auth = Arc::clone(&registrar.snapshots.current().auth);
    let verified = auth.authenticate_at(Port::Host, request.headers()).await;
    match verified.and_then(|verified| verified.registers_any().map(|()| verified)) {
        Ok(verified) => {
            request.extensions_mut().insert(verified);
            next.run(request).await
        }
        Err(refusal) => {
            registrar.telemetry.record_auth_failure(Port::Host, Uuid::now_v7(), &refusal);
            error::token_refused(&refusal).into_http()
        }
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), Status> {
    let flaw = if endpoint.len() > MAX_ENDPOINT_BYTES {
        Some(format!("must have at most {MAX_ENDPOINT_BYTES} bytes"))
    } else {
        config::registered_endpoint_flaw(endpoint)
    };
    let invalid = |rule| host_error::invalid(FieldViolation { field: "endpoint".into(), rule });
    flaw.map_or(Ok(()), |rule| Err(invalid(rule)))
}

fn awaits_approval(entry: &config::Plugin, reach: &ApiPluginPolicy) -> bool {
    entry.accepted.is_none() && reach.needs_consent(entry)
}

fn log_removed(LeaseKey { plugin, endpoint }: &LeaseKey, reason: &'static str) {
    tracing::info!(event = "endpoint.removed", plugin, endpoint, reason, "a registered endpoint was removed");
}
