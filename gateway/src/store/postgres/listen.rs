//! Hears of other processes' writes, and starts again when the connection is lost.

use std::{sync::Arc, time::Duration};

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::store::error;

/// What a writer notifies, in its transaction: heard when the write can be seen.
pub(super) const CHANNEL: &str = "hookgate_revision";

/// How long making the connection, or an answer on it, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// After this long without a word, the server is asked whether it is there.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Pauses between attempts double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Ticks `hints` at every notification, and whenever some may have been missed. Never ends by itself.
pub(super) async fn follow(options: PgConnectOptions, place: String, hints: Arc<watch::Sender<u64>>) {
    let options = options.application_name("hookgate");
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER_TIMEOUT).connect_lazy_with(options);
    let mut pause = FIRST_PAUSE;
    loop {
        match timeout(ANSWER_TIMEOUT * 2, subscribe(&pool)).await {
            Ok(Ok(mut listener)) => {
                pause = FIRST_PAUSE;
                // For what was written while nobody listened.
                hints.send_modify(|ticks| *ticks += 1);
                while heard(&mut listener).await {
                    hints.send_modify(|ticks| *ticks += 1);
                }
                tracing::debug!(%place, "the connection for the store's notifications was lost");
            }
            // Whoever follows the store asks it, and says that it is not there.
            Ok(Err(error)) => {
                let error = error::postgres(&place, &error);
                tracing::debug!(%error, "the store's notifications can't be received");
            }
            Err(_) => tracing::debug!(%place, "the store's notifications can't be received"),
        }
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

async fn subscribe(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Waits for a notification. False: the connection is lost.
async fn heard(listener: &mut PgListener) -> bool {
    loop {
        match timeout(KEEPALIVE_INTERVAL, listener.try_recv()).await {
            Ok(Ok(notification)) => return notification.is_some(),
            Ok(Err(_)) => return false,
            Err(_) => {
                let ping = timeout(ANSWER_TIMEOUT, sqlx::query("SELECT 1").execute(&mut *listener)).await;
                if !matches!(ping, Ok(Ok(_))) {
                    return false;
                }
            }
        }
    }
}
