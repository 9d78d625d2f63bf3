//! Renders a decision for people: the verdict, the payload to continue with, and the plugins' steps.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    call::steps::{NoticeBody, StepBody, notices_and_steps},
    client::Answer,
    output::{BOLD, DIM, GREEN, RED, printable},
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
    text += &notices_and_steps(&said.notices, &said.steps);
    if trace {
        text += &format!("\n{}", traced(&said.steps, sent));
    }
    text
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
