//! `hookgate tools`: the tools that a tenant's plugins provide, as an agent gets them.

use serde_json::Value;

use crate::{
    Exit,
    client::DataPortArgs,
    output::{Output, columns, text},
};
use hookgate::{config::Span, dataplane::tools::PATH};

pub(super) async fn run(gateway: &DataPortArgs, timeout: Span, output: Output) -> Exit {
    gateway.show(timeout, output, PATH, |said| said["tools"].is_array(), table).await
}

fn table(said: &Value) -> String {
    let tools = said["tools"].as_array().map_or(&[][..], Vec::as_slice);
    if tools.is_empty() {
        return "The tenant's plugins provide no tools.\n".to_owned();
    }
    let mut rows = vec![["NAME", "PLUGIN", "DESCRIPTION"].map(str::to_owned)];
    rows.extend(tools.iter().map(|tool| {
        let plugin = if tool["plugin"].is_string() { text(&tool["plugin"]) } else { "not told".to_owned() };
        [text(&tool["name"]), plugin, first_line(tool["description"].as_str().unwrap_or_default())]
    }));
    columns(&rows)
}

/// The first line of a tool's description.
pub(super) fn first_line(description: &str) -> String {
    description.trim().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_is_cut_after_its_first_line_and_shown_without_control_characters() {
        let description = "\nTells the \u{1b}[31mtime.\nNever wrong.";
        let said = json!({ "tools": [{ "name": "clock", "description": description, "input_schema": {} }] });
        assert_eq!(table(&said), "NAME   PLUGIN    DESCRIPTION\nclock  not told  Tells the  [31mtime.\n");
    }
}
