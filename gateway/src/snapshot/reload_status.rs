//! The result of the last reload, for operators.

use tokio::time::Instant;

/// How the current file relates to the active configuration.
#[derive(Debug, Clone)]
pub struct ReloadStatus {
    /// When the active configuration became active.
    pub at: Instant,
    /// Why the current file is not active. `None` if it is.
    pub rejected: Option<RejectedConfig>,
    /// What the latest configuration waits for, completing the phrase "waits for". `None` if it waits for
    /// nothing, or for less than a second.
    pub waiting_for: Option<String>,
    /// Keys whose new values take effect only at a restart.
    pub restart_required: Vec<&'static str>,
}

/// A rejected file. The previous configuration stays active.
#[derive(Debug, Clone)]
pub struct RejectedConfig {
    /// When the file was rejected.
    pub at: Instant,
    /// The problems as `hookgate config check` prints them; at least one.
    pub problems: Vec<String>,
}

impl ReloadStatus {
    /// The file is active.
    pub fn now(restart_required: Vec<&'static str>) -> Self {
        ReloadStatus { at: Instant::now(), rejected: None, waiting_for: None, restart_required }
    }

    /// The same, with a rejected file.
    #[must_use]
    pub fn but(&self, problems: Vec<String>) -> Self {
        ReloadStatus { rejected: Some(RejectedConfig { at: Instant::now(), problems }), ..self.clone() }
    }

    /// The same, waiting for this.
    #[must_use]
    pub fn waiting(&self, waiting_for: Option<String>) -> Self {
        ReloadStatus { waiting_for, ..self.clone() }
    }

    /// The same, with a file that is active.
    #[must_use]
    pub fn whole(&self) -> Self {
        ReloadStatus { rejected: None, ..self.clone() }
    }
}
