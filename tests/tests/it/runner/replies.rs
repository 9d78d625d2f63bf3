//! Calls as lines, and the replies of programs.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::support::{FUNCTIONS, SECRET, each_call, notice, run, serve, serve_in, write};
use crate::cli::support::Folder;

const CONTINUE: &str = r#"reply '{"continue":{}}'"#;

#[tokio::test]
async fn a_shell_script_blocks_patches_and_gives_notices() {
    let script = each_call(
        r#"case $call in
    *'"tool_name":"shell.exec"'*) reply '{"cancel":{"code":"TOOL_NOT_ALLOWED","message":"No shell."}}' ;;
    *'"tool_name":"clock"'*) reply '{"cancel":{"message":"It is 12.","result":{"n":9007199254740993}}}' ;;
    *) reply '{"continue":{},"modify":{"args":{"n":9007199254740993}},"notices":[{"kind":"warn","code":"SEEN","message":"seen"}]}' ;;
esac"#,
    );
    let served = serve(&script, json!({})).await;
    let blocked = served.call("acme", "shell.exec").await;
    assert_eq!(blocked.status, 403, "{blocked:?}");
    assert_eq!(blocked.body["block"]["message"], "No shell.");
    let answered = served.call("acme", "clock").await;
    assert_eq!((answered.status, &answered.body["block"]["code"]), (403, &json!("TOOL_ANSWERED")));
    let passed = served.call("acme", "fs.read").await;
    assert_eq!((passed.status, notice(&passed)), (200, "seen"));
    assert!(passed.text.contains("9007199254740993"), "{}", passed.text);
}

#[tokio::test]
async fn a_call_has_its_point_context_configurations_and_payload() {
    let script = each_call(
        r#"printf '%s' "$call" |
            jq -c '{continue:{},notices:[{kind:"info",message:(.|tojson)}],request_id:.context.request_id}'"#,
    );
    let served = serve(&script, json!({})).await;
    let answer = served.call_with("acme", "fs.read", json!({ "path": "/tmp" })).await;
    let call: Value = serde_json::from_str(notice(&answer)).expect("it is the call");
    assert_eq!(call["point"], "before_tool_call");
    assert_eq!(call["context"]["tenant"], "acme");
    assert_eq!(call["context"]["request_id"], answer.body["request_id"]);
    assert_eq!(call["config"], json!({ "word": "a-word-of-the-configuration" }));
    assert_eq!(call["tenant_config"], json!({}));
    assert_eq!(call["payload"], json!({ "tool_name": "fs.read", "args": { "path": "/tmp" } }));
}

#[tokio::test]
async fn a_program_that_ends_after_each_reply_is_started_for_the_next_call() {
    let served = serve(&format!("{FUNCTIONS}next_call; {CONTINUE}"), json!({})).await;
    for _ in 0..10 {
        assert_eq!(served.call("acme", "t").await.status, 200);
    }
}

#[tokio::test]
async fn a_program_with_a_process_per_call_reads_to_the_end_and_may_write_several_lines() {
    let script = r#"jq '{continue:{},notices:[{kind:"info",message:.payload.tool_name}]}'"#;
    let served = serve(script, json!({ "process": "per_call" })).await;
    for tool in ["a", "b"] {
        assert_eq!(notice(&served.call("acme", tool).await), tool);
    }
    let failing =
        serve("cat > /dev/null; echo '{\"continue\":{}}'; exit 7", json!({ "process": "per_call" })).await;
    let answer = failing.call("acme", "t").await;
    assert_eq!(answer.status, 502);
    let (code, error) = failing.fault(&answer).await;
    assert_eq!((&*code, &*error), ("Aborted", "the program ended with the exit code 7 before it replied"));
}

