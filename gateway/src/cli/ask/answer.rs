//! What a gateway answered, as it is printed: what it says of a mistake reads the same whoever asked.

use serde_json::Value;

use crate::{
    cli::{
        Exit,
        output::{self, Output, printable},
    },
    error::Code,
};

/// What a gateway answered.
pub(in crate::cli) struct Answer {
    pub(in crate::cli) status: u16,
    /// `hookgate-decision`, which decisions alone have.
    pub(in crate::cli) decision: Option<String>,
    /// The body as it came.
    pub(in crate::cli) text: String,
    /// The body.
    pub(in crate::cli) body: Value,
}

impl Answer {
    /// Prints the answer in the form asked for, JSON as it came, and gives back `exit`.
    pub(in crate::cli) fn print(&self, output: Output, table: impl FnOnce() -> String, exit: Exit) -> Exit {
        match output {
            Output::Json => output::print(&format!("{}\n", self.text.trim_end()), exit),
            Output::Table | Output::Yaml => output::data(output, &self.body, table, exit),
        }
    }

    /// For an answer that is none: `exit` says to people what was wrong, so only programs get the body.
    pub(in crate::cli) fn refuse(&self, output: Output, exit: Exit) -> Exit {
        if output == Output::Table { exit } else { self.print(output, String::new, exit) }
    }

    /// What an error says: its code, who failed, why, and what to do.
    pub(in crate::cli) fn error(&self) -> String {
        let text = |value: &Value| printable(value.as_str().unwrap_or_default());
        let name = text(&self.body["code"]);
        if name.is_empty() {
            return format!(
                "the answer ({}) holds neither a decision nor an error: it is no gateway's",
                self.status
            );
        }
        let code = Code::named(&name);
        let who = code.map_or("gateway", |code| code.party().as_str());
        let mut said = format!("{name} (the {who} failed): {}", text(&self.body["detail"]));
        for wrong in self.body["errors"].as_array().into_iter().flatten() {
            said += &format!("\n  {}: {}", text(&wrong["pointer"]), text(&wrong["message"]));
        }
        if let Some(code) = code {
            said += &format!("\n  = {}", code.remedy());
        }
        said
    }
}
