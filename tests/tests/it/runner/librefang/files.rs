//! Files and variables of LibreFang's scripts: what they get, and what keeps tenants and agents apart.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};

use super::{
    super::support::SECRET,
    support::{LibrefangPlugin, keeps_saying, says, write},
};

const INGEST: &str = "[hooks]\ningest = \"hooks/i.py\"\n";

/// By a program that isn't ours.
fn sha256(text: &str) -> String {
    let mut command = std::process::Command::new("sh");
    let ran = command.args(["-c", "printf %s \"$1\" | sha256sum", "sh", text]).output().expect("sh runs");
    String::from_utf8(ran.stdout).expect("text").split(' ').next().expect("a digest").to_owned()
}

#[tokio::test]
async fn a_script_that_was_changed_is_not_started() {
    let script = says("'ok'");
    let manifest = format!("{INGEST}[integrity]\n\"hooks/i.py\" = \"{}\"\n", sha256(&script));
    let served = LibrefangPlugin::new(&manifest).file("hooks/i.py", &script).serve(&["recall"]).await;
    assert_eq!(served.memory("acme", "a", "hi").await, "ok");
    let path = served.directory.path().join("plugin/hooks/i.py");
    write(&path, &script.replace("ok", "Ok"));
    let answer = served.recall("acme", "a", "hi").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    let (code, error) = served.fault(&answer).await;
    assert!(code == "Unavailable" && error.contains("hooks/i.py has the SHA-256 digest"), "{code} {error}");
    write(&path, &script);
    assert_eq!(served.memory("acme", "a", "hi").await, "ok");
}

#[tokio::test]
async fn a_script_that_became_a_link_is_not_started() {
    let served = LibrefangPlugin::new(INGEST).file("hooks/i.py", &says("'ok'")).serve(&["recall"]).await;
    assert_eq!(served.memory("acme", "a", "hi").await, "ok");
    let script = served.directory.path().join("plugin/hooks/i.py");
    let outside = served.directory.path().join("outside.py");
    fs::rename(&script, &outside).expect("both are ours");
    symlink(&outside, &script).expect("the folder is ours");
    let answer = served.recall("acme", "a", "hi").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    let (code, error) = served.fault(&answer).await;
    assert!(code == "Unavailable" && error.contains("hooks/i.py is a link by now"), "{code} {error}");
}

#[tokio::test]
async fn a_script_has_the_variables_of_librefang_and_nothing_of_the_runners() {
    let manifest = format!(
        "{INGEST}[env]\nPLAIN = \"value\"\nWHOLE = \"${{RUNNERS_OWN}}\"\nPART = \"x${{RUNNERS_OWN}}\"\n\
         UNSET = \"${{NOT_SET_ANYWHERE}}\"\nOPERATORS = \"manifest\"\n"
    );
    let dump = says("json.dumps(dict(os.environ))");
    let plugin = |entry: Value| LibrefangPlugin::new(&manifest).file("hooks/i.py", &dump).entry(&entry);
    let served = plugin(json!({ "env": { "OPERATORS": "file" } })).serve(&["recall"]).await;
    let said = served.memory("acme", "a-1", "What?").await;
    let variables: Value = serde_json::from_str(&said).expect("they are JSON");
    let home = served.directory.path().join("homes/program/acme").display().to_string();
    for (name, value) in [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", &home),
        ("LIBREFANG_AGENT_ID", "a-1"),
        ("LIBREFANG_MESSAGE", "What?"),
        ("LIBREFANG_RUNTIME", "python"),
        ("PLAIN", "value"),
        ("WHOLE", ""),
        ("PART", "x${RUNNERS_OWN}"),
        ("UNSET", ""),
        ("OPERATORS", "file"),
    ] {
        assert_eq!(variables[name], value, "{name}: {variables}");
    }
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(variables["CARGO_MANIFEST_DIR"], Value::Null, "{variables}");
    served.runner.wait_for("`${RUNNERS_OWN}` in `env.WHOLE` is empty: RUNNERS_OWN is not in `allowed_env` of the runner's file").await;

    let allowed = json!({ "allowed_env": ["RUNNERS_OWN", "NOT_SET_ANYWHERE"] });
    let served = plugin(allowed).serve(&["recall"]).await;
    let said = served.memory("acme", "a-1", "What?").await;
    let variables: Value = serde_json::from_str(&said).expect("they are JSON");
    assert_eq!((&variables["WHOLE"], &variables["RUNNERS_OWN"]), (&json!(SECRET), &json!(SECRET)));
    assert_eq!(variables["UNSET"], "");
    served
        .runner
        .wait_for("`${NOT_SET_ANYWHERE}` in `env.UNSET` is empty: NOT_SET_ANYWHERE is not set")
        .await;
}

