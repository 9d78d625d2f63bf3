//! A gateway's answer and how it is printed, so that an error reads the same in every command.

use serde_json::Value;

use crate::{
    Exit,
    output::{self, Output, printable, text},
};
use hookgate::core::error::Code;

/// A gateway's answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header `hookgate-decision`, which only decisions have.
    pub(crate) decision: Option<String>,
    /// The body, unchanged.
    pub(crate) text: String,
    /// The parsed body.
    pub(crate) body: Value,
}

/// `detail`, with query parameters renamed to the flags of the same name.
fn as_flags(detail: &str) -> String {
    let (mut said, mut rest) = (String::new(), detail);
    while let Some((before, behind)) = rest.split_once("` in the query") {
        let (words, member) = before.rsplit_once('`').unwrap_or((before, ""));
        said += &format!("{words}--{}", member.replace('_', "-"));
        rest = behind;
    }
    said + rest
}

impl Answer {
    /// Prints the answer in the chosen format, JSON unchanged, and returns `exit`.
    pub(crate) fn print(&self, output: Output, table: impl FnOnce() -> String, exit: Exit) -> Exit {
        match output {
            Output::Json => output::print(&format!("{}\n", self.text.trim_end()), exit),
            Output::Table | Output::Yaml => output::data(output, &self.body, table, exit),
        }
    }

    /// Like `print`, for an error: `exit` explains it to people, so only programs get the body.
    pub(crate) fn refuse(&self, output: Output, exit: Exit) -> Exit {
        if output == Output::Table { exit } else { self.print(output, String::new, exit) }
    }

    /// Whether the error is about a flag, which is a query parameter of the API.
    pub(crate) fn is_about_flag(&self) -> bool {
        self.body["detail"].as_str().is_some_and(|detail| as_flags(detail) != detail)
    }

    /// The error as text: code, who failed, why, and what to do.
    pub(crate) fn error(&self) -> String {
        let name = text(&self.body["code"]);
        if name.is_empty() {
            return format!("the answer ({}) is neither a result nor an error of a gateway", self.status);
        }
        let code = Code::from_name(&name);
        let who = code.map_or("gateway", |code| code.party().as_str());
        let detail = text(&self.body["detail"]);
        let mut said = format!("{name} (the {who} failed): {}", as_flags(&detail));
        if let Some(step) = self.failed_step() {
            said += &format!("\n  {step}");
        }
        for wrong in self.body["errors"].as_array().into_iter().flatten() {
            let (pointer, message) = (text(&wrong["pointer"]), text(&wrong["message"]));
            let line = if pointer.is_empty() { message } else { format!("{pointer}: {message}") };
            // The first line may already report the only violation.
            if !detail.ends_with(&line) {
                said += &format!("\n  {line}");
            }
        }
        if let Some(code) = code {
            said += &format!("\n  = {}", code.remedy());
        }
        said
    }

    /// The step that failed: its plugin, its binding, its point or hook, and the reason.
    fn failed_step(&self) -> Option<String> {
        let member = |name: &str| self.body[name].as_str().map(printable);
        let (plugin, binding) = (member("plugin")?, member("binding")?);
        let (site, reason) = (member("point").or_else(|| member("hook"))?, member("reason")?);
        Some(format!("plugin {plugin}, binding {binding}, at {site}: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error_text(body: Value) -> String {
        Answer { status: 400, decision: None, text: body.to_string(), body }.error()
    }

    #[test]
    fn an_error_is_said_once_and_in_the_words_of_the_command_line() {
        let whole = json!({ "code": "CONFLICT", "detail": "It is so", "errors": [{ "pointer": "", "message": "It is so" }] });
        assert_eq!(error_text(whole).lines().count(), 2, "the sentence and the remedy");
        let query = json!({ "code": "PAYLOAD_INVALID", "detail": "`expected_version` in the query must be a whole number" });
        let expected = "PAYLOAD_INVALID (the caller failed): --expected-version must be a whole number\n  = ";
        assert!(error_text(query.clone()).starts_with(expected), "{}", error_text(query));
        let placed = json!({ "code": "CONFIG_INVALID", "detail": "f.yaml:1:3: /a: It is so",
            "errors": [{ "pointer": "/a", "message": "It is so" }] });
        assert_eq!(error_text(placed).lines().count(), 2, "the sentence and the remedy");
        let two = json!({ "code": "PAYLOAD_INVALID", "detail": "There are 2", "errors": [
            { "pointer": "", "message": "One" }, { "pointer": "/a", "message": "Another" },
        ] });
        let step = json!({ "code": "PLUGIN_TIMEOUT", "detail": "Why", "plugin": "a\u{1b}c", "binding": "b",
            "point": "before_response", "reason": "timeout" });
        let expected = "PLUGIN_TIMEOUT (the plugin failed): Why\n  plugin a c, binding b, at before_response: timeout\n  = ";
        assert!(error_text(step.clone()).starts_with(expected), "{}", error_text(step));
        let hook = json!({ "code": "PLUGIN_TIMEOUT", "detail": "Why", "plugin": "a", "binding": "b", "hook": "recall",
            "reason": "timeout" });
        assert!(error_text(hook.clone()).contains("\n  plugin a, binding b, at recall: timeout\n"), "{hook}");
        assert!(
            error_text(two.clone()).contains("There are 2\n  One\n  /a: Another\n  = "),
            "{}",
            error_text(two)
        );
    }
}