#[tokio::test]
async fn a_reply_that_comes_byte_by_byte_is_one_reply() {
    let script = r#"import json, sys, time
for call in sys.stdin:
    reply = {"continue": {}, "request_id": json.loads(call)["context"]["request_id"]}
    for byte in json.dumps(reply) + "\n":
        sys.stdout.write(byte); sys.stdout.flush(); time.sleep(0.001)
"#;
    let served = serve(script, json!({ "command": ["/usr/bin/python3", "./program"] })).await;
    for _ in 0..3 {
        assert_eq!(served.call("acme", "t").await.status, 200);
    }
}

#[tokio::test]
async fn a_wrong_reply_is_no_decision_and_says_what_is_wrong() {
    let script = each_call(
        r#"case $call in
    *'"tool_name":"text"'*) echo 'hello' ;;
    *'"tool_name":"none"'*) echo '{}' ;;
    *'"tool_name":"both"'*) echo '{"continue":{},"cancel":{}}' ;;
    *'"tool_name":"member"'*) echo '{"continue":{},"modify":{"arguments":{}}}' ;;
    *'"tool_name":"kind"'*) echo '{"continue":{},"notices":[{"kind":"loud","message":"m"}]}' ;;
    *'"tool_name":"crash"'*) exit 3 ;;
    *'"tool_name":"closed"'*) kill -9 $$ ;;
    *) reply '{"continue":{}}' ;;
esac"#,
    );
    let served = serve(&script, json!({})).await;
    for (tool, code, error) in [
        ("text", "Internal", "The reply is not valid JSON: expected a value, found `h`"),
        ("none", "Internal", "Either `continue` or `cancel` is required"),
        ("both", "Internal", "/cancel Only one of `continue` and `cancel` may be given"),
        (
            "member",
            "Internal",
            "/modify/arguments Unknown member `arguments`; known here: tool_name, args, extra",
        ),
        ("kind", "Internal", "/notices/0/kind `kind` must be one of allow, block, warn, info"),
        ("crash", "Aborted", "the program ended with the exit code 3 before it replied"),
        ("closed", "Aborted", "the program ended by signal 9 before it replied"),
    ] {
        let answer = served.call("acme", tool).await;
        assert_eq!(answer.status, 502, "{tool}");
        let (found, said) = served.fault(&answer).await;
        assert!(found == code && said.contains(error), "{tool}: {found} {said}");
        assert_eq!(served.call("acme", "t").await.status, 200, "the next call after {tool}");
    }
}

#[tokio::test]
async fn what_a_program_writes_to_standard_error_is_in_the_log_without_secrets() {
    let script = each_call(&format!(
        "echo \"word $WORD; config $call\" >&2; printf '%05000d\\n' 1 >&2; echo short >&2; {CONTINUE}"
    ));
    let served = serve(&script, json!({ "env": { "WORD": "${RUNNERS_OWN}" } })).await;
    served.call("acme", "t").await;
    served.runner.wait_for("short").await;
    let lines = served.runner.lines();
    let first = lines.iter().find(|line| line["stream"] == "stderr").expect("it is logged");
    assert_eq!((&first["plugin"], &first["tenant"]), (&json!("program"), &json!("acme")));
    let log = Value::Array(lines).to_string();
    assert!(log.contains("word ***; config "), "{log}");
    assert!(!log.contains(SECRET) && !log.contains("a-word-of-the-configuration"), "{log}");
    assert!(!log.contains(&"0".repeat(4097)), "a long line is cut");
}

/// By a program that isn't ours.
fn sha256(text: &str) -> String {
    let mut command = std::process::Command::new("sh");
    let ran = command.args(["-c", "printf %s \"$1\" | sha256sum", "sh", text]).output().expect("sh runs");
    String::from_utf8(ran.stdout).expect("text").split(' ').next().expect("a digest").to_owned()
}

#[tokio::test]
async fn a_file_that_was_changed_is_not_run() {
    let script = each_call(CONTINUE);
    let members = json!({ "sha256": { "program": sha256(&script) }, "process": "per_call" });
    let served = serve(&script, members).await;
    assert_eq!(served.call("acme", "t").await.status, 200);
    std::fs::write(served.directory.path().join("program"), format!("{script}#")).unwrap();
    let answer = served.call("acme", "t").await;
    assert_eq!(answer.status, 503);
    let (code, error) = served.fault(&answer).await;
    assert!(code == "Unavailable" && error.contains("/program has the SHA-256 digest"), "{code} {error}");
}

