//! Reading the configuration again because an operator says so: what SIGHUP does, with an answer.

use tokio::time::{Duration, Instant};

use crate::{
    admin::process_ops::{OperationReason, ReloadReply, Upkeep, Wish, log},
    control::reload_requests::ask,
    core::error::{Code, Error, Violation},
    registry::operations::Invalid,
};

/// How long he waits.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// When the store may be there again.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How it stands after a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadReport {
    /// What came of it.
    pub outcome: ReloadResult,
    /// Of the table in force.
    pub revision: u64,
    /// Why entries of plugins are not in force, one sentence for each.
    pub rejected: Vec<String>,
    /// Keys whose values in the file wait for another start of the process.
    pub restart_required: Vec<&'static str>,
}

/// What came of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// It is in force since now.
    Applied,
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
    pub async fn reload(&self, who: &OperationReason) -> Result<ReloadReport, Error> {
        log(who, "reload", None);
        let came = ask(&self.asks, Wish::Reload, Instant::now() + RELOAD_TIMEOUT).await?;
        let (outcome, rejected) = match came {
            ReloadReply::Settled { changed: true, rejected } => (ReloadResult::Applied, rejected),
            ReloadReply::Settled { changed: false, rejected } => (ReloadResult::Unchanged, rejected),
            ReloadReply::Waiting(what) => (ReloadResult::Waiting(what), Vec::new()),
            ReloadReply::Later(why) => {
                return Err(Error::new(Code::StoreUnavailable, why).retry_after(STORE_RETRY_AFTER));
            }
            ReloadReply::Failed(why) => return Err(Error::new(Code::Internal, why)),
            ReloadReply::Refused(wrong) => return Err(reload_refused(wrong)),
        };
        let revision = self.gateway.snapshots.in_force().invoker.routes().table.revision();
        let restart_required = self.gateway.snapshots.applied().restart_required.clone();
        Ok(ReloadReport { outcome, revision, rejected, restart_required })
    }
}

fn reload_refused(wrong: Vec<Invalid>) -> Error {
    let detail = match wrong.as_slice() {
        [only] => {
            format!("The configuration was rejected, and the previous one stays active: {}", only.message)
        }
        several => {
            format!(
                "The configuration was rejected, and the previous one stays active: {} mistakes",
                several.len()
            )
        }
    };
    let violations = wrong.into_iter().map(|wrong| Violation::new(wrong.pointer, wrong.message)).collect();
    Error { violations, ..Error::new(Code::ConfigInvalid, detail) }
}
