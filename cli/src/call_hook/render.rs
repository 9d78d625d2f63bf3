//! Renders the result of a hook for people: the contributions, the notices, and the plugins' steps.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    call::steps::{NoticeBody, StepBody, notices_and_steps},
    client::Answer,
    output::{GREEN, YELLOW, clipped, columns, printable},
};

/// The members of an answer that are shown.
#[derive(Deserialize)]
pub(super) struct HookResult<'a> {
    #[serde(borrow)]
    contributions: Vec<ContributionBody<'a>>,
    #[serde(default)]
    notices: Vec<NoticeBody>,
    #[serde(default, borrow)]
    steps: Vec<StepBody<'a>>,
    request_id: String,
}

#[derive(Deserialize)]
struct ContributionBody<'a> {
    /// Absent with `answer.detail: minimal`.
    plugin: Option<String>,
    kind: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

impl<'a> HookResult<'a> {
    /// # Errors
    /// There is no result: the gateway answered an error, or something that no gateway answers at a hook.
    pub(super) fn from_answer(answer: &'a Answer) -> Result<Self, String> {
        match (answer.status, &answer.decision, serde_json::from_str(&answer.text)) {
            // A decision is the answer at a point, so it is none here, whatever else there is.
            (200, None, Ok(result)) => Ok(result),
            _ => Err(answer.error()),
        }
    }

    pub(super) fn table(&self) -> String {
        let id = printable(&self.request_id);
        let mut text = match self.contributions.len() {
            0 => format!("{YELLOW}NOTHING{YELLOW:#}  no plugin contributed  ({id})\n"),
            1 => format!("{GREEN}CONTRIBUTED{GREEN:#}  1 contribution  ({id})\n"),
            count => format!("{GREEN}CONTRIBUTED{GREEN:#}  {count} contributions  ({id})\n"),
        };
        if !self.contributions.is_empty() {
            text += &format!("\n{}", contributions(&self.contributions));
        }
        text + &notices_and_steps(&self.notices, &self.steps)
    }
}

fn contributions(contributions: &[ContributionBody<'_>]) -> String {
    let mut rows = vec![["PLUGIN", "KIND", "VALUE"].map(str::to_owned)];
    rows.extend(contributions.iter().map(|one| {
        // The last column is not cut by itself, and a value may be as large as a request.
        [one.plugin.clone().unwrap_or_default(), one.kind.clone(), clipped(one.value.get())]
    }));
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, decision: Option<&str>, text: &str) -> Answer {
        let body = serde_json::from_str(text).expect("it is JSON");
        Answer { status, decision: decision.map(str::to_owned), text: text.to_owned(), body }
    }

    const NOTHING: &str = r#"{"contributions":[],"notices":[],"steps":[],"request_id":"r"}"#;

    #[test]
    fn only_an_answer_with_contributions_and_without_a_decision_is_a_result() {
        assert!(HookResult::from_answer(&answer(200, None, NOTHING)).is_ok());
        for (status, decision, text) in [
            (200, Some("continue"), NOTHING),
            (201, None, NOTHING),
            (200, None, "{}"),
            (200, None, r#"{"contributions":[{"kind":"memory"}],"request_id":"r"}"#),
            (200, None, r#"{"contributions":[],"contributions":[],"request_id":"r"}"#),
            (503, None, r#"{"code":"PLUGIN_UNAVAILABLE","detail":"Why"}"#),
        ] {
            assert!(HookResult::from_answer(&answer(status, decision, text)).is_err(), "{status} {text}");
        }
    }

    #[test]
    fn long_values_are_cut_and_control_characters_are_blanked_out() {
        let value = json!({ "content": "é".repeat(100_000) });
        let contributions = json!([
            { "plugin": "a\u{1b}", "kind": "memory", "value": value },
            { "kind": "event", "value": 7 },
        ]);
        let text = json!({ "contributions": contributions, "request_id": "r" }).to_string();
        let table = HookResult::from_answer(&answer(200, None, &text)).expect("a result").table();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].ends_with("  2 contributions  (r)"), "{table}");
        assert_eq!(lines[2], "PLUGIN  KIND    VALUE");
        assert!(
            lines[3].starts_with("a       memory  {\"content\":\"éé") && lines[3].ends_with('…'),
            "{table}"
        );
        assert!(lines[3].chars().count() < 300);
        assert_eq!(lines[4], "        event   7");
    }
}