#[tokio::test]
async fn a_program_keeps_every_rule_of_the_protocol() {
    // Shells read a line byte by byte, which takes seconds for 16 MiB.
    let script = r#"import json, sys
for call in sys.stdin:
    print(json.dumps({"continue": {}, "request_id": json.loads(call)["context"]["request_id"]}), flush=True)
"#;
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), script, &json!({ "command": ["/usr/bin/python3", "./program"] }));
    let runner = run(directory.path()).await;
    let ran =
        Folder::new().run(&["conformance", &runner.address, "--name", "program", "--timeout", "20s"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn a_mistake_in_the_file_is_named_with_its_key() {
    let folder = Folder::new();
    let program = |members: &str| {
        format!(
            "plugins: [{{ name: p, version: 1.0.0, command: [cat], points: [before_tool_call], {members} }}]"
        )
    };
    for (text, expected) in [
        ("a: [".to_owned(), "f.yaml: is not a YAML mapping"),
        ("plugins: []".to_owned(), "plugins: at least one plugin is required"),
        (program("process: often"), "plugins[0].process: unknown variant `often`"),
        (program("limits: { memory: much }"), "plugins[0].limits.memory: `much` is not a size"),
        (program("limits: { cpu: 10ms }"), "plugins[0].limits.cpu: must be at least 1s"),
        (program("limits: { parallel: 0 }"), "plugins[0].limits.parallel: must be above 0"),
        (program("sha256: { f: abc }"), "f needs a digest of 64 hexadecimal digits"),
        (program("read: [nothing]"), "plugins[0].read: there is no file"),
        (program("env: { HOME: /root }"), "plugins[0].env: the runner sets HOME itself"),
        (program("env: { KEY: '${NOT_SET}' }"), "plugins[0].env/KEY"),
        (
            program("read: [.]").replace("plugins", "data_dir: homes\nplugins"),
            "is in `data_dir` or contains it",
        ),
        (program("").replace("before_tool_call", "before_tool"), "`before_tool` is not a point"),
        (program("").replace("1.0.0", "one"), "plugins[0].version: `one` is not a semantic version"),
        (program("").replace("cat", "./cat"), "plugins[0].command: there is no file"),
        (
            program("").replace("cat", "f.yaml"),
            "there is no program `f.yaml` in /usr/local/bin:/usr/bin:/bin: give its path; for the file beside the \
             runner's file, write `./f.yaml` in `command`",
        ),
        (program("").replace("cat", "bin/cat"), "plugins[0].command: bin/cat must begin with / or ./"),
        (program("").replace("cat", "./f.yaml"), "f.yaml is not executable: use `chmod +x`"),
        (
            program("").replace("cat", "no-such"),
            "there is no program `no-such` in /usr/local/bin:/usr/bin:/bin",
        ),
        (program("").replace("[cat]", "[sh, ./no-such]"), "plugins[0].command: there is no file"),
        (program(&format!("sha256: {{ f.yaml: '{}' }}", "0".repeat(64))), "f.yaml has the SHA-256 digest"),
        (program("limits: { memory: 1KiB }"), "plugins[0].limits.memory: must be at least 1MiB"),
        (
            program("limits: { programs: 2 }"),
            "plugins[0].limits.parallel: must be at most `programs`, which is 2",
        ),
        (
            program("").replace("plugins", "data_dir: /usr/homes\nplugins"),
            "data_dir: every program may read /usr",
        ),
        (program("").replace("plugins", "data_dir: f.yaml\nplugins"), "f.yaml: "),
    ] {
        folder.write("f.yaml", &text);
        let ran = folder.run(&["runner", "stdio", "f.yaml", "--listen", "unix:///no/such/folder/s"]).await;
        assert_eq!(ran.code, Some(2), "{text}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{text}: {}", ran.stderr);
    }
    folder.write("f.yaml", &program("").replace("plugins", "data_dir: homes\nplugins"));
    let ran = folder.run(&["runner", "stdio", "f.yaml", "--listen", "http://127.0.0.1:0"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("listen at a Unix socket"), "{ran:?}");
}

#[tokio::test]
async fn a_reply_that_comes_before_the_call_was_read_is_taken() {
    let script = format!(r#"{FUNCTIONS}called "$(dd bs=4096 count=1 2> /dev/null)"; {CONTINUE}"#);
    for process in ["persistent", "per_call"] {
        // Without its end, a process per call has not replied.
        let script = if process == "per_call" { script.clone() } else { format!("{script}; sleep 60") };
        let served = serve(&script, json!({ "process": process, "limits": { "time": "10s" } })).await;
        let answer = served.call_with("acme", "t", json!({ "text": "x".repeat(1 << 20) })).await;
        assert_eq!(answer.status, 200, "{process}: {answer:?}");
        let answer = served.call("acme", "t").await;
        assert_eq!(answer.status, 200, "{process}: {answer:?}");
    }
}

#[tokio::test]
async fn a_reply_to_another_call_is_none_and_a_line_too_many_is_logged() {
    let script = each_call(
        r#"case $call in
    *'"tool_name":"other"'*) echo '{"continue":{},"request_id":"another"}' ;;
    *'"tool_name":"twice"'*) reply '{"continue":{}}'; reply '{"continue":{}}' ;;
    *) printf '%s' "$call" | jq -c '{continue:{},request_id:.context.request_id}' ;;
esac"#,
    );
    let served = serve(&script, json!({})).await;
    assert_eq!(served.call("acme", "own").await.status, 200);
    let answer = served.call("acme", "other").await;
    let (code, error) = served.fault(&answer).await;
    assert!(code == "Internal" && error.contains("has the `request_id` another"), "{code} {error}");
    assert_eq!(served.call("acme", "own").await.status, 200);
    assert_eq!(served.call("acme", "twice").await.status, 200);
    // The second line comes when it comes.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(served.call("acme", "own").await.status, 200);
    served
        .runner
        .wait_for("the program wrote something that no call asked for, so it is started again")
        .await;
}

#[tokio::test]
async fn a_program_that_is_gone_is_unavailable() {
    let members = json!({ "command": ["./program"], "process": "per_call" });
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "#!/bin/sh\ncat > /dev/null\necho '{\"continue\":{}}'\n", &members);
    let program = directory.path().join("program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let served = serve_in(directory).await;
    assert_eq!(served.call("acme", "t").await.status, 200);
    std::fs::remove_file(program).unwrap();
    let answer = served.call("acme", "t").await;
    assert_eq!(answer.status, 503);
    let (code, error) = served.fault(&answer).await;
    assert!(code == "Unavailable" && error.contains("can't be started: there is no file"), "{code} {error}");
}

#[tokio::test]
async fn a_runner_serves_several_programs_at_one_address() {
    let directory = tempfile::tempdir().unwrap();
    let entry = |name: &str, code: &str| {
        let reply = json!({ "cancel": { "code": code, "message": "No." } });
        let script = each_call(&format!("reply '{reply}'"));
        json!({
            "name": name, "version": "1.0.0", "command": ["sh", "-c", script], "points": ["before_tool_call"],
        })
    };
    let file = json!({ "data_dir": "homes", "plugins": [entry("program", "ONE"), entry("other", "TWO")] });
    std::fs::write(directory.path().join("runner.yaml"), file.to_string()).unwrap();
    let runner = run(directory.path()).await;
    for (plugin, code) in [("program", "ONE"), ("other", "TWO")] {
        let ran = Folder::new()
            .run(&["plugin", "test", &runner.address, "--name", plugin, "before_tool_call", "--tool", "t"])
            .await;
        assert!(ran.stdout.contains(&format!("CANCEL  {code}")), "{ran:?}");
    }
}
