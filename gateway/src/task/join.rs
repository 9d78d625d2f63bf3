//! Awaits a spawned task and resumes its panic in the caller. For work on a thread that may block, and for work that
//! continues when its caller is gone.

use tokio::task::JoinHandle;

/// Waits for `task`. A panic in the task continues here.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
