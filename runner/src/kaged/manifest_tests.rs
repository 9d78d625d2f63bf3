use serde_json::json;

use super::*;

const MINIMAL: &str =
    "name: notes\nversion: 0.1.0\nkaged_api: 1\ndescription: Notes.\ncommand: [python3, ./main.py]\n";

fn parse(text: &str) -> Result<Manifest, String> {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    std::fs::write(folder.path().join("main.py"), "").expect("the directory is ours");
    let folder_path = folder.path().canonicalize().expect("it exists");
    Manifest::parse(text, &folder_path, &[])
}

#[test]
fn a_manifest_with_every_key_is_read() {
    let rest = r#"
author: kaged
license: MIT
homepage: https://example.com
env: { LOG_LEVEL: info }
capabilities: ["kaged:storage:read", "net:[]"]
roles: [observer]
hooks: [on_session_start, on_session_idle, pre_compact, post_compact]
tools:
  - { name: retain, description: Remembers., parameters_schema: { type: object, required: [content] } }
  - { name: notes.list_tags, description: Lists tags. }
methods: []
notifications: [notes.changed]
config_schema: { type: object, properties: { store: { type: string } } }
system_config_schema: { type: object, properties: { key: { type: string } } }
knobs: { store: { type: path, binds_to: config.store } }
shutdown_timeout_sec: 30
health_interval_sec: 300
hook_timeout_sec: 60
"#;
    let manifest = parse(&format!("{MINIMAL}{rest}")).expect("it is valid");
    assert_eq!(manifest.hooks, KagedHook::ALL);
    let names: Vec<_> = manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["notes.retain", "notes.list_tags"]);
    let schema: Value = serde_json::from_slice(&manifest.tools[0].input_schema).expect("it is JSON");
    assert_eq!(schema, json!({ "type": "object", "required": ["content"] }));
    assert_eq!(manifest.environment.variables["LOG_LEVEL"], "info");
    assert_eq!(manifest.hook_timeout, Duration::from_secs(60));
    assert!(manifest.warnings.iter().any(|warning| warning.contains("`net:[]` has no effect")));
}

#[test]
fn what_a_manifest_omits_has_the_defaults_of_kaged() {
    let manifest = parse(&format!("{MINIMAL}hooks: [on_session_start]\nfuture: 1\n")).expect("it is valid");
    let times = [manifest.shutdown_timeout, manifest.health_interval, manifest.hook_timeout];
    assert_eq!(times, [5, 30, 10].map(Duration::from_secs));
    assert!(!manifest.is_compactor && manifest.tools.is_empty());
    assert_eq!(manifest.warnings, ["kaged-plugin.yaml has unknown keys, without effect: future"]);
}

#[test]
fn each_mistake_names_its_key() {
    let with = |rest: &str| format!("{MINIMAL}hooks: [pre_compact]\n{rest}");
    let but = |from: &str, to: &str| with("").replace(from, to);
    let cases = [
        (but("name: notes", "name: Notes"), "name: must be a lower-case letter"),
        (but("name: notes", &format!("name: {}", "n".repeat(65))), "name: must be"),
        (but("0.1.0", "one"), "version: must be a semantic version"),
        (but("kaged_api: 1", "kaged_api: 2"), "kaged_api: must be 1"),
        (but("description: Notes.\n", ""), "missing field `description`"),
        (but("Notes.", "\"\""), "description: must have 1 to 200 characters"),
        (but("Notes.", &"d".repeat(201)), "description: must have"),
        (but("[python3, ./main.py]", "[]"), "command: must name a program"),
        (but("[python3, ./main.py]", "[bin/run]"), "command: bin/run must begin with / or ./"),
        (but("./main.py", "./missing.py"), "command: there is no file `./missing.py`"),
        (but("./main.py", "../main.py"), "command: `../main.py` must be a path inside"),
        (but("hooks: [pre_compact]", ""), "hooks: at least one hook or tool"),
        (but("pre_compact", "on_compact"), "hooks[0]: unknown variant `on_compact`"),
        (with("env: { LD_PRELOAD: ./x.so }\n"), "env: a plugin can't set LD_PRELOAD"),
        (with("env: { KAGED_PLUGIN_DIR: / }\n"), "env: a plugin can't set KAGED_PLUGIN_DIR"),
        (with("roles: [owner]\n"), "roles[0]: unknown variant `owner`"),
        (but("[pre_compact]", "[post_compact]\nroles: [compactor]"), "roles: `compactor` needs the hook"),
        (with("methods: [list]\n"), "methods: `list` must be 2 to 4"),
        (with("tools: [{ name: Retain, description: d }]\n"), "tools[0].name: must be a lower-case"),
        (with("tools: [{ name: other.retain, description: d }]\n"), "tools[0].name: must be"),
        (with("tools: [{ name: a, description: \"\" }]\n"), "tools: `tools[0]`: `notes.a` needs a"),
        (with("shutdown_timeout_sec: 31\n"), "shutdown_timeout_sec: must be 1 to 30"),
        (with("health_interval_sec: 4\n"), "health_interval_sec: must be 5 to 300"),
        (with("hook_timeout_sec: 61\n"), "hook_timeout_sec: must be 1 to 60"),
        (
            with(
                "config_schema: { properties: { a: {} } }\nsystem_config_schema: { properties: { a: {} } }\n",
            ),
            "system_config_schema: `a` is in `config_schema` too",
        ),
        ("- 1\n".to_owned(), "is not a YAML mapping"),
        ("{".to_owned(), "is not a YAML mapping"),
    ];
    for (text, reason) in cases {
        let error = parse(&text).expect_err(reason);
        assert!(error.starts_with(reason), "{error}\nfor {text}");
    }
}
