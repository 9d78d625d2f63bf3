//! Keeps a plugin connected: dials, watches the connection, and tries again. Unreachable is retried for ever,
//! 100 ms doubling to 5 s with jitter; refused is retried when the connection has ended, and every 60 s
//! (docs/protocol.md, section 2).

use std::{sync::Arc, time::Duration};

use super::{
    endpoint::{Down, Endpoint, Live},
    state::Why,
};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// A connection that held for so long was a good one: the next delay is the first again.
const STABLE: Duration = Duration::from_secs(5);
/// How often a refused plugin is asked again.
const REFUSED_RETRY: Duration = Duration::from_secs(60);

/// Never returns, except that a plugin that is switched off is never dialled.
pub(super) async fn supervise(endpoint: &Arc<Endpoint>) {
    if endpoint.status.why() == Why::SwitchedOff {
        return;
    }
    let mut delay = FIRST_DELAY;
    loop {
        let refused = match up(endpoint).await {
            Ok(live) => {
                live.ended().await;
                endpoint.note_end(&live);
                if live.since.elapsed() >= STABLE {
                    delay = FIRST_DELAY;
                }
                matches!(endpoint.status.why(), Why::Refused(_)).then(|| Arc::clone(&live.connection))
            }
            Err(Down::Away(_)) => None,
            Err(Down::Out(_, connection)) => Some(connection),
        };
        if let Some(connection) = refused
            && tokio::time::timeout(REFUSED_RETRY, connection.closed()).await.is_err()
        {
            continue;
        }
        tokio::time::sleep(jittered(delay)).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

/// A connection to a plugin that was described, accepted and initialised.
async fn up(endpoint: &Arc<Endpoint>) -> Result<Arc<Live>, Down> {
    let live = endpoint.dial().await?;
    if !live.is_initialised() {
        endpoint.initialise(&live, 0).await?;
    }
    Ok(live)
}

/// Half to the whole of `delay`, so that gateways don't dial a plugin in step.
fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(0.5 + fastrand::f64() / 2.0)
}
