//! What gateways offer to one instance of a plugin, and the tokens for the plugin's own data.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use hookgate_proto::host::v1::{RenewTokenRequest, token_service_client::TokenServiceClient};
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};
use tonic::{Request, metadata::AsciiMetadataValue};

use super::{HostError, HostService, client::bounded};

/// How long the token of Initialize is valid.
const INITIAL_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// When a renewal is tried again after a failure.
const RENEWAL_RETRY: Duration = Duration::from_secs(60);
/// How long a renewal may take.
const MAX_RENEWAL_TIME: Duration = Duration::from_secs(5);

/// What one gateway offers.
pub(crate) struct HostLink {
    gateway: String,
    service: Result<Arc<HostService>, HostError>,
    token: Mutex<Option<PluginToken>>,
    has_failed: AtomicBool,
    runtime: Option<Handle>,
    keeper: Mutex<Option<AbortHandle>>,
}

/// The token for the plugin's own data.
struct PluginToken {
    header: AsciiMetadataValue,
    expires: Instant,
    renew_at: Instant,
}

impl PluginToken {
    /// A token with `life` left is renewed after half of it.
    fn new(token: &str, life: Duration) -> Option<Self> {
        let now = Instant::now();
        let header = bearer(token)?;
        Some(PluginToken { header, expires: now.checked_add(life)?, renew_at: now.checked_add(life / 2)? })
    }
}

/// The header that authorises a call; `None` if there is no token, or no header can carry it.
pub(crate) fn bearer(token: &str) -> Option<AsciiMetadataValue> {
    if token.is_empty() {
        return None;
    }
    let mut header: AsciiMetadataValue = format!("Bearer {token}").parse().ok()?;
    header.set_sensitive(true);
    Some(header)
}

impl HostLink {
    pub(super) fn new(gateway: &str, service: Result<Arc<HostService>, HostError>, token: &str) -> Self {
        HostLink {
            gateway: gateway.to_owned(),
            service,
            token: Mutex::new(PluginToken::new(token, INITIAL_LIFE)),
            has_failed: AtomicBool::new(false),
            runtime: Handle::try_current().ok(),
            keeper: Mutex::new(None),
        }
    }

    /// # Errors
    /// If the gateway offers none, or its endpoint can't be used.
    pub(crate) fn service(&self) -> Result<HostService, HostError> {
        self.service.as_deref().cloned().map_err(Clone::clone)
    }

    /// The header for the plugin's own data; `None` if the gateway sent no token.
    pub(crate) fn token(&self) -> Option<AsciiMetadataValue> {
        self.lock_token().as_ref().map(|token| token.header.clone())
    }

    pub(crate) fn record_success(&self) {
        self.has_failed.store(false, Relaxed);
    }

    /// Other gateways are tried before this one, until it answers again.
    pub(crate) fn record_failure(&self) {
        self.has_failed.store(true, Relaxed);
    }

    fn lock_token(&self) -> MutexGuard<'_, Option<PluginToken>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the token is renewed; `None` if it can't be any more.
    fn renewal_time(&self) -> Option<Instant> {
        let token = self.lock_token();
        token.as_ref().filter(|token| token.renew_at < token.expires).map(|token| token.renew_at)
    }

    /// Renews the token at half of its life, as long as the link exists.
    fn keep_token(self: &Arc<Self>) {
        let (Ok(service), Some(runtime)) = (self.service(), &self.runtime) else { return };
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_some() {
            return;
        }
        let link = Arc::downgrade(self);
        let task = runtime.spawn(async move {
            loop {
                let Some(next) = link.upgrade().and_then(|link| link.renewal_time()) else { return };
                tokio::time::sleep_until(next).await;
                let Some(link) = link.upgrade() else { return };
                link.renew(service.clone()).await;
            }
        });
        *keeper = Some(task.abort_handle());
    }

    async fn renew(&self, service: HostService) {
        let Some(header) = self.token() else { return };
        let mut request = Request::new(RenewTokenRequest {});
        request.metadata_mut().insert("authorization", header);
        let send = |request| async { TokenServiceClient::new(service).renew_token(request).await };
        let answer = bounded(MAX_RENEWAL_TIME, request, send).await;
        let renewed = match &answer {
            Ok(answer) => PluginToken::new(&answer.token, Duration::from_millis(answer.expires_in_ms)),
            Err(status) => {
                tracing::warn!(gateway = self.gateway, %status, "can't renew the token for host services");
                None
            }
        };
        let mut token = self.lock_token();
        match renewed {
            Some(renewed) => *token = Some(renewed),
            None => {
                if let Some(token) = token.as_mut() {
                    token.renew_at = Instant::now() + RENEWAL_RETRY;
                }
            }
        }
    }
}

impl Drop for HostLink {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner) {
            keeper.abort();
        }
    }
}

/// What the gateways that hold an instance offer. A call doesn't say which gateway made it, so any of them may get
/// the plugin's calls; gateways with the same database accept each other's tokens.
#[derive(Default)]
pub(crate) struct HostLinks {
    /// The most recently added one last.
    links: RwLock<VecDeque<Arc<HostLink>>>,
    keeps_tokens: AtomicBool,
}

impl HostLinks {
    /// Adds a link, in place of an earlier one of the same gateway.
    pub(crate) fn add(&self, link: Arc<HostLink>) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        links.retain(|other| other.gateway != link.gateway);
        links.push_back(Arc::clone(&link));
        if self.keeps_tokens.load(Relaxed) {
            link.keep_token();
        }
    }

    /// Removes the link of a gateway, unless it is the last one, which the plugin may need to flush.
    pub(crate) fn remove(&self, gateway: &str) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if links.len() > 1 {
            links.retain(|link| link.gateway != gateway);
        }
    }

    /// The links in the order in which to try them: the newest first, and those that failed last.
    pub(crate) fn candidates(&self) -> Vec<Arc<HostLink>> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        let mut links: Vec<_> = links.iter().rev().cloned().collect();
        links.sort_by_key(|link| link.has_failed.load(Relaxed));
        links
    }

    /// From now on, keeps the tokens for the plugin's own data valid.
    pub(crate) fn keep_tokens(&self) {
        // Under the lock, so that no link is added unnoticed.
        let links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if !self.keeps_tokens.swap(true, Relaxed) {
            links.iter().for_each(HostLink::keep_token);
        }
    }
}
