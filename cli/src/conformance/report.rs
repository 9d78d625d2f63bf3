//! Renders the results: a line for each check as it ends, or a JSON or JUnit document at the end.

use std::{fmt::Write as _, time::Duration};

use clap::ValueEnum;
use hookgate_proto::plugin::v1::DescribeResponse;
use serde::Serialize;

use crate::{
    Exit,
    conformance::check::{CheckResult, Outcome},
    output::{self, GREEN, RED, YELLOW, printable},
};

/// Output format of the results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// A line for each check.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// A JUnit XML document, for CI.
    Junit,
}

#[derive(Serialize)]
struct ConformanceReport<'a> {
    endpoint: &'a str,
    plugin: Option<PluginIdentity<'a>>,
    passed: usize,
    failed: usize,
    skipped: usize,
    checks: Vec<CheckRow<'a>>,
}

#[derive(Serialize)]
struct PluginIdentity<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct CheckRow<'a> {
    name: &'a str,
    section: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    duration_us: u64,
}

impl<'a> CheckRow<'a> {
    fn new(result: &'a CheckResult) -> Self {
        let (outcome, fault, reason) = match &result.outcome {
            Outcome::Passed => ("ok", None, None),
            Outcome::Failed(fault) => ("failed", Some(fault), None),
            Outcome::Skipped(reason) => ("skipped", None, Some(reason.as_str())),
        };
        CheckRow {
            name: result.name,
            section: place(result),
            outcome,
            expected: fault.map(|fault| fault.expected.as_str()),
            got: fault.map(|fault| fault.got.as_str()),
            fix: fault.map(|fault| fault.fix.as_str()),
            reason,
            duration_us: u64::try_from(result.took.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

fn place(result: &CheckResult) -> String {
    format!("docs/protocol.md#{}", result.section)
}

/// How many checks passed, failed and were skipped.
fn counts(results: &[CheckResult]) -> [usize; 3] {
    let mut counts = [0; 3];
    for result in results {
        counts[match result.outcome {
            Outcome::Passed => 0,
            Outcome::Failed(_) => 1,
            Outcome::Skipped(_) => 2,
        }] += 1;
    }
    counts
}

/// The lines of one check.
pub(super) fn line(result: &CheckResult) -> String {
    let (style, word) = match &result.outcome {
        Outcome::Passed => (GREEN, "ok"),
        Outcome::Failed(_) => (RED, "FAIL"),
        Outcome::Skipped(_) => (YELLOW, "skip"),
    };
    let mut text = format!("{style}{word:4}{style:#}  {:19}{}\n", result.name, place(result));
    match &result.outcome {
        Outcome::Passed => {}
        Outcome::Failed(fault) => {
            for (label, what) in [("expected", &fault.expected), ("got", &fault.got), ("fix", &fault.fix)] {
                let _ = writeln!(text, "      {label:10}{}", printable(what));
            }
        }
        Outcome::Skipped(reason) => {
            let _ = writeln!(text, "      {}", printable(reason));
        }
    }
    text
}

/// Prints the end of the report. As text, the lines of the checks are printed already.
pub(super) fn finish(
    format: ReportFormat,
    endpoint: &str,
    described: Option<&DescribeResponse>,
    results: &[CheckResult],
) -> Exit {
    let [passed, failed, skipped] = counts(results);
    let exit = if failed == 0 { Exit::ok() } else { Exit::already_reported(1) };
    let plugin =
        described.map(|described| PluginIdentity { name: &described.name, version: &described.version });
    match format {
        ReportFormat::Text => {
            let name = plugin.map_or(String::new(), |plugin| {
                format!("{} {}: ", printable(plugin.name), printable(plugin.version))
            });
            let total = results.len();
            output::show(
                &format!("\n{name}{total} checks, {passed} ok, {failed} failed, {skipped} skipped\n"),
                exit,
            )
        }
        ReportFormat::Json => {
            let checks = results.iter().map(CheckRow::new).collect();
            let report = ConformanceReport { endpoint, plugin, passed, failed, skipped, checks };
            output::data(output::Output::Json, &report, String::new, exit)
        }
        ReportFormat::Junit => output::print(&junit(results), exit),
    }
}

/// The de-facto JUnit format, as CI systems read it.
fn junit(results: &[CheckResult]) -> String {
    let ([_, failed, skipped], total) = (counts(results), results.len());
    let time: Duration = results.iter().map(|result| result.took).sum();
    let totals = format!(
        r#"tests="{total}" failures="{failed}" errors="0" skipped="{skipped}" time="{:.3}""#,
        time.as_secs_f64()
    );
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {totals}>\n  <testsuite name=\"hookgate conformance\" {totals}>\n"
    );
    for result in results {
        let row = CheckRow::new(result);
        let head = format!(
            r#"    <testcase name="{}" classname="{}" time="{:.3}""#,
            escaped(row.name),
            escaped(&row.section),
            result.took.as_secs_f64()
        );
        let _ = match &result.outcome {
            Outcome::Passed => writeln!(text, "{head}/>"),
            Outcome::Skipped(reason) => {
                writeln!(text, "{head}>\n      <skipped message=\"{}\"/>\n    </testcase>", escaped(reason))
            }
            Outcome::Failed(fault) => writeln!(
                text,
                "{head}>\n      <failure message=\"{}\">expected: {}\ngot: {}\nfix: {}</failure>\n    </testcase>",
                escaped(&fault.got),
                escaped(&fault.expected),
                escaped(&fault.got),
                escaped(&fault.fix),
            ),
        };
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Text as XML may hold it: without control characters, which XML 1.0 can't even escape.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::check::Fault;

    #[test]
    fn junit_holds_any_text_of_a_plugin() {
        let fault = Fault::new("a & b", "<script>\"\u{0}\u{ffff}\u{1b}]]>", "c");
        let results = [
            CheckResult {
                name: "a",
                section: "x",
                outcome: Outcome::Passed,
                took: Duration::from_millis(1500),
            },
            CheckResult { name: "b", section: "x", outcome: Outcome::Failed(fault), took: Duration::ZERO },
            CheckResult {
                name: "c",
                section: "x",
                outcome: Outcome::Skipped("no".into()),
                took: Duration::ZERO,
            },
        ];
        assert_eq!(
            junit(&results),
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" errors="0" skipped="1" time="1.500">
  <testsuite name="hookgate conformance" tests="3" failures="1" errors="0" skipped="1" time="1.500">
    <testcase name="a" classname="docs/protocol.md#x" time="1.500"/>
    <testcase name="b" classname="docs/protocol.md#x" time="0.000">
      <failure message="&lt;script&gt;&quot; � ]]&gt;">expected: a &amp; b
got: &lt;script&gt;&quot; � ]]&gt;
fix: c</failure>
    </testcase>
    <testcase name="c" classname="docs/protocol.md#x" time="0.000">
      <skipped message="no"/>
    </testcase>
  </testsuite>
</testsuites>
"#
        );
    }
}
