//! Reading the configuration again because an operator says so: what SIGHUP does, with an answer.

use tokio::time::{Duration, Instant};

use super::{Came, Reason, Upkeep, Wish, ask::ask, log};
use crate::{
    error::{Code, Error, Violation},
    registry::operations::Invalid,
};

/// How long he waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// When the store may be there again.
const LATER: Duration = Duration::from_secs(1);

/// How it stands after a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// What came of it.
    pub outcome: Outcome,
    /// Of the table in force.
    pub revision: u64,
    /// Why entries of plugins are not in force, one sentence for each.
    pub held_back: Vec<String>,
    /// Keys whose values in the file wait for another start of the process.
    pub at_restart: Vec<&'static str>,
}

/// What came of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in force since now.
    InForce,
    /// It is what was in force.
    Unchanged,
    /// It is right, and waits for this.
    Waiting(String),
}

impl Upkeep {
    /// Has the file read again, and the registry.
    ///
    /// # Errors
    /// CONFIG_INVALID with the places of what is wrong, STORE_UNAVAILABLE, DRAINING. What was in force stays.
    pub async fn reload(&self, who: &Reason) -> Result<Reloaded, Error> {
        log(who, "reload", None);
        let came = ask(&self.asks, Wish::Reload, Instant::now() + PATIENCE).await?;
        let (outcome, held_back) = match came {
            Came::Settled { changed: true, held_back } => (Outcome::InForce, held_back),
            Came::Settled { changed: false, held_back } => (Outcome::Unchanged, held_back),
            Came::Waiting(what) => (Outcome::Waiting(what), Vec::new()),
            Came::Later(why) => return Err(Error::new(Code::StoreUnavailable, why).retry_after(LATER)),
            Came::Failed(why) => return Err(Error::new(Code::Internal, why)),
            Came::Refused(wrong) => return Err(refused(wrong)),
        };
        let revision = self.gateway.in_force().invoker.routes().table.revision();
        let at_restart = self.gateway.applied().at_restart.clone();
        Ok(Reloaded { outcome, revision, held_back, at_restart })
    }
}

fn refused(wrong: Vec<Invalid>) -> Error {
    let detail = match wrong.as_slice() {
        [only] => format!("The configuration is refused, and the one before stays: {}", only.message),
        several => {
            format!("The configuration is refused, and the one before stays: {} mistakes", several.len())
        }
    };
    let violations = wrong.into_iter().map(|wrong| Violation::new(wrong.pointer, wrong.message)).collect();
    Error { violations, ..Error::new(Code::ConfigInvalid, detail) }
}
