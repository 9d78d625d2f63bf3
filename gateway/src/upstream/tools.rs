//! Checks the tools in the answer to Initialize (docs/protocol.md, section 10).

use std::sync::Arc;

use hookgate_proto::{MAX_TOOLS_BYTES, check_tools, types::v1::Tool};
use serde_json::Value;

use crate::{
    core::tool::{ToolNames, Tools},
    json,
};

/// Largest answer to Initialize. Small ones too, decoded, take many times their size.
pub(super) const MAX_ANSWER_BYTES: usize = MAX_TOOLS_BYTES + (4 << 10);

/// The tools of a plugin whose manifest has the names `names`.
///
/// # Errors
/// What to change, without the plugin's text except for names.
pub(super) fn check(names: &ToolNames, mut tools: Vec<Tool>) -> Result<Tools, String> {
    check_tools(&tools)?;
    for Tool { name, input_schema, .. } in &tools {
        if !names.contains(name) {
            return Err(format!(
                "no glob in `tools` of the answer to Describe covers `{name}`: add one, or rename the tool"
            ));
        }
        check_schema(input_schema).map_err(|fault| {
            format!("the `input_schema` of `{name}` {fault}: send a JSON Schema with \"type\": \"object\"")
        })?;
    }
    // The order doesn't matter, and a plugin's may vary.
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tools.into_iter().map(Arc::new).collect())
}

fn check_schema(schema: &[u8]) -> Result<(), &'static str> {
    // Also bounds the depth, which every reader of the list would have to bear.
    json::scan(schema, json::MAX_DEPTH).map_err(|_| "is not JSON")?;
    let schema: Value = serde_json::from_slice(schema).map_err(|_| "is not JSON")?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("is not for objects");
    }
    // No resolver is compiled in: a reference to another document is an error here, never a request.
    jsonschema::validator_for(&schema).map(drop).map_err(|_| "does not compile")
}

#[cfg(test)]
mod tests {
    use hookgate_proto::types::v1::ToolAnnotations;

    use super::*;

    fn tool(name: &str) -> Tool {
        Tool {
            name: name.into(),
            description: "Stores a fact".into(),
            input_schema: r#"{"type":"object"}"#.into(),
            annotations: None,
        }
    }

    fn checked(tools: Vec<Tool>) -> Result<Tools, String> {
        let names = ToolNames::new("tools", &["memory.*".to_owned()]).expect("valid globs");
        check(&names, tools)
    }

    #[test]
    fn tools_with_distinct_names_within_the_manifests_are_accepted() {
        let tools = checked(vec![tool("memory.retain"), tool("memory.recall-2_x")]).expect("valid");
        assert_eq!(
            tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
            ["memory.recall-2_x", "memory.retain"]
        );
        assert_eq!(checked(Vec::new()).expect("valid").len(), 0);
    }

    #[test]
    fn each_fault_of_a_tool_is_named() {
        let valid = || tool("memory.a");
        let schema = |schema: &str| Tool { input_schema: schema.to_owned().into(), ..valid() };
        let long_title = ToolAnnotations { title: Some("t".repeat(257)), ..ToolAnnotations::default() };
        for (tools, fault) in [
            (vec![tool("")], "`tools[0]`: `name` must be 1 to 128 letters"),
            (vec![tool("memory.a b")], "`tools[0]`: `name` must be"),
            (vec![tool(&"memory.".repeat(20))], "`tools[0]`: `name` must be"),
            (
                vec![valid(), tool("shell.exec")],
                "no glob in `tools` of the answer to Describe covers `shell.exec`",
            ),
            (vec![valid(), valid()], "`tools` names `memory.a` twice"),
            (vec![Tool { description: String::new(), ..valid() }], "`memory.a` needs a `description`"),
            (vec![Tool { annotations: Some(long_title), ..valid() }], "the `title` of `memory.a` is longer"),
            (vec![schema("{")], "the `input_schema` of `memory.a` is not JSON"),
            (vec![schema("")], "is not JSON"),
            (vec![schema("true")], "is not for objects"),
            (vec![schema(r#"{"type":"array"}"#)], "is not for objects"),
            (vec![schema(r#"{"type":"object","minProperties":"x"}"#)], "does not compile"),
            (vec![schema(r#"{"type":"object","$ref":"http://localhost/x"}"#)], "does not compile"),
            ((0..65).map(|n| tool(&format!("memory.{n}"))).collect(), "`tools` has 65 tools"),
        ] {
            let error = checked(tools).expect_err(fault);
            assert!(error.contains(fault), "{error}");
        }
        let padded = format!(r#"{{"type":"object"{}}}"#, " ".repeat(64 << 10));
        assert!(checked(vec![schema(&padded)]).expect_err("too large").contains("larger than 64 KiB"));
        let large = format!(r#"{{"type":"object"{}}}"#, " ".repeat(60 << 10));
        let five = (0..5).map(|n| Tool { name: format!("memory.{n}"), ..schema(&large) }).collect();
        assert!(checked(five).expect_err("too large").contains("keep it within 256 KiB"));
    }
}
