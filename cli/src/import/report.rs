//! What an import tells: the imported plugins, what is not carried over or works differently, and the next commands.
//! Shows no value of a plugin's `config`.

use serde::Serialize;

use hookgate::config::ForeignDocument;

use crate::output::{columns, indented, printable};

/// What came of a member of the agent's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingKind {
    /// The written files have nothing of it.
    NotCarriedOver,
    /// The gateway does it in another way.
    Different,
    /// Only a person can tell whether it is right.
    ToCheck,
}

impl FindingKind {
    const ALL: [FindingKind; 3] = [FindingKind::NotCarriedOver, FindingKind::Different, FindingKind::ToCheck];

    fn heading(self) -> &'static str {
        match self {
            FindingKind::NotCarriedOver => "Not carried over",
            FindingKind::Different => "Different at the gateway",
            FindingKind::ToCheck => "To check",
        }
    }
}

/// One remark about a member of the agent's file.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) kind: FindingKind,
    /// From 1. Set when the finding is reported.
    line: Option<usize>,
    /// JSON pointer (RFC 6901) into the agent's file.
    pub(super) pointer: String,
    /// What is so, and why.
    message: String,
    /// What to do.
    remedy: String,
}

impl Finding {
    pub(super) fn new(
        kind: FindingKind,
        pointer: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding { kind, line: None, pointer: pointer.into(), message: message.into(), remedy: remedy.into() }
    }
}

/// An imported plugin.
#[derive(Debug, Serialize)]
pub(super) struct PluginRow {
    pub(super) name: String,
    /// JSON pointer into the agent's file.
    pub(super) pointer: String,
    pub(super) runs: &'static str,
    pub(super) priority: i64,
    pub(super) blocking: bool,
    pub(super) enabled: bool,
}

/// The answer of the command.
#[derive(Debug, Serialize)]
pub(super) struct ImportReport {
    /// The agent's file.
    pub(super) source: String,
    /// The written files.
    pub(super) files: Vec<String>,
    pub(super) plugins: Vec<PluginRow>,
    pub(super) findings: Vec<Finding>,
    /// Environment variables that the gateway's file refers to.
    pub(super) variables: Vec<String>,
    /// Commands.
    pub(super) next: Vec<NextCommand>,
}

/// A command to run, and what it is for.
#[derive(Debug, Serialize)]
pub(super) struct NextCommand {
    pub(super) purpose: &'static str,
    pub(super) command: String,
}

impl ImportReport {
    /// Gives findings their lines, in the order of the file.
    pub(super) fn locate(&mut self, document: &ForeignDocument) {
        for finding in &mut self.findings {
            // A remark on the whole file has no line.
            finding.line = document.line(&finding.pointer).filter(|_| !finding.pointer.is_empty());
        }
        self.findings.sort_by_key(|finding| finding.line.unwrap_or(usize::MAX));
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = format!("Imported from {}:\n\n{}", printable(&self.source), self.plugin_table());
        for kind in FindingKind::ALL {
            let findings = self.findings.iter().filter(|finding| finding.kind == kind);
            let lines: String = findings.map(|finding| self.lines_of(finding)).collect();
            if !lines.is_empty() {
                text += &format!("\n{}:\n\n{lines}", kind.heading());
            }
        }
        let files: String = self.files.iter().map(|file| format!("  {}\n", printable(file))).collect();
        text += &format!("\nWritten:\n\n{files}");
        if !self.variables.is_empty() {
            text += &format!("\nSet these variables for the gateway: {}\n", self.variables.join(", "));
        }
        text += "\nNext, the runner and the gateway in terminals of their own:\n";
        for NextCommand { purpose, command } in &self.next {
            text += &format!("\n{purpose}:\n  {command}\n");
        }
        text
    }

    fn plugin_table(&self) -> String {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let mut rows = vec![["PLUGIN", "RUNS", "PRIORITY", "BLOCKING", "ENABLED", "FROM"].map(str::to_owned)];
        rows.extend(self.plugins.iter().map(|plugin| {
            [
                plugin.name.clone(),
                plugin.runs.to_owned(),
                plugin.priority.to_string(),
                yes(plugin.blocking),
                yes(plugin.enabled),
                plugin.pointer.clone(),
            ]
        }));
        columns(&rows)
    }

    fn lines_of(&self, finding: &Finding) -> String {
        let Finding { pointer, message, remedy, .. } = finding;
        let place = match finding.line {
            Some(line) => format!(":{line}: {pointer}"),
            None => String::new(),
        };
        let first = printable(&format!("{}{place}: {message}", self.source));
        format!("{}{}", indented(2, &first), indented(4, &format!("= {}", printable(remedy))))
    }
}
