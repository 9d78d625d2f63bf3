//! The signals that end a command.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or Ctrl-C.
pub(crate) async fn terminated() {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut asked) => drop(asked.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}
