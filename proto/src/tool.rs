//! The rules for a plugin's tools that need no look into their schemas (docs/protocol.md, section 10).

use std::collections::HashSet;

use prost::Message as _;

use crate::types::v1::Tool;

/// Most tools of a plugin.
const MAX_TOOLS: usize = 64;
/// Largest encoded size of all tools of a plugin together, in bytes.
pub const MAX_TOOLS_BYTES: usize = 256 << 10;
/// Longest name, as in the Model Context Protocol.
const MAX_NAME_BYTES: usize = 128;
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
const MAX_TITLE_BYTES: usize = 256;
const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// Checks the tools of a plugin: their number, names, and sizes.
///
/// # Errors
/// The first rule that is broken, without the plugin's text except for valid names.
pub fn check_tools(tools: &[Tool]) -> Result<(), String> {
    if tools.len() > MAX_TOOLS {
        return Err(format!("`tools` has {} tools: keep it within {MAX_TOOLS}", tools.len()));
    }
    let bytes: usize = tools.iter().map(Tool::encoded_len).sum();
    if bytes > MAX_TOOLS_BYTES {
        return Err(format!("`tools` has {bytes} bytes: keep it within 256 KiB"));
    }
    let mut seen = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        check_tool(tool).map_err(|fault| format!("`tools[{index}]`: {fault}"))?;
        if !seen.insert(&tool.name) {
            return Err(format!("`tools` names `{}` twice: name each tool once", tool.name));
        }
    }
    Ok(())
}

fn check_tool(Tool { name, description, input_schema, annotations }: &Tool) -> Result<(), String> {
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_of_name) {
        return Err("`name` must be 1 to 128 letters, digits, `_`, `.` and `-`".into());
    }
    if !(1..=MAX_DESCRIPTION_BYTES).contains(&description.len()) {
        return Err(format!("`{name}` needs a `description` of 1 byte to 4 KiB"));
    }
    if annotations.as_ref().is_some_and(|annotations| annotations.title().len() > MAX_TITLE_BYTES) {
        return Err(format!("the `title` of `{name}` is longer than {MAX_TITLE_BYTES} bytes"));
    }
    if input_schema.len() > MAX_SCHEMA_BYTES {
        return Err(format!("the `input_schema` of `{name}` is larger than 64 KiB"));
    }
    Ok(())
}
