//! Renders a decision for people: the verdict, the payload to continue with, and the plugins' steps.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    client::Answer,
    output::{BOLD, DIM, GREEN, RED, columns, printable},
    payload_diff::Members,
};

/// The members of an answer that are shown.
#[derive(Deserialize)]
struct DecisionBody<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    modified: bool,
    block: Option<BlockBody>,
    /// The tool's result, at an answer.
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    decision: Option<String>,
    #[serde(default)]
    notices: Vec<NoticeBody>,
    #[serde(default, borrow)]
    steps: Vec<StepBody<'a>>,
    #[serde(default)]
    request_id: String,
}

#[derive(Deserialize)]
struct BlockBody {
    plugin: Option<String>,
    binding: Option<String>,
    code: String,
    message: String,
    retry_after_ms: Option<u64>,
    scope: Option<String>,
}

#[derive(Deserialize)]
struct NoticeBody {
    plugin: Option<String>,
    kind: Option<String>,
    code: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct StepBody<'a> {
    plugin: String,
    binding: String,
    outcome: String,
    reason: Option<String>,
    /// The code of a block that the binding's mode ignores.
    code: Option<String>,
    duration_us: u64,
    #[serde(borrow)]
    changes: Option<&'a RawValue>,
}

/// Renders the answer to a call with the payload `sent`; `trace` adds the changes of each step.
pub(super) fn table(answer: &Answer, sent: &[u8], trace: bool) -> String {
    let said: DecisionBody<'_> = match serde_json::from_str(&answer.text) {
        Ok(said) => said,
        Err(_) => return format!("{}\n", printable(&answer.text)), // a gateway of another version
    };
    let mut text = decision(&said);
    if let Some(payload) = said.payload {
        text += &format!("\npayload\n{}", Members::parse(payload.get()).lines());
    }
    if !said.notices.is_empty() {
        text += &format!("\n{}", notices(&said.notices));
    }
    if !said.steps.is_empty() {
        text += &format!("\n{}", steps(&said.steps));
    }
    if trace {
        text += &format!("\n{}", traced(&said.steps, sent));
    }
    text
}

/// The steps before an error, to print below it; empty if the answer has none.
pub(super) fn steps_so_far(answer: &Answer) -> String {
    let said = serde_json::from_str::<DecisionBody<'_>>(&answer.text);
    let table = said.ok().filter(|said| !said.steps.is_empty()).map(|said| steps(&said.steps));
    table.map_or_else(String::new, |table| format!("\n\n{}", table.trim_end()))
}

fn decision(said: &DecisionBody<'_>) -> String {
    if said.decision.as_deref() == Some("answer") {
        let result = printable(said.result.map_or("null", RawValue::get));
        let id = printable(&said.request_id);
        return format!("{GREEN}ANSWER{GREEN:#}  a plugin gave the result  ({id})\n\nresult\n{result}\n");
    }
    let Some(block) = &said.block else {
        let changed = if said.modified { "the payload was changed" } else { "the payload is unchanged" };
        return format!("{GREEN}CONTINUE{GREEN:#}  {changed}  ({})\n", printable(&said.request_id));
    };
    let (code, message) = (printable(&block.code), printable(&block.message));
    let mut facts = Vec::new();
    facts.extend(block.plugin.as_ref().map(|plugin| format!("by {}", printable(plugin))));
    facts.extend(block.binding.as_ref().map(|binding| format!("binding {}", printable(binding))));
    facts.extend(block.scope.as_ref().map(|scope| format!("scope {}", printable(scope))));
    facts.extend(block.retry_after_ms.map(|millis| format!("retry after {millis} ms")));
    let (id, facts) = (printable(&said.request_id), facts.join(", "));
    format!("{RED}BLOCK{RED:#}  {code}: {message}  ({id})\n{facts}\n")
}

fn notices(notices: &[NoticeBody]) -> String {
    let mut rows = vec![["NOTICE", "PLUGIN", "CODE", "MESSAGE"].map(str::to_owned)];
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    rows.extend(notices.iter().map(|notice| {
        [text(&notice.kind), text(&notice.plugin), text(&notice.code), notice.message.clone()]
    }));
    columns(&rows)
}

fn steps(steps: &[StepBody<'_>]) -> String {
    let mut rows = vec![["STEP", "PLUGIN", "BINDING", "OUTCOME", "REASON", "TIME"].map(str::to_owned)];
    rows.extend(steps.iter().enumerate().map(|(at, step)| {
        let reason = step.reason.as_ref().or(step.code.as_ref()).cloned().unwrap_or_default();
        let place = (at + 1).to_string();
        [
            place,
            step.plugin.clone(),
            step.binding.clone(),
            step.outcome.clone(),
            reason,
            millis(step.duration_us),
        ]
    }));
    columns(&rows)
}

/// Microseconds as milliseconds; empty for a step that was not called.
fn millis(micros: u64) -> String {
    if micros == 0 { String::new() } else { format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100) }
}

fn traced(steps: &[StepBody<'_>], sent: &[u8]) -> String {
    if steps.is_empty() {
        return "trace: the answer has no steps: none ran, or `answer.detail` is `minimal`\n".into();
    }
    let mut payload = Members::parse(&String::from_utf8_lossy(sent));
    let mut text = String::from("trace\n");
    for (at, step) in steps.iter().enumerate() {
        let place = printable(&format!("  {} {}", at + 1, step.binding));
        match step.changes {
            Some(changes) => {
                text += &format!("{BOLD}{place}{BOLD:#}\n{}", payload.change(changes.get()));
            }
            None => text += &format!("{place}  {DIM}changed nothing{DIM:#}\n"),
        }
    }
    text
}
