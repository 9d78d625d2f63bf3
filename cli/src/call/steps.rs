//! Renders the notices and steps of an answer, which those of points and of hooks have in common.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{client::Answer, output::columns};

/// A plugin's notice.
#[derive(Deserialize)]
pub(crate) struct NoticeBody {
    plugin: Option<String>,
    kind: Option<String>,
    code: Option<String>,
    message: String,
}

/// A step of the chain.
#[derive(Deserialize)]
pub(crate) struct StepBody<'a> {
    plugin: String,
    pub(super) binding: String,
    outcome: String,
    reason: Option<String>,
    /// The code of a block that the binding's mode ignores.
    code: Option<String>,
    duration_us: u64,
    #[serde(borrow)]
    pub(super) changes: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StepsBody<'a> {
    #[serde(default, borrow)]
    steps: Vec<StepBody<'a>>,
}

/// A table of the notices and one of the steps, each after an empty line, as far as there are any.
pub(crate) fn notices_and_steps(notices: &[NoticeBody], steps: &[StepBody<'_>]) -> String {
    let mut text = String::new();
    if !notices.is_empty() {
        text += &format!("\n{}", self::notices(notices));
    }
    if !steps.is_empty() {
        text += &format!("\n{}", self::steps(steps));
    }
    text
}

/// The steps before an error, to print below it; empty if the answer has none.
pub(crate) fn steps_so_far(answer: &Answer) -> String {
    let said = serde_json::from_str::<StepsBody<'_>>(&answer.text);
    let table = said.ok().filter(|said| !said.steps.is_empty()).map(|said| steps(&said.steps));
    table.map_or_else(String::new, |table| format!("\n\n{}", table.trim_end()))
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
