//! What a check is, and how it can end.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::conformance::session::Session;

/// A rule of docs/protocol.md that a plugin keeps or breaks.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// The anchor of the section that demands it.
    pub(super) section: &'static str,
    /// What has to work before.
    pub(super) needs: CheckStage,
    pub(super) run: CheckFunction,
}

type CheckFunction = for<'a> fn(&'a mut Session) -> BoxFuture<'a, CheckVerdict>;

impl Check {
    pub(super) const fn new(
        name: &'static str,
        section: &'static str,
        needs: CheckStage,
        run: CheckFunction,
    ) -> Self {
        Check { name, section, needs, run }
    }
}

/// Sections of docs/protocol.md.
pub(super) mod section {
    pub(in crate::conformance) const PLUGIN: &str = "2-what-a-plugin-implements";
    pub(in crate::conformance) const MANIFEST: &str = "accepting-a-manifest";
    pub(in crate::conformance) const DIGESTS: &str = "configuration-digests";
    pub(in crate::conformance) const CALLS: &str = "rules-for-calls";
    pub(in crate::conformance) const REPLIES: &str = "3-what-a-plugin-answers";
    pub(in crate::conformance) const LIMITS: &str = "6-limits";
    pub(in crate::conformance) const HEALTH: &str = "health-checks";
    pub(in crate::conformance) const HOOKS: &str = "9-lifecycle-hooks";
    pub(in crate::conformance) const TOOLS: &str = "10-tools-of-plugins";
    pub(in crate::conformance) const WINDOWS: &str = "answers-in-windows";
    #[cfg(test)]
    pub(in crate::conformance) const ALL: [&str; 10] =
        [PLUGIN, MANIFEST, DIGESTS, CALLS, REPLIES, LIMITS, HEALTH, HOOKS, TOOLS, WINDOWS];
}

/// How far the plugin got. Later stages include the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckStage {
    Start,
    /// It answered Describe.
    Described,
    /// Its manifest is accepted.
    Accepted,
    /// It has its configuration.
    Initialized,
    /// It answers calls: ordinary ones at points or hooks, or those of its tools if it offers nothing else.
    Usable,
    /// It answers an ordinary call at one point or hook, or more.
    Answering,
}

impl CheckStage {
    /// The check that leads to the stage, for a plugin that offers points, or only hooks, or `only_tools`.
    pub(super) const fn check(self, has_no_points: bool, only_tools: bool) -> &'static str {
        match self {
            CheckStage::Start => "",
            CheckStage::Described => "describe",
            CheckStage::Accepted => "manifest",
            CheckStage::Initialized => "initialize",
            CheckStage::Usable if only_tools => "tools",
            CheckStage::Usable | CheckStage::Answering if has_no_points => "hooks",
            CheckStage::Usable | CheckStage::Answering => "call",
        }
    }
}

pub(super) type CheckVerdict = Result<(), Halt>;

/// Why a check did not pass.
#[derive(Debug)]
pub(super) enum Halt {
    /// The plugin broke the rule.
    Failed(Fault),
    /// The rule can't be checked, for this reason.
    Skipped(String),
    /// The command line is wrong. Ends the run.
    Usage(String),
}

/// A broken rule, for the author of the plugin.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) expected: String,
    pub(super) got: String,
    pub(super) fix: String,
}

impl Fault {
    pub(super) fn new(expected: impl Into<String>, got: impl Into<String>, fix: impl Into<String>) -> Self {
        Fault { expected: expected.into(), got: got.into(), fix: fix.into() }
    }

    /// The same fault, seen after `event`.
    pub(super) fn after(self, event: &str) -> Self {
        Fault { got: format!("{}, after {event}", self.got), ..self }
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Halt::Failed(fault)
    }
}

/// A check that was made.
pub(super) struct CheckResult {
    pub(super) name: &'static str,
    pub(super) section: &'static str,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

pub(super) enum Outcome {
    Passed,
    Failed(Fault),
    Skipped(String),
}
