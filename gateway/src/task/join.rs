//! What a task of its own came to, for whoever waits for it as if it were no task: work that may take its time on a thread
//! that may block, or that goes on though nobody waits any more.

use tokio::task::JoinHandle;

/// Waits for `task`. A panic in it goes on here.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
