//! From the signal to the exit (docs/protocol.md, section 6, drain): readiness off, some more service, GOAWAY, calls
//! given up, observers and Shutdown.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::{
    signal::unix::{SignalKind, signal as listen},
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::Lifecycle;
use crate::{config::Config, ingress::call::Gateway, upstream::PluginClient};

/// After the calls are given up: for observers, Shutdown and the last answers.
const LAST: Duration = Duration::from_secs(4);
/// The part of it for telemetry, after everything else.
pub const TELEMETRY: Duration = Duration::from_secs(1);
/// The part of it for the answers to calls that were given up.
const ANSWERS: Duration = Duration::from_millis(500);
/// The part of it for what observers have not seen yet.
const OBSERVERS: Duration = Duration::from_millis(1500);

/// The requests to end the process, SIGTERM or Ctrl-C, that nobody has taken yet. It listens from when it is made, so
/// that none is lost between two who wait.
pub(super) struct Signals(Arc<Semaphore>);

impl Signals {
    pub(super) fn listen() -> Self {
        let asked = Arc::new(Semaphore::new(0));
        match (listen(SignalKind::terminate()), listen(SignalKind::interrupt())) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                let asked = Arc::clone(&asked);
                tokio::spawn(async move {
                    loop {
                        tokio::select! {
                            _ = terminate.recv() => {}
                            _ = interrupt.recv() => {}
                        }
                        asked.add_permits(1);
                    }
                });
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "signals can't be listened for: end the process by SIGKILL");
            }
        }
        Signals(asked)
    }

    /// Takes the next one.
    pub(super) async fn next(&self) {
        self.0.acquire().await.expect("the semaphore is never closed").forget();
    }
}

/// Drains; returns when nothing is left to do or its time is over.
pub(super) async fn run(
    config: &Config,
    gateway: &Gateway,
    clients: &[Arc<PluginClient>],
    lifecycle: &Lifecycle,
    health: &HealthReporter,
) {
    tracing::info!("draining");
    lifecycle.draining.cancel();
    health.set_service_status("", ServingStatus::NotServing).await;
    sleep(config.drain.grace.0).await;

    lifecycle.goaway.cancel();
    lifecycle.connections.close();
    let end = Instant::now() + config.drain.finish.0 + LAST - TELEMETRY;
    if timeout(config.drain.finish.0, lifecycle.connections.wait()).await.is_err() {
        gateway.abort.cancel();
        let unfinished = timeout(ANSWERS, lifecycle.connections.wait()).await.is_err();
        tracing::warn!(unfinished, "calls under way were given up");
    }

    let given_up: u64 =
        join_all(clients.iter().map(|client| client.drain(OBSERVERS))).await.into_iter().sum();
    if given_up > 0 {
        tracing::warn!(given_up, "observers did not see every call");
    }
    shut_down(clients, end).await;
    tracing::info!("drained");
}

/// Lets go of the plugins that a start that came to nothing had initialised.
pub(super) async fn let_go(clients: &[Arc<PluginClient>]) {
    shut_down(clients, Instant::now() + LAST).await;
}

/// Tells the plugins by `end`, in the reverse order of their initialisation.
async fn shut_down(clients: &[Arc<PluginClient>], end: Instant) {
    let mut initialised: Vec<_> =
        clients.iter().filter_map(|client| Some((client.initialised_at()?, client))).collect();
    initialised.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (_, client) in initialised {
        client.shutdown(end.saturating_duration_since(Instant::now())).await;
    }
}
