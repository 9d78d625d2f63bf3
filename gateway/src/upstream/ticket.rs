//! A call at one endpoint: counted while it lasts, judged when it is known what came of it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    breaker::{Change, Judgement, Pass},
    endpoint::Endpoint,
};

/// Dropped without a judgement, the call said nothing about its endpoint: its caller went away.
pub(super) struct Ticket {
    endpoint: Arc<Endpoint>,
    pass: Option<Pass>,
}

impl Ticket {
    pub(super) fn new(endpoint: Arc<Endpoint>, pass: Pass) -> Self {
        endpoint.load.began();
        Ticket { endpoint, pass: Some(pass) }
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(super) fn judge(mut self, judgement: Judgement) {
        self.settle(judgement);
    }

    fn settle(&mut self, judgement: Judgement) {
        let Some(pass) = self.pass.take() else { return };
        let (endpoint, now) = (&self.endpoint, Instant::now());
        match judgement {
            Judgement::Good => endpoint.load.note(false, now),
            Judgement::Bad => endpoint.load.note(true, now),
            Judgement::Nothing => {}
        }
        let change = endpoint.breaker.judge(pass, judgement, now);
        let (plugin, address) = (&*endpoint.registration.plugin.name, endpoint.address());
        match change {
            None => return,
            Some(Change::Opened(length)) => tracing::warn!(
                event = "plugin.health_fail",
                plugin,
                address,
                reason = "breaker_open",
                "calls to it failed: the next one tries in {length:?}"
            ),
            Some(Change::Closed) => {
                tracing::info!(event = "plugin.connected", plugin, address, "calls to it succeed again");
            }
        }
        endpoint.registration.changed();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle(Judgement::Nothing);
        self.endpoint.load.ended();
    }
}
