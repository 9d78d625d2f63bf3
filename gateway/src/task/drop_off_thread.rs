//! Drops large values on a blocking thread: freeing tens of thousands of objects must not delay a call or a worker of the
//! runtime.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};

/// How often [`drop_after_last_use`] looks whether it holds the last reference.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Drops `value` on a blocking thread once nothing else holds it.
pub(crate) fn drop_after_last_use<T: Send + Sync + 'static>(value: Arc<T>) {
    tokio::spawn(async move {
        // Only this task hands out further references, and it does not.
        while Arc::strong_count(&value) > 1 {
            sleep(POLL_INTERVAL).await;
        }
        drop_off_thread(value);
    });
}

/// Drops `value`, or this reference to it, on a blocking thread.
pub(crate) fn drop_off_thread<T: Send + Sync + 'static>(value: Arc<T>) {
    // Not waited for: it has no result.
    drop(spawn_blocking(move || drop(value)));
}
