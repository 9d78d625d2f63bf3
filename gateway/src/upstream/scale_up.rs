//! Additional connections to an endpoint: for calls that a connection is too busy for, and for each worker with
//! calls, so that a call stays on its thread.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    net::worker::WorkerId,
    upstream::{
        endpoint::{Endpoint, usable_of},
        ready_connection::ReadyConnection,
    },
};

/// Most connections that the workers make together, if there are fewer workers. Otherwise each makes one.
const MAX_CONNECTIONS: usize = 4;
/// Another connection is made when each existing one carries this many calls. Calls of one connection share system
/// calls. It is less than a plugin's default of 64 calls in flight, and than the 100 that a gRPC server usually takes.
const CALLS_PER_CONNECTION: usize = 48;
/// Minimum delay after an additional connection failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Makes another connection in the background if `live`, the best there is, belongs to another thread or
    /// carries many calls.
    pub(super) fn scale_up(self: &Arc<Self>, live: &Arc<ReadyConnection>) {
        let is_wanted = match live.connection.is_local() {
            true => live.in_flight() >= CALLS_PER_CONNECTION && !live.connection.is_in_process(),
            false => live.note_visit(),
        };
        if !is_wanted {
            return;
        }
        let local = usable_of(&self.lives.load()).filter(|live| live.connection.is_local()).count();
        if local >= most_local() || self.growing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (endpoint, live) = (Arc::clone(self), Arc::clone(live));
        tokio::spawn(async move {
            // Calls already have a connection, so a failure here only shows in the status.
            let grown = match endpoint.connect_unless(|_| None, Some(live)).await {
                Ok(live) if !live.is_initialised() => endpoint.initialise(&live, 0).await.is_ok(),
                grown => grown.is_ok(),
            };
            if !grown {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            endpoint.growing.store(false, Ordering::Release);
        });
    }
}

/// Most connections to one endpoint that this thread makes.
fn most_local() -> usize {
    WorkerId::current().map_or(MAX_CONNECTIONS, |worker| MAX_CONNECTIONS.div_ceil(worker.of.get()))
}