#[tokio::test]
async fn a_script_reads_its_configuration_from_a_file() {
    let manifest = format!(
        "{INGEST}[config.limit]\ntype = \"number\"\ndefault = 5\n[config.mode]\ntype = \"string\"\ndefault = \"fast\"\n\
         [config.key]\ntype = \"string\"\n"
    );
    let script = says("open(os.environ['LIBREFANG_PLUGIN_CONFIG']).read()");
    let mut served = LibrefangPlugin::new(&manifest)
        .file("hooks/i.py", &script)
        .config(json!({ "limit": 7, "key": "a-secret-of-the-operator" }))
        .serve(&["recall"])
        .await;
    let said: Value = serde_json::from_str(&served.memory("acme", "a", "hi").await).expect("it is JSON");
    assert_eq!(said, json!({ "limit": 7, "mode": "fast", "key": "a-secret-of-the-operator" }));
    // It is in a folder that no program can list or change.
    let files: Vec<_> = fs::read_dir(served.directory.path().join("homes/program/.config"))
        .expect("it is there")
        .flatten()
        .collect();
    assert_eq!(files.len(), 1);
    let mode = std::os::unix::fs::MetadataExt::mode(&files[0].metadata().expect("it is there"));
    assert_eq!(mode & 0o777, 0o600);

    served.runner.terminate().await;
    assert!(
        !served.directory.path().join("homes/program/.config").exists(),
        "a configuration may hold secrets"
    );

    let none = LibrefangPlugin::new(INGEST)
        .file("hooks/i.py", &says("os.environ.get('LIBREFANG_PLUGIN_CONFIG')"))
        .serve(&["recall"])
        .await;
    assert_eq!(none.memory("acme", "a", "hi").await, "None");
}

#[tokio::test]
async fn a_script_can_not_use_what_the_runner_keeps_or_change_its_own_plugin() {
    let bootstrap = "print('{\"env_overrides\": {\"KEPT\": \"kept\"}}')\n";
    let script = r#"import json, os, sys
call = json.loads(sys.stdin.read())
here, above = os.environ["LIBREFANG_PLUGIN_CONFIG"], os.path.dirname(os.environ["HOME"])
attempts = [
    lambda: os.listdir(above),
    lambda: os.listdir(os.path.dirname(here)),
    lambda: open(here, "w"),
    lambda: os.listdir(above + "/.bootstrap"),
    lambda: open(above + "/.bootstrap/acme/a.json").read(),
    lambda: open(above + "/.bootstrap/acme/a.json", "w"),
    lambda: open(above + "/acme/.librefang/state/a.json").read() if "acme" not in os.environ["HOME"] else open("/etc/shadow"),
    lambda: open(__file__, "a"),
    lambda: os.symlink("/", os.path.dirname(__file__) + "/link"),
]
said = []
for attempt in attempts:
    try:
        said.append(repr(attempt()))
    except OSError as error:
        said.append(type(error).__name__)
open(__file__).read(), open(here).read()
print(json.dumps({"memories": [{"content": " ".join(said)}]}))
"#;
    let manifest = "enable_shared_state = true\n[hooks]\nbootstrap = \"b.py\"\ningest = \"hooks/i.py\"\n[config]\na = 1\n";
    let served = LibrefangPlugin::new(manifest)
        .file("b.py", bootstrap)
        .file("hooks/i.py", script)
        .serve(&["agent_start", "recall"])
        .await;
    let request = json!({ "body": {}, "context": { "agent_id": "a" } });
    assert_eq!(served.hook_with("acme", "agent_start", &request).await.status, 200);
    assert!(served.directory.path().join("homes/program/.bootstrap/acme/a.json").exists());
    for tenant in ["acme", "globex"] {
        let said = served.memory(tenant, "a", "hi").await;
        assert!(
            said.split(' ').count() == 9 && said.split(' ').all(|one| one == "PermissionError"),
            "{said}"
        );
    }
}

/// Counts the calls of an agent in its state.
const COUNT: &str = r#"(lambda path: (lambda state: (
        json.dump({"calls": state.get("calls", 0) + 1}, open(path, "w")), path, state.get("calls", 0) + 1
    )[1:])(json.load(open(path))))(os.environ["LIBREFANG_STATE_FILE"])"#;

