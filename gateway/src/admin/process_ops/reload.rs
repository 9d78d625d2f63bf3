//! Reloads the configuration on an operator's request: like SIGHUP, with an answer.

use tokio::time::{Duration, Instant};

use crate::{
    admin::process_ops::{OperationReason, ReloadCommand, ReloadReply, Upkeep, log},
    config::Problems,
    control::reload_requests::ask,
    core::error::{Code, Error, Violation},
    registry::operations::invalid,
};

/// How long the operator waits.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// `Retry-After` when the store is unavailable.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The state after a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadReport {
    pub outcome: ReloadResult,
    /// The revision of the active table.
    pub revision: u64,
    /// Why plugins' entries were rejected, one sentence each.
    pub rejected: Vec<String>,
    /// Keys whose changed values apply only after a restart.
    pub restart_required: Vec<&'static str>,
}

/// What the reload led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// It is now active.
    Applied,
    /// It equals the active configuration.
    Unchanged,
    /// It is valid and waits for this.
    Waiting(String),
}

impl Upkeep {
    /// Reads the file and the registry again.
    ///
    /// # Errors
    /// CONFIG_INVALID with the places of the errors, STORE_UNAVAILABLE, DRAINING. The active configuration
    /// stays.
    pub async fn reload(&self, who: &OperationReason) -> Result<ReloadReport, Error> {
        log(who, "reload", None);
        let came = ask(&self.asks, ReloadCommand::Reload, Instant::now() + RELOAD_TIMEOUT).await?;
        let (outcome, rejected) = match came {
            ReloadReply::Settled { changed: true, rejected } => (ReloadResult::Applied, rejected),
            ReloadReply::Settled { changed: false, rejected } => (ReloadResult::Unchanged, rejected),
            ReloadReply::Waiting(what) => (ReloadResult::Waiting(what), Vec::new()),
            ReloadReply::Later(why) => {
                return Err(Error::new(Code::StoreUnavailable, why).retry_after(STORE_RETRY_AFTER));
            }
            ReloadReply::Failed(why) => return Err(Error::new(Code::Internal, why)),
            ReloadReply::Refused(problems) => return Err(reload_refused(&problems)),
        };
        let revision = self.gateway.snapshots.current().invoker.routes().table.revision();
        let restart_required = self.gateway.snapshots.reload_status().restart_required.clone();
        Ok(ReloadReport { outcome, revision, rejected, restart_required })
    }
}

fn reload_refused(problems: &Problems) -> Error {
    let mut located = problems.iter();
    let what = match (located.next(), problems.count()) {
        (Some(only), 1) => only.sentence(),
        (first, count) => {
            let place = first.map(|first| format!(", the first at {}", first.place)).unwrap_or_default();
            format!("{count} mistakes{place}")
        }
    };
    let detail = format!("The configuration was rejected, and the previous one stays active: {what}");
    let violations = invalid(problems).into_iter().map(|wrong| Violation::new(wrong.pointer, wrong.message));
    Error { violations: violations.collect(), ..Error::new(Code::ConfigInvalid, detail) }
}
