//! Tracks writes in flight, so that a shutdown waits for them and each writer learns the result.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    core::error::{Code, Error},
    registry::{RegistryError, operations::OperationError},
};

/// How long after the rest of the process has ended a waiting writer is told that the result is unknown.
/// What remains of the last second is for sending the answer.
const UNKNOWN_RESULT_DELAY: Duration = Duration::from_millis(300);

/// The writes in flight of one process.
#[derive(Debug, Clone, Default)]
pub struct WriteTracker {
    under_way: TaskTracker,
    /// Cancelled when no more writes are accepted.
    closed: CancellationToken,
}

impl WriteTracker {
    /// Registers a write, until the returned token is dropped.
    ///
    /// # Errors
    /// DRAINING if no more writes are accepted.
    pub(super) fn begin(&self) -> Result<TaskTrackerToken, Error> {
        // Take the token before the check: `close` looks at the tracker after it cancels.
        let under_way = self.under_way.token();
        if self.closed.is_cancelled() {
            let detail = "The gateway is shutting down: nothing was written";
            return Err(Error::new(Code::Draining, detail).retry_after(Duration::from_secs(1)));
        }
        Ok(under_way)
    }

    /// Stops accepting writes.
    pub fn close(&self) {
        self.closed.cancel();
        self.under_way.close();
    }

    /// Waits until the tracker is closed and no write is in flight.
    pub async fn finish(&self) {
        self.under_way.wait().await;
    }
}

/// Waits for `doing`, but gives up shortly after `ended` with an "unknown result" error.
pub(super) async fn until_the_end<T>(
    ended: &CancellationToken,
    doing: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    let given_up = async {
        ended.cancelled().await;
        sleep(UNKNOWN_RESULT_DELAY).await;
    };
    tokio::select! {
        biased;
        done = doing => done,
        () = given_up => {
            let why = "the gateway shuts down before the store has answered, so the result of the write is unknown";
            Err(OperationError::Registry(RegistryError::Unknown(why.to_owned())))
        }
    }
}
