//! Keeps an endpoint connected: dials, watches the connection, checks health, and retries.
//!
//! An unreachable endpoint is retried for ever, with a jittered delay that doubles from 100 ms to 5 s. A
//! refused one is retried when its connection has ended, and every 60 s (docs/protocol.md, section 2).

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::select_all;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::upstream::{endpoint::Endpoint, ready_connection::ConnectError, state::Why};

const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// A connection that lasted this long was good: the retry delay starts again at its minimum.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// How often a refused plugin is retried.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Returns when the endpoint is released. A disabled one is never dialled.
pub(super) async fn supervise(endpoint: &Arc<Endpoint>) {
    if endpoint.status.why() == Why::Disabled {
        return;
    }
    tokio::select! {
        () = endpoint.closing.cancelled() => {}
        () = stay_connected(endpoint) => {}
    }
}

async fn stay_connected(endpoint: &Arc<Endpoint>) {
    let mut delay = INITIAL_RETRY_DELAY;
    loop {
        let mut freed = pin!(endpoint.registration.manifests.freed());
        freed.as_mut().enable();
        let refused = match up(endpoint).await {
            Ok((since, closed)) => {
                keep(endpoint).await;
                if since.elapsed() >= STABLE_AFTER {
                    delay = INITIAL_RETRY_DELAY;
                }
                matches!(endpoint.status.why(), Why::Refused(_)).then_some(closed)
            }
            Err(ConnectError::Away(_) | ConnectError::Gone(_)) => None,
            Err(ConnectError::Out(_, _, connection)) => {
                let is_fixed = endpoint.registration.needs_consent();
                let waits = endpoint.status.why() == Why::ManifestMismatch && !is_fixed;
                // The connection is kept: its end signals that another process may be there.
                tokio::select! {
                    () = connection.closed() => {}
                    // No connection with the accepted manifest is left: this one may become the accepted one.
                    () = freed, if waits => continue,
                    () = endpoint.tried.notified() => continue,
                    () = sleep(REFUSED_RETRY_DELAY) => continue,
                }
                None
            }
        };
        if let Some(closed) = refused {
            tokio::select! {
                () = closed.cancelled() => {}
                () = endpoint.tried.notified() => continue,
                () = sleep(REFUSED_RETRY_DELAY) => continue,
            }
        }
        tokio::select! {
            () = endpoint.tried.notified() => continue,
            () = sleep(jittered(delay)) => {}
        }
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

/// Makes a connection that is described, accepted and initialised. Returns when it was made and a token for
/// its end: holding the connection itself would keep it open.
async fn up(endpoint: &Arc<Endpoint>) -> Result<(Instant, CancellationToken), ConnectError> {
    let live = endpoint.dial().await?;
    if !live.is_initialised() {
        endpoint.initialise(&live, 0).await?;
    }
    Ok((live.since, live.connection.ended()))
}

/// Watches the connections until none is left.
async fn keep(endpoint: &Arc<Endpoint>) {
    let interval = endpoint.registration.plugin.health.interval.0;
    let mut check = Instant::now();
    loop {
        let lives = endpoint.usable();
        if lives.is_empty() {
            return endpoint.note_end();
        }
        let ended = select_all(lives.iter().map(|live| Box::pin(live.ended())));
        let is_time = tokio::select! {
            _ = ended => false,
            () = sleep_until(check) => true,
        };
        drop(lives);
        if is_time {
            endpoint.check().await;
            endpoint.renew().await;
            check = Instant::now() + interval;
        } else {
            endpoint.note_end();
        }
    }
}

/// Between half of `delay` and all of it, so that gateways don't dial a plugin in step.
fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::BoxFuture;

    use super::*;
    use crate::{
        telemetry::ServerAttributes,
        upstream::{
            connection::Connection,
            dial_error::{DialError, DialErrorKind},
            registration::Registration,
            tests::support::{registered, shared},
            transport::Transport,
        },
    };

    /// A transport that never connects, and records when it was dialled.
    struct Nobody(Arc<Mutex<Vec<Instant>>>);

    impl Transport for Nobody {
        fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
            self.0.lock().expect("unpoisoned").push(Instant::now());
            Box::pin(std::future::ready(Err(DialError::new(DialErrorKind::NobodyListens, "nobody"))))
        }

        fn address(&self) -> &str {
            "nowhere"
        }
    }

    fn supervised(
        change: impl FnOnce(&mut crate::config::Plugin),
    ) -> (Arc<Endpoint>, Arc<Mutex<Vec<Instant>>>) {
        let (dials, mut plugin) = (Arc::default(), registered("http://nowhere:1".into()));
        change(&mut plugin);
        let endpoint = Endpoint::new(
            Arc::new(Registration::new(plugin, shared())),
            Box::new(Nobody(Arc::clone(&dials))),
            Arc::new(ServerAttributes::new("")),
            Arc::default(),
            CancellationToken::new(),
        );
        let keeper = Arc::clone(&endpoint);
        tokio::spawn(async move { supervise(&keeper).await });
        (endpoint, dials)
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_that_is_not_reached_is_dialled_for_ever_each_time_later_up_to_five_seconds() {
        let (endpoint, dials) = supervised(|_| ());
        sleep(Duration::from_secs(600)).await;
        let dials = dials.lock().expect("unpoisoned").clone();
        let gaps: Vec<_> = dials.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mut longest = 0.1;
        for gap in &gaps {
            assert!(*gap >= longest / 2.0 - 0.002 && *gap <= longest + 0.002, "{gap} of {longest}: {gaps:?}");
            longest = f64::min(longest * 2.0, 5.0);
        }
        assert!(gaps.len() > 110, "{}", gaps.len());
        assert_eq!(endpoint.status.why(), Why::Unreachable(DialErrorKind::NobodyListens));
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_of_a_plugin_that_is_switched_off_is_never_dialled() {
        let (endpoint, dials) = supervised(|plugin| plugin.enabled = false);
        sleep(Duration::from_secs(60)).await;
        assert!(dials.lock().expect("unpoisoned").is_empty());
        assert_eq!(endpoint.status.why(), Why::Disabled);
    }

    #[tokio::test(start_paused = true)]
    async fn retired_endpoint_is_dialled_no_more() {
        let (endpoint, dials) = supervised(|_| ());
        sleep(Duration::from_secs(1)).await;
        endpoint.shut_down(Duration::ZERO).await;
        let before = dials.lock().expect("unpoisoned").len();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(dials.lock().expect("unpoisoned").len(), before);
        assert_eq!(endpoint.status.why(), Why::ShuttingDown);
    }
}