#[tokio::test]
async fn each_agent_of_each_tenant_has_a_state_file_of_its_own() {
    let manifest = format!("enable_shared_state = true\n{INGEST}");
    for persistent in [false, true] {
        let (manifest, script) = match persistent {
            true => (format!("persistent_subprocess = true\n{manifest}"), keeps_saying(COUNT)),
            false => (manifest.clone(), says(COUNT)),
        };
        let served = LibrefangPlugin::new(&manifest).file("hooks/i.py", &script).serve(&["recall"]).await;
        let homes = served.directory.path().join("homes/program");
        for (tenant, agent, file, count) in [
            ("acme", "a", "a.json", 1),
            ("acme", "a", "a.json", 2),
            ("acme", "b", "b.json", 1),
            ("globex", "a", "a.json", 1),
            ("globex", "../../escape", "%2E%2E%2F%2E%2E%2Fescape.json", 1),
            (
                "globex",
                "../../acme/.librefang/state/a",
                "%2E%2E%2F%2E%2E%2Facme%2F%2Elibrefang%2Fstate%2Fa.json",
                1,
            ),
            ("globex", "/etc/passwd", "%2Fetc%2Fpasswd.json", 1),
            ("globex", "..", "%2E%2E.json", 1),
            ("acme", "a", "a.json", 3),
            ("acme", "", ".json", 1),
        ] {
            let path = homes.join(tenant).join(".librefang/state").join(file);
            let said = served.memory(tenant, agent, "hi").await;
            assert_eq!(said, format!("('{}', {count})", path.display()), "{tenant} {agent}");
        }
    }
}

#[tokio::test]
async fn calls_of_one_agent_change_its_state_one_after_the_other() {
    let manifest = format!("enable_shared_state = true\n{INGEST}");
    let slow = r#"import json, os, sys, time
path = os.environ["LIBREFANG_STATE_FILE"]
calls = json.load(open(path)).get("calls", 0) + 1
time.sleep(0.2)
json.dump({"calls": calls}, open(path, "w"))
print(json.dumps({"memories": [{"content": str(calls)}]}))
"#;
    let served = LibrefangPlugin::new(&manifest).file("hooks/i.py", slow).serve(&["recall"]).await;
    let call = || served.memory("acme", "a", "hi");
    let (a, b, c, d) = tokio::join!(call(), call(), call(), call());
    let mut said = [a, b, c, d];
    said.sort_unstable();
    assert_eq!(said, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_state_folder_that_is_a_link_leads_nowhere() {
    let manifest = format!("enable_shared_state = true\n{INGEST}");
    let script = says(
        "(os.path.exists('.librefang/state') and os.rename('.librefang/state', 'was'), \
         os.path.islink('.librefang/state') or os.symlink('../../globex', '.librefang/state'))",
    );
    let served = LibrefangPlugin::new(&manifest).file("hooks/i.py", &script).serve(&["recall"]).await;
    served.memory("globex", "a", "hi").await;
    served.memory("acme", "a", "hi").await;
    let answer = served.recall("acme", "other", "hi").await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let line = served.fault_line(&answer).await;
    assert!(line["stderr"].as_str().is_some_and(|said| said.contains("the state file")), "{line}");
    let globex = served.directory.path().join("homes/program/globex");
    assert!(!globex.join("other.json").exists());
}

#[tokio::test]
async fn a_link_in_the_plugins_folder_that_leads_out_is_refused_at_the_start() {
    let plugin = LibrefangPlugin::new("[hooks]\ningest = \"i.py\"\n");
    write(&plugin.directory.path().join("outside.py"), &says("'no'"));
    symlink("../outside.py", plugin.path("i.py")).expect("the folder is ours");
    plugin.write();
    let folder = crate::cli::support::Folder::new();
    let file = plugin.directory.path().join("runner.yaml").display().to_string();
    let ran = folder.run(&["runner", "stdio", &file, "--listen", "unix:///no/such/folder/s"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("hooks.ingest: `i.py` is a link that leads out of the plugin's folder"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn what_a_script_logs_has_no_value_of_the_runners_environment() {
    let manifest = format!("{INGEST}[env]\nKEY = \"${{RUNNERS_OWN}}\"\n");
    let script = format!("import os, sys\nprint('key', os.environ['KEY'])\n{}", says("'ok'"));
    let plugin = LibrefangPlugin::new(&manifest).file("hooks/i.py", &script);
    let plugin = plugin.entry(&json!({ "allowed_env": ["RUNNERS_OWN"] }));
    let served = plugin.serve(&["recall"]).await;
    assert_eq!(served.memory("acme", "a", "hi").await, "ok");
    served.runner.wait_for("key ***").await;
    let log = Value::Array(served.runner.lines()).to_string();
    assert!(!log.contains(SECRET), "{log}");
}
