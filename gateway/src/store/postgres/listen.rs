//! Listens for other processes' writes, and reconnects when the connection is lost.

use std::{sync::Arc, time::Duration};

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::store::error;

/// The channel that a writer notifies in its transaction. Listeners hear of it once the write is visible.
pub(super) const CHANNEL: &str = "hookgate_revision";

/// Timeout for connecting, and for each response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// After this long without a notification, the server is pinged.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The delay between attempts doubles from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Increments `hints` at every notification, and whenever one may have been missed. Runs until it is dropped.
pub(super) async fn follow(options: PgConnectOptions, place: String, hints: Arc<watch::Sender<u64>>) {
    let options = options.application_name("hookgate");
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER_TIMEOUT).connect_lazy_with(options);
    let mut pause = FIRST_PAUSE;
    loop {
        match timeout(ANSWER_TIMEOUT * 2, subscribe(&pool)).await {
            Ok(Ok(mut listener)) => {
                pause = FIRST_PAUSE;
                // Writes may have been missed while the connection was lost.
                hints.send_modify(|ticks| *ticks += 1);
                while heard(&mut listener).await {
                    hints.send_modify(|ticks| *ticks += 1);
                }
                tracing::debug!(%place, "the connection for the store's notifications was lost");
            }
            // The followers of the store query it, and report that it is unreachable.
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

/// Waits for a notification. Returns false if the connection is lost.
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
