//! `plugin.toml`: what the runner takes from it, and what it refuses.

use serde_json::json;

use super::support::{LibrefangPlugin, says};
use crate::cli::support::Folder;

async fn refusal(plugin: &LibrefangPlugin) -> String {
    plugin.write();
    let file = plugin.directory.path().join("runner.yaml").display().to_string();
    let ran = Folder::new().run(&["runner", "stdio", &file, "--listen", "unix:///no/such/folder/s"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.stderr
}

#[tokio::test]
async fn a_mistake_in_the_manifest_is_named_with_the_file_and_its_key() {
    let script = says("1");
    let hooks = "[hooks]\ningest = \"i.py\"\n";
    for (manifest, expected) in [
        ("a = [", "plugin/plugin.toml: line 3: "),
        (
            "hook_timeout_secs = \"1\"\n[hooks]\ningest = \"i.py\"\n",
            "hook_timeout_secs: invalid type: string",
        ),
        ("[hooks]\ningest = \"i.py\"\nmax_retries = -1\n", "hooks.max_retries: invalid value"),
        ("hooks = 1\n", "plugin.toml: hooks: invalid type: integer"),
        ("", "plugin.toml: hooks: at least one script is required; the keys are bootstrap, ingest"),
        ("[hooks]\ningest = 1\n", "hooks.ingest: must be the path of a script"),
        (
            "[hooks]\ningest = \"none.py\"\n",
            "hooks.ingest: there is no file `none.py` in the plugin's folder",
        ),
        ("[hooks]\ningest = \"../plugin/i.py\"\n", "hooks.ingest: `../plugin/i.py` must be a path inside"),
        ("[hooks]\ningest = \"/etc/passwd\"\n", "`/etc/passwd` must be a path inside the plugin's folder"),
        ("[hooks]\ningest = \"i.py\"\nruntime = \"wasm\"\n", "runtime: `wasm` is not served"),
        (
            "[hooks]\ningest = \"i.py\"\nruntime = \"php\"\n",
            "runtime: there is no program `php` in /usr/local/bin",
        ),
        ("[hooks]\ningest = \"i.py\"\nruntime = \"/no/such\"\n", "runtime: there is no file /no/such"),
        ("[hooks]\ningest = \"plain.py\"\nruntime = \"native\"\n", "plain.py is not executable"),
        ("[hooks]\ningest = \"i.py\"\ningest_regex = \"(\"\n", "ingest_regex: is not a regular expression"),
        (
            "hook_timeout_secs = 0\n[hooks]\ningest = \"i.py\"\n",
            "hook_timeout_secs: must be between 1 and 3600",
        ),
        ("[hooks]\ningest = \"i.py\"\n[env]\nHOME = \"/\"\n", "env: a plugin can't set HOME: leave it out"),
        (
            "[hooks]\ningest = \"i.py\"\n[integrity]\n\"i.py\" = \"abc\"\n",
            "integrity: `i.py` needs a digest of 64",
        ),
        (
            "[hooks]\ningest = \"i.py\"\n[integrity]\n\"../x\" = \"abc\"\n",
            "integrity: `../x` must be a path inside",
        ),
    ] {
        let plugin = LibrefangPlugin::new(manifest).file("i.py", &script).file("plain.py", &script);
        let path = plugin.path("plain.py");
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let said = refusal(&plugin).await;
        assert!(said.contains("plugins[0].directory: ") && said.contains(expected), "{manifest}: {said}");
    }
    let wrong = "0".repeat(64);
    let tampered = format!("{hooks}[integrity]\n\"i.py\" = \"{wrong}\"\n");
    let said = refusal(&LibrefangPlugin::new(&tampered).file("i.py", &script)).await;
    assert!(
        said.contains("directory: integrity: ") && said.contains("i.py has the SHA-256 digest"),
        "{said}"
    );
}

#[tokio::test]
async fn a_mistake_in_the_entry_is_named_with_its_key() {
    let plugin = || LibrefangPlugin::new("[hooks]\ningest = \"i.py\"\n").file("i.py", &says("1"));
    for (members, expected) in [
        (json!({ "name": "other" }), "plugins[0].name: must be that in plugin.toml, `program`"),
        (json!({ "version": "0.2.0" }), "plugins[0].version: plugin.toml has 0.1.0, and 0.2.0 is required"),
        (json!({ "points": ["before_response"] }), "plugins[0].points: comes from plugin.toml: leave it out"),
        (json!({ "command": ["cat"] }), "plugins[0].command: comes from plugin.toml"),
        (json!({ "directory": "./none" }), "plugins[0].directory: "),
        (
            json!({ "directory": null }),
            "plugins[0].directory: is required: the plugin's folder; or `command`",
        ),
        (json!({ "dialect": "lines" }), "plugins[0].directory: needs `dialect: librefang`"),
        (json!({ "allowed_env": ["HOME"] }), "plugins[0].allowed_env: the runner sets HOME itself"),
        (json!({ "dialect": "other" }), "plugins[0].dialect: unknown variant `other`"),
        (
            json!({ "directory": null, "command": ["cat"], "hooks": ["event"] }),
            "plugins[0].hooks: a sidecar answers at agent_start, recall, assemble and turn_end",
        ),
    ] {
        let said = refusal(&plugin().entry(&members)).await;
        assert!(said.contains(expected), "{members}: {said}");
    }
}

#[tokio::test]
async fn scripts_run_with_the_runtime_of_the_manifest_and_an_unknown_one_is_python() {
    let shell = "#!/bin/sh\ncat > /dev/null\necho \"{\\\"memories\\\":[{\\\"content\\\":\\\"$LIBREFANG_RUNTIME\\\"}]}\"\n";
    let node = "require('fs').readFileSync(0);\n\
                console.log(JSON.stringify({ memories: [{ content: process.env.LIBREFANG_RUNTIME }] }));\n";
    let python = says("os.environ['LIBREFANG_RUNTIME']");
    for (runtime, script, expected) in [
        ("native", shell, "native"),
        ("sh", shell, "bash"),
        ("nodejs", node, "node"),
        ("python3", &*python, "python"),
        ("pyhton", &python, "python"),
        ("/usr/bin/python3", &python, "/usr/bin/python3"),
    ] {
        let manifest = format!("[hooks]\nruntime = \"{runtime}\"\ningest = \"script\"\n");
        let plugin = LibrefangPlugin::new(&manifest).file("script", script);
        let served = plugin.entry(&json!({ "limits": { "memory": "2GiB" } })).serve(&["recall"]).await;
        assert_eq!(served.memory("acme", "a", "hi").await, expected, "{runtime}");
        if runtime == "pyhton" {
            served.runner.wait_for("the runtime `pyhton` is not known, so it is python").await;
        }
    }
}

#[tokio::test]
async fn a_manifest_as_in_librefangs_registry_is_served_and_its_other_settings_are_named() {
    let manifest = r#"description = "Recalls."
author = "someone"
requirements = "requirements.txt"
librefang_min_version = "2026.4.0"
hook_timeout_secs = 20
hook_protocol_version = 2
on_hook_failure = "warn"
priority = 10
[[requires]]
binary = "python3"
install_hint = "install it"
[hooks]
ingest = "i.py"
[i18n.zh]
name = "x"
[config]
plain = "default"
"#;
    let plugin = LibrefangPlugin::new(manifest)
        .file("i.py", &says("open(os.environ['LIBREFANG_PLUGIN_CONFIG']).read()"));
    let served = plugin.serve(&["recall"]).await;
    assert_eq!(served.memory("acme", "a", "hi").await, r#"{"plain":"default"}"#);
    served
        .runner
        .wait_for("plugin.toml sets on_hook_failure, priority, requirements, requires, without effect here: the gateway's \
             configuration and the runner's file decide that")
        .await;
    served.runner.wait_for("hook_protocol_version is 2, and the runner speaks 1").await;
}

#[tokio::test]
async fn a_plugin_of_librefang_keeps_every_rule_of_the_protocol() {
    let script = r#"import json, sys
for line in sys.stdin:
    call = json.loads(line)
    print(json.dumps({"memories": []} if call["type"] == "ingest" else {"content": None}), flush=True)
"#;
    let manifest =
        "persistent_subprocess = true\n[hooks]\ningest = \"s.py\"\ntransform_tool_result = \"s.py\"\n";
    let plugin = LibrefangPlugin::new(manifest).file("s.py", script);
    plugin.write();
    let runner = super::super::support::run(plugin.directory.path()).await;
    let ran =
        Folder::new().run(&["conformance", &runner.address, "--name", "program", "--timeout", "20s"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
