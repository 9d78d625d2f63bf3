//! Generates and checks docs/configuration.md: the reference comes from the schema, and the example is
//! loaded. docs/hookgate.schema.json is the schema itself. With `HOOKGATE_REGENERATE=1` the tests write both
//! files, otherwise they compare them.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    load::from_text,
    restart::is_at_restart,
    schema::{Schema, types, words},
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");

/// The schema for editors.
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hookgate.schema.json");

/// What precedes this line is written by hand.
const MARKER: &str =
    "<!-- Generated from the types; HOOKGATE_REGENERATE=1 cargo test -p hookgate documentation -->\n";

/// The sections, in the order of a file.
const SECTIONS: &[&str] = &[
    "server",
    "auth",
    "tenants",
    "plugins",
    "bindings",
    "llm",
    "store",
    "egress",
    "secrets",
    "self_registration",
    "limits",
    "drain",
    "observers",
    "startup",
    "block_status",
    "answer",
    "log",
    "telemetry",
];

fn reference() -> String {
    let schema = Schema::new();
    let root = schema.root();
    let mut keys: Vec<&str> = schema.keys(root);
    keys.sort_by_key(|key| {
        SECTIONS.iter().position(|section| section == key).expect("a section has its place")
    });
    let mut page = String::new();
    for key in keys {
        let property = &root["properties"][key];
        let _ = write!(page, "\n### {key}\n\n{}\n\n", text(property));
        page.push_str("| key | type | default | meaning | change |\n|---|---|---|---|---|\n");
        rows(&schema, key, property, is_required(root, key), &mut page);
    }
    page
}

/// Adds rows for the value at `path` and everything in it.
fn rows(schema: &Schema, path: &str, property: &Value, required: bool, page: &mut String) {
    let place = schema.resolve(property);
    let inner = place.get("items").map_or(place, |items| schema.resolve(items));
    let path = if place.get("items").is_some() && inner["properties"].is_object() {
        format!("{path}[]")
    } else {
        path.to_owned()
    };
    let default = match property.get("default") {
        _ if required => "required".to_owned(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(Value::Null) | None => String::new(),
        Some(value) => format!("`{value}`"),
    };
    // The row for a section would only repeat its heading.
    if path.contains(['.', '[']) || inner.get("properties").is_none() {
        let change = if is_at_restart(&path) { "restart" } else { "at once" };
        let (kind, text) = (kind(schema, place), text(property));
        let _ = writeln!(page, "| `{path}` | {kind} | {default} | {text} | {change} |");
    }
    for (key, member) in inner["properties"].as_object().into_iter().flatten() {
        rows(schema, &format!("{path}.{key}"), member, is_required(inner, key), page);
    }
}

fn is_required(place: &Value, key: &str) -> bool {
    place["required"].as_array().is_some_and(|required| required.iter().any(|name| name == key))
}

fn text(property: &Value) -> String {
    property["description"].as_str().expect("every key is described").replace('\n', " ").replace('|', "\\|")
}

/// The type of a value, as shown to people.
fn kind(schema: &Schema, place: &Value) -> String {
    let place = schema.resolve(place);
    if let Some(title) = place["title"].as_str() {
        return title.to_owned();
    }
    if let Some(words) = words(place) {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    match (types(place).first().copied(), place["format"].as_str()) {
        (_, Some("duration-text")) => "duration".into(),
        (_, Some("size-text")) => "size".into(),
        (_, Some("rate")) => "rate".into(),
        (_, Some("socket-address")) => "address:port".into(),
        (_, Some("version-range")) => "version range".into(),
        (Some("integer"), _) => match (place["minimum"].as_i64(), place["maximum"].as_i64()) {
            (Some(least), Some(most)) => format!("integer, {least} to {most}"),
            _ => "integer".into(),
        },
        (Some("string"), _) => "text".into(),
        (Some("array"), _) => format!("list of {}", kind(schema, &place["items"])),
        (Some("object"), _) if place["additionalProperties"].is_object() => {
            format!("mapping to {}", kind(schema, &place["additionalProperties"]))
        }
        (Some("object"), _) => "mapping".into(),
        (other, _) => other.expect("a value has a type").into(),
    }
}

#[test]
fn the_reference_is_the_schema_s() {
    let page = std::fs::read_to_string(PATH).unwrap();
    let (head, _) = page.split_once(MARKER).expect("the page has its marker");
    let fresh = format!("{head}{MARKER}{}", reference());
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        return std::fs::write(PATH, fresh).unwrap();
    }
    assert!(page == fresh, "docs/configuration.md is stale: run again with HOOKGATE_REGENERATE=1");
}

#[test]
fn the_schema_for_editors_is_the_one_that_files_are_checked_against() {
    let fresh = format!("{:#}\n", Schema::new().root());
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        return std::fs::write(SCHEMA, fresh).unwrap();
    }
    let written = std::fs::read_to_string(SCHEMA).unwrap_or_default();
    assert!(written == fresh, "docs/hookgate.schema.json is stale: run again with HOOKGATE_REGENERATE=1");
}

#[test]
fn the_example_of_the_page_loads() {
    let page = std::fs::read_to_string(PATH).unwrap();
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let secret = "x".repeat(32);
    let env = [("HOOKGATE_JWT_SECRET".to_owned(), secret)];
    let loaded =
        from_text("docs/configuration.md".into(), example, env).unwrap_or_else(|err| panic!("{err}"));
    assert_eq!((loaded.config.plugins.len(), loaded.config.bindings.len()), (4, 5));
}

#[test]
fn the_mistake_of_the_page_is_rendered_as_there() {
    let page = std::fs::read_to_string(PATH).unwrap();
    let shown = page.split("```\n").nth(1).unwrap();
    let text = "auth:
  issuers:
    - { issuer: i, audience: a, jwks_url: https://id/keys }
plugins:
  - { name: p, builtin: content-policy }
bindings:
  - plugin: p
    tenant: '*'
    tiemout: 5s
    priority: 1
tenants: { list: [{ id: acme }] }
";
    let problems = from_text("hookgate.yaml".into(), text, []).unwrap_err();
    assert_eq!(format!("{problems}\n"), shown);
}
