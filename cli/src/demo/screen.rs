//! The demo's output: lines of at most 100 columns, coloured only on a terminal.

use std::{
    fmt::Display,
    io::{self, Write},
    time::Duration,
};

use super::{
    caller::CallResult,
    script::{CallTransport, ScriptedCall, Verdict},
};
use crate::paint::{Paint, TextStyle};

/// Indentation of the payload under a call.
const PAYLOAD_INDENT: usize = 9;
/// Longest value that is shown in full, in characters.
const MAX_VALUE_CHARS: usize = 80;

pub(super) struct Screen {
    paint: Paint,
}

impl Screen {
    pub(super) fn new() -> Self {
        Screen { paint: Paint::for_stdout() }
    }

    pub(super) fn line(&self, text: impl Display) {
        // Without a reader, the exit code still tells the result.
        let _ = writeln!(io::stdout(), "{text}");
    }

    pub(super) fn title(&self, text: &str) {
        self.line(format_args!("\n{}", self.styled(TextStyle::Bold, text)));
    }

    /// Prints the call, its answer, and the resulting payload.
    pub(super) fn call(&self, call: &ScriptedCall, told: &CallResult) {
        let via = match call.via {
            CallTransport::Http => "http",
            CallTransport::Grpc => "grpc",
        };
        let point = call.point.as_str();
        let ScriptedCall { tenant, what, .. } = call;
        self.line(format_args!("{tenant:<7}{point:<19}{via:<5}{what:<19}{}", self.answer(told)));
        match told.answer.verdict {
            Verdict::Continue => self.payload(call, told),
            Verdict::Block | Verdict::NoDecision => self.under("", "", &told.message),
        }
    }

    fn answer(&self, told: &CallResult) -> String {
        let (style, verdict) = match told.answer.verdict {
            Verdict::Continue => (TextStyle::Green, "CONTINUE"),
            Verdict::Block => (TextStyle::Red, "BLOCK"),
            Verdict::NoDecision => (TextStyle::Yellow, "NO DECISION"),
        };
        let mut line = format!("{} {}", self.styled(style, verdict), told.answer.status);
        if !told.answer.code.is_empty() {
            line.push(' ');
            line.push_str(&told.answer.code);
        }
        for (plugin, took) in &told.plugins {
            let shown = format!(" {plugin} {}", millis(*took));
            line.push_str(&self.styled(TextStyle::Dim, &shown));
        }
        line
    }

    fn payload(&self, call: &ScriptedCall, told: &CallResult) {
        for (field, sent) in &call.sent {
            let got = told.answer.payload.as_ref().and_then(|payload| payload.get(*field));
            match got {
                Some(got) if got == sent => {
                    // An unchanged text is not repeated; an unchanged structure is.
                    if sent.starts_with('{') {
                        self.under(field, "as sent", sent);
                    }
                }
                Some(got) => {
                    self.under(field, "", sent);
                    self.under("", "->", got);
                }
                None => self.under(field, "is gone", sent),
            }
        }
    }

    /// A value below a call: the field's name, a mark, the value.
    fn under(&self, field: &str, mark: &str, value: &str) {
        let name = if field.is_empty() { mark } else { field };
        let behind = if field.is_empty() || mark.is_empty() { String::new() } else { format!("  ({mark})") };
        let shown = if value.chars().count() > MAX_VALUE_CHARS {
            value.chars().take(MAX_VALUE_CHARS - 1).chain(['…']).collect()
        } else {
            value.to_owned()
        };
        let name = self.styled(TextStyle::Dim, &format!("{name:>PAYLOAD_INDENT$}"));
        self.line(format_args!("{name} {shown}{}", self.styled(TextStyle::Dim, &behind)));
    }

    fn styled(&self, style: TextStyle, text: &str) -> String {
        self.paint.styled(style, text)
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
