//! What the figures were measured on.

use std::{fs, process::Command};

use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::BenchError;

/// The machine, the code and the time of a run.
#[derive(Debug, Serialize)]
pub(crate) struct MachineInfo {
    cores: usize,
    model: String,
    kernel: String,
    date: String,
    /// The git revision of the working directory, if it has one.
    revision: Option<String>,
    /// `release` or `dev`. Figures without optimisation say little.
    profile: &'static str,
}

impl MachineInfo {
    pub(crate) fn collect() -> Result<Self, BenchError> {
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Ok(MachineInfo {
            cores: std::thread::available_parallelism()?.get(),
            model: model.map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned()),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            date: OffsetDateTime::now_utc().format(&Rfc3339)?,
            revision: revision(),
            profile: if cfg!(debug_assertions) { "dev" } else { "release" },
        })
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        let MachineInfo { cores, model, kernel, date, revision, profile } = self;
        let revision = revision.as_deref().unwrap_or("unknown revision");
        format!("{cores} cores of {model}, Linux {kernel}, {date}, {revision}, {profile} profile")
    }
}

fn revision() -> Option<String> {
    let git = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output().ok()?;
    let revision = String::from_utf8(git.stdout).ok()?;
    git.status.success().then(|| revision.trim().to_owned())
}
