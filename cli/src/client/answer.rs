//! What a gateway answered, as it is printed: what it says of a mistake reads the same whoever asked.

use serde_json::Value;

use crate::{
    Exit,
    output::{self, Output, printable},
};
use hookgate::core::error::Code;

/// What a gateway answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// `hookgate-decision`, which decisions alone have.
    pub(crate) decision: Option<String>,
    /// The body as it came.
    pub(crate) text: String,
    /// The body.
    pub(crate) body: Value,
}

/// `detail` in the words of the command line, where a member of the query is a flag by the same name.
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
    /// Prints the answer in the form asked for, JSON as it came, and gives back `exit`.
    pub(crate) fn print(&self, output: Output, table: impl FnOnce() -> String, exit: Exit) -> Exit {
        match output {
            Output::Json => output::print(&format!("{}\n", self.text.trim_end()), exit),
            Output::Table | Output::Yaml => output::data(output, &self.body, table, exit),
        }
    }

    /// For an answer that is none: `exit` says to people what was wrong, so only programs get the body.
    pub(crate) fn refuse(&self, output: Output, exit: Exit) -> Exit {
        if output == Output::Table { exit } else { self.print(output, String::new, exit) }
    }

    /// What an error says: its code, who failed, why, and what to do.
    pub(crate) fn error(&self) -> String {
        let text = |value: &Value| printable(value.as_str().unwrap_or_default());
        let name = text(&self.body["code"]);
        if name.is_empty() {
            return format!(
                "the answer ({}) is neither what was asked for nor an error: it is no gateway's",
                self.status
            );
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
            match pointer.as_str() {
                // Of the whole, which the first line says already.
                "" if message == detail => {}
                "" => said += &format!("\n  {message}"),
                pointer => said += &format!("\n  {pointer}: {message}"),
            }
        }
        if let Some(code) = code {
            said += &format!("\n  = {}", code.remedy());
        }
        said
    }

    /// The step that an error names: its plugin, its binding, where and why.
    fn failed_step(&self) -> Option<String> {
        let member = |name: &str| self.body[name].as_str().map(printable);
        let (plugin, binding) = (member("plugin")?, member("binding")?);
        let (point, reason) = (member("point")?, member("reason")?);
        Some(format!("plugin {plugin}, binding {binding}, at {point}: {reason}"))
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
        let two = json!({ "code": "PAYLOAD_INVALID", "detail": "There are 2", "errors": [
            { "pointer": "", "message": "One" }, { "pointer": "/a", "message": "Another" },
        ] });
        let step = json!({ "code": "PLUGIN_TIMEOUT", "detail": "Why", "plugin": "a\u{1b}c", "binding": "b",
            "point": "before_response", "reason": "timeout" });
        let expected = "PLUGIN_TIMEOUT (the plugin failed): Why\n  plugin a c, binding b, at before_response: timeout\n  = ";
        assert!(error_text(step.clone()).starts_with(expected), "{}", error_text(step));
        assert!(
            error_text(two.clone()).contains("There are 2\n  One\n  /a: Another\n  = "),
            "{}",
            error_text(two)
        );
    }
}
