//! Checks the references of a schema, so that the tool's result can't decide how much work its check is.
//!
//! A schema that leads back to itself in two branches takes twice as long for each level of the result: a
//! result of 200 bytes could keep a thread busy for hours. Without circles the work is bounded by the schema
//! with all references replaced by what they lead to, times the result.

use std::collections::HashMap;

use serde_json::Value;

/// The maximum number of objects in a schema with all references replaced.
const MAX_OBJECTS: usize = 10_000;

/// Checks that each reference leads to a part of the schema, and none in a circle.
///
/// # Errors
/// A sentence about the schema.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    // Its `id` could give references another meaning.
    if schema["$schema"].as_str().is_some_and(|name| name.contains("draft-03") || name.contains("draft-04")) {
        return Err("write the schema in draft 6 or a later one".to_owned());
    }
    let mut references = References { root: schema, sizes: HashMap::new(), path: Vec::new() };
    references.follow("").map(drop)
}

struct References<'s> {
    root: &'s Value,
    /// The number of objects behind each pointer that was followed.
    sizes: HashMap<&'s str, usize>,
    /// The pointers that are being followed.
    path: Vec<&'s str>,
}

impl<'s> References<'s> {
    fn follow(&mut self, pointer: &'s str) -> Result<usize, String> {
        if self.path.contains(&pointer) {
            return Err(format!("`#{pointer}` leads back to itself: write a schema without circles"));
        }
        if let Some(size) = self.sizes.get(pointer) {
            return Ok(*size);
        }
        let Some(target) = self.root.pointer(pointer) else {
            return Err(format!("`#{pointer}` leads to no part of the schema"));
        };
        self.path.push(pointer);
        let size = self.count(target)?;
        self.path.pop();
        self.sizes.insert(pointer, size);
        Ok(size)
    }

    /// Counts the objects of a part of the schema, with those behind its references.
    fn count(&mut self, part: &'s Value) -> Result<usize, String> {
        let mut size = 0;
        match part {
            Value::Object(members) => {
                size += 1;
                for (key, value) in members {
                    size += match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => self.follow(local(reference)?)?,
                        ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                            return Err(format!("write `$ref` in place of `{key}`"));
                        }
                        // References below it would have another root.
                        ("$id", Value::String(_)) if !std::ptr::eq(part, self.root) => {
                            return Err("write `$id` nowhere but at the root".to_owned());
                        }
                        (_, value) => self.count(value)?,
                    };
                }
            }
            Value::Array(items) => {
                for item in items {
                    size += self.count(item)?;
                }
            }
            _ => {}
        }
        match size {
            0..=MAX_OBJECTS => Ok(size),
            _ => Err(format!("too large: over {MAX_OBJECTS} objects with all references replaced")),
        }
    }
}

/// The pointer of a reference to the schema itself.
fn local(reference: &str) -> Result<&str, String> {
    let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    pointer.ok_or_else(|| {
        format!("`{reference}` leads out of the schema: write a reference such as `#/$defs/name`")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(schema: Value) -> String {
        check(&schema).expect_err("the schema is refused")
    }

    #[test]
    fn references_within_the_schema_are_accepted() {
        let name = json!({ "$ref": "#/$defs/a~1b" });
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://example.com/schema",
            "items": [name, name],
            "$defs": { "a/b": { "$ref": "#/$defs/c" }, "c": { "properties": { "$ref": {}, "$id": {} } } },
        });
        assert_eq!(check(&schema), Ok(()));
        assert_eq!(check(&json!(true)), Ok(()));
    }

    #[test]
    fn circles_are_refused_wherever_they_begin() {
        for schema in [
            json!({ "items": { "$ref": "#" } }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "not": { "$ref": "#/$defs/a" } } } }),
            json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "anyOf": [{ "$ref": "#/$defs/a" }] } } }),
            json!({ "properties": { "x": { "items": { "$ref": "#/properties/x" } } } }),
            json!({ "$defs": { "a": { "$ref": "#/$defs" } } }),
        ] {
            assert!(fault(schema.clone()).contains("leads back to itself"), "{schema}");
        }
    }

    #[test]
    fn references_with_another_root_are_refused() {
        for reference in
            ["https://example.com/x", "file:///etc/passwd", "other.json", "other.json#/a", "#name", ""]
        {
            let fault = fault(json!({ "$ref": reference }));
            assert!(fault.contains("leads out of the schema"), "{fault}");
        }
        assert!(fault(json!({ "$ref": "#/%24defs/a", "$defs": { "a": {} } })).contains("leads to no part"));
        assert!(fault(json!({ "items": { "$id": "x" } })).contains("`$id`"));
        assert!(fault(json!({ "$dynamicRef": "#a" })).contains("`$dynamicRef`"));
        assert!(fault(json!({ "$recursiveRef": "#" })).contains("`$recursiveRef`"));
        assert!(fault(json!({ "$schema": "http://json-schema.org/draft-04/schema#" })).contains("draft 6"));
    }

    #[test]
    fn a_schema_that_grows_with_each_reference_is_refused() {
        let mut schema = json!({ "$ref": "#/$defs/0", "$defs": { "40": {} } });
        for level in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/{}", level + 1) });
            schema["$defs"][level.to_string()] = json!({ "allOf": [next, next] });
        }
        assert!(fault(schema).contains("too large"));
    }
}
