//! Requests to the reconciler, and its replies.

use tokio::{
    sync::{mpsc, oneshot},
    time::{Duration, Instant, timeout_at},
};

use crate::{
    core::error::{Code, Error},
    registry::operations::Invalid,
};

/// Beyond the time of an ask: for the one who looks at it to say what is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadCommand {
    /// The file is read again, and the registry.
    Reload,
    /// The plugin of this name is asked again whether it takes an entry that it refused.
    Retry(String),
}

/// A wish, and who waits for what comes of it.
#[derive(Debug)]
pub struct ReloadRequest {
    /// What is wanted.
    pub command: ReloadCommand,
    /// Until when it is waited for.
    pub by: Instant,
    answer: oneshot::Sender<ReloadReply>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum ReloadReply {
    /// What was read is in force, but for entries that plugins refuse.
    Settled {
        /// Whether anything is in force now that wasn't before.
        changed: bool,
        /// Why entries are not, one sentence for each.
        rejected: Vec<String>,
    },
    /// It is right, and waits for this.
    Waiting(String),
    /// The store can't be reached.
    Later(String),
    /// It is wrong; what was in force stays.
    Refused(Vec<Invalid>),
    /// It could not be read or put in force, which is our own fault; what was in force stays.
    Failed(String),
}

impl ReloadRequest {
    /// Tells who asked, if he still waits.
    pub fn tell(self, came: ReloadReply) {
        let _ = self.answer.send(came);
    }
}

/// Asks for `wish` and waits until `by` for what comes of it.
///
/// # Errors
/// DRAINING: nobody looks at it any more.
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
