//! Requests to the reconciler, and its replies.

use tokio::{
    sync::{mpsc, oneshot},
    time::{Duration, Instant, timeout_at},
};

use crate::{
    config::Problems,
    core::error::{Code, Error},
};

/// Time beyond the requester's deadline in which the reconciler can still report what it waits for.
const GRACE: Duration = Duration::from_secs(1);

/// What an operator requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadCommand {
    /// Read the file and the registry again.
    Reload,
    /// Try a rejected entry of the plugin with this name again.
    Retry(String),
}

/// A request, and where to send the reply.
#[derive(Debug)]
pub struct ReloadRequest {
    /// The requested operation.
    pub command: ReloadCommand,
    /// When to reply at the latest.
    pub by: Instant,
    answer: oneshot::Sender<ReloadReply>,
}

/// The outcome of a request.
#[derive(Debug, Clone)]
pub enum ReloadReply {
    /// The configuration is active, apart from rejected entries.
    Settled {
        /// Whether the request changed the active configuration.
        changed: bool,
        /// Why entries were rejected, one sentence each.
        rejected: Vec<String>,
    },
    /// The configuration is valid, and waits for this.
    Waiting(String),
    /// The store can't be reached.
    Later(String),
    /// The configuration is invalid; the previous one stays active.
    Refused(Problems),
    /// An internal error; the previous configuration stays active.
    Failed(String),
}

impl ReloadRequest {
    /// Sends the reply, if the requester still waits.
    pub fn tell(self, came: ReloadReply) {
        let _ = self.answer.send(came);
    }
}

/// Sends a request and waits for its outcome until `by`.
///
/// # Errors
/// DRAINING: requests are no longer handled.
pub(crate) async fn ask(
    asks: &mpsc::Sender<ReloadRequest>,
    wish: ReloadCommand,
    by: Instant,
) -> Result<ReloadReply, Error> {
    let draining = || Error::new(Code::Draining, "The gateway is shutting down").retry_after(GRACE);
    let (answer, told) = oneshot::channel();
    let asked = async {
        asks.send(ReloadRequest { command: wish, by, answer }).await.map_err(|_| draining())?;
        told.await.map_err(|_| draining())
    };
    match timeout_at(by + GRACE, asked).await {
        Ok(came) => came,
        Err(_) => Ok(ReloadReply::Waiting("the configuration to be read".to_owned())),
    }
}
