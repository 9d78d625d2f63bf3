//! A call at one endpoint: counted while it runs, judged when its outcome is known.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    breaker::BreakerTransition,
    breakers::{BreakerPermits, CallClass, ScopedTransition},
    endpoint::Endpoint,
};

/// Dropping the guard without a verdict says nothing about the endpoint: the caller went away.
pub(super) struct CallGuard {
    endpoint: Arc<Endpoint>,
    tenant: Arc<str>,
    pass: Option<BreakerPermits>,
}

impl CallGuard {
    pub(super) fn new(endpoint: Arc<Endpoint>, tenant: Arc<str>, pass: BreakerPermits) -> Self {
        endpoint.load.began();
        CallGuard { endpoint, tenant, pass: Some(pass) }
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(super) fn judge(mut self, class: CallClass) {
        self.settle(class);
    }

    fn settle(&mut self, class: CallClass) {
        let Some(pass) = self.pass.take() else { return };
        let (endpoint, tenant, now) = (&self.endpoint, &self.tenant, Instant::now());
        match class {
            CallClass::Success => endpoint.load.note(false, now),
            CallClass::CallFailure | CallClass::NoAnswer | CallClass::ConnectionFailure => {
                endpoint.load.note(true, now)
            }
            CallClass::Unknown => {}
        }
        let change = endpoint.breakers.judge(pass, tenant, class, now);
        // One tenant's breaker doesn't change the plugin's status.
        if matches!(change, Some(ScopedTransition::ForAll(_))) {
            endpoint.registration.changed();
        }
        let (plugin, address) = (&*endpoint.registration.plugin.name, endpoint.address());
        let (event, reason) = ("plugin.health_failed", "breaker_open");
        match change {
            None => {}
            Some(ScopedTransition::ForAll(BreakerTransition::Opened(length))) => {
                tracing::warn!(
                    event,
                    plugin,
                    address,
                    reason,
                    "calls to it failed: the next one tries in {length:?}"
                );
            }
            Some(ScopedTransition::ForTenant(BreakerTransition::Opened(length))) => tracing::warn!(
                event = "plugin.breaker_opened",
                plugin,
                address,
                reason,
                tenant = &**tenant,
                "calls of the tenant to it failed: the tenant's next one tries in {length:?}"
            ),
            Some(ScopedTransition::ForAll(BreakerTransition::Closed)) => {
                tracing::info!(event = "plugin.connected", plugin, address, "calls to it succeed again");
            }
            Some(ScopedTransition::ForTenant(BreakerTransition::Closed)) => tracing::info!(
                event = "plugin.breaker_closed",
                plugin,
                address,
                tenant = &**tenant,
                "calls of the tenant to it succeed again"
            ),
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.settle(CallClass::Unknown);
        self.endpoint.load.ended();
    }
}
