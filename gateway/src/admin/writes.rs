//! Writes under way, which the end of the process waits for: whoever wrote learns what came of it.

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

/// How long after everything else has ended a writer is told that nobody knows what comes of it. The rest of the last
/// second is for the answer.
const UNKNOWN_RESULT_DELAY: Duration = Duration::from_millis(300);

/// All of one process.
#[derive(Debug, Clone, Default)]
pub struct WriteTracker {
    under_way: TaskTracker,
    /// Cancelled when no more are taken.
    closed: CancellationToken,
}

impl WriteTracker {
    /// One more, as long as what it gives back is held.
    ///
    /// # Errors
    /// DRAINING: no more are taken.
    pub(super) fn begin(&self) -> Result<TaskTrackerToken, Error> {
        // First: whoever closes them looks at those under way afterwards.
        let under_way = self.under_way.token();
        if self.closed.is_cancelled() {
            let detail = "The gateway is shutting down: nothing was written";
            return Err(Error::new(Code::Draining, detail).retry_after(Duration::from_secs(1)));
        }
        Ok(under_way)
    }

    /// No more are taken.
    pub fn close(&self) {
        self.closed.cancel();
        self.under_way.close();
    }

    /// Returns when they are closed and none is under way.
    pub async fn finish(&self) {
        self.under_way.wait().await;
    }
}

/// What comes of `doing`, as long as the process lives; `ended` when everything else is over.
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
