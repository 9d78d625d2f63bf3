//! The demo's output: lines of at most 100 columns, coloured only on a terminal.

use std::{fmt::Display, io::Write, time::Duration};

use super::{
    caller::CallResult,
    model::ModelAnswer,
    script::{CallTransport, ScriptedCall, Verdict},
};
use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, stdout};

/// Indentation of the payload under a call.
const PAYLOAD_INDENT: usize = 9;
/// Longest value that is shown in full, in characters.
const MAX_VALUE_CHARS: usize = 80;

pub(super) fn line(text: impl Display) {
    // Without a reader, the exit code still tells the result.
    let _ = writeln!(stdout(), "{text}");
}

pub(super) fn title(text: &str) {
    line(format_args!("\n{BOLD}{text}{BOLD:#}"));
}

/// Prints the call, its answer, and the resulting payload.
pub(super) fn call(call: &ScriptedCall, told: &CallResult) {
    let via = match call.via {
        CallTransport::Http => "http",
        CallTransport::Grpc => "grpc",
    };
    let point = call.point.as_str();
    let ScriptedCall { tenant, what, .. } = call;
    line(format_args!("{tenant:<7}{point:<19}{via:<5}{what:<19}{}", answer(told)));
    match told.answer.verdict {
        Verdict::Continue => payload(call, told),
        Verdict::Block | Verdict::NoDecision => under("", "", &told.message),
    }
}

/// Prints a request to the model, and its answer.
pub(super) fn model_call(tenant: &str, streams: bool, what: &str, answer: &ModelAnswer) {
    let form = if streams { "stream" } else { "http" };
    let ModelAnswer { status, code, text, calls } = answer;
    let style = if *status == 200 { GREEN } else { RED };
    let code = if code.is_empty() { String::new() } else { format!(" {code}") };
    line(format_args!("{tenant:<7}chat.completions   {form:<7}{what:<19}{style}{status}{style:#}{code}"));
    if !text.is_empty() {
        under("", "->", text);
    }
    for call in calls {
        under("", "calls", call);
    }
}

fn answer(told: &CallResult) -> String {
    let (style, verdict) = match told.answer.verdict {
        Verdict::Continue => (GREEN, "CONTINUE"),
        Verdict::Block => (RED, "BLOCK"),
        Verdict::NoDecision => (YELLOW, "NO DECISION"),
    };
    let mut line = format!("{style}{verdict}{style:#} {}", told.answer.status);
    if !told.answer.code.is_empty() {
        line.push(' ');
        line.push_str(&told.answer.code);
    }
    for (plugin, took) in &told.plugins {
        line += &format!("{DIM} {plugin} {}{DIM:#}", millis(*took));
    }
    line
}

fn payload(call: &ScriptedCall, told: &CallResult) {
    for (field, sent) in &call.sent {
        let got = told.answer.payload.as_ref().and_then(|payload| payload.get(*field));
        match got {
            Some(got) if got == sent => {
                // An unchanged text is not repeated; an unchanged structure is.
                if sent.starts_with('{') {
                    under(field, "as sent", sent);
                }
            }
            Some(got) => {
                under(field, "", sent);
                under("", "->", got);
            }
            None => under(field, "is gone", sent),
        }
    }
}

/// A value below a call: the field's name, a mark, the value.
fn under(field: &str, mark: &str, value: &str) {
    let name = if field.is_empty() { mark } else { field };
    let behind = if field.is_empty() || mark.is_empty() { String::new() } else { format!("  ({mark})") };
    let shown = if value.chars().count() > MAX_VALUE_CHARS {
        value.chars().take(MAX_VALUE_CHARS - 1).chain(['…']).collect()
    } else {
        value.to_owned()
    };
    line(format_args!("{DIM}{name:>PAYLOAD_INDENT$}{DIM:#} {shown}{DIM}{behind}{DIM:#}"));
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
