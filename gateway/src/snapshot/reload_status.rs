//! What became of the configuration file when it was read last: for operators, who may have written a mistake.

use tokio::time::Instant;

/// How the file stands to what is in force.
#[derive(Debug, Clone)]
pub struct ReloadStatus {
    /// When what is in force was taken.
    pub at: Instant,
    /// Why what the file says now is not in force; none: it is.
    pub rejected: Option<RejectedConfig>,
    /// What the newest that was read waits for, as a sentence goes on behind "waits for"; none: for nothing, or not yet for a
    /// second.
    pub waiting_for: Option<String>,
    /// Keys whose values in it are not in use before the process is started again.
    pub restart_required: Vec<&'static str>,
}

/// A file that is not taken. What was in force before it stays.
#[derive(Debug, Clone)]
pub struct RejectedConfig {
    /// When it was found wrong.
    pub at: Instant,
    /// What is wrong with it, each as `hookgate config check` says it; at least one.
    pub problems: Vec<String>,
}

impl ReloadStatus {
    /// Everything is as the file says.
    pub fn now(restart_required: Vec<&'static str>) -> Self {
        ReloadStatus { at: Instant::now(), rejected: None, waiting_for: None, restart_required }
    }

    /// The same, with a file that is refused.
    #[must_use]
    pub fn but(&self, problems: Vec<String>) -> Self {
        ReloadStatus { rejected: Some(RejectedConfig { at: Instant::now(), problems }), ..self.clone() }
    }

    /// The same while this is waited for.
    #[must_use]
    pub fn waiting(&self, waiting_for: Option<String>) -> Self {
        ReloadStatus { waiting_for, ..self.clone() }
    }

    /// The same with a file that is in force.
    #[must_use]
    pub fn whole(&self) -> Self {
        ReloadStatus { rejected: None, ..self.clone() }
    }
}
