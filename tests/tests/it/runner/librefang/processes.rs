//! Processes of LibreFang's scripts: one for each call, persistent ones and sidecars; their output, end and limits.

use serde_json::{Value, json};

use super::{
    super::support::{until_gone, until_running},
    support::{LibrefangPlugin, keeps_saying, says},
};

const INGEST: &str = "[hooks]\ningest = \"i.py\"\n";

#[tokio::test]
async fn each_call_has_a_process_of_its_own_whose_input_ends() {
    let served = LibrefangPlugin::new(INGEST).file("i.py", &says("os.getpid()")).serve(&["recall"]).await;
    let first = served.memory("acme", "a", "hi").await;
    assert_ne!(served.memory("acme", "a", "hi").await, first);
}

#[tokio::test]
async fn the_last_line_that_is_json_is_the_reply_and_the_others_are_logged() {
    let script = r#"import json, sys
print(json.loads(sys.stdin.read())["message"])
"#;
    let served = LibrefangPlugin::new(INGEST).file("i.py", script).serve(&["recall"]).await;
    let memory = |content: &str| format!("{{\"memories\": [{{\"content\": \"{content}\"}}]}}");
    for (output, expected) in [
        (memory("one"), Some("one")),
        (format!("loading\n{}", memory("two")), Some("two")),
        (format!("{}\n{}", memory("old"), memory("three")), Some("three")),
        (format!("{}\nbye {{", memory("four")), Some("four")),
        ("no JSON at all".to_owned(), None),
        ("42".to_owned(), None),
        ("[1]".to_owned(), None),
    ] {
        let answer = served.recall("acme", "a", &output).await;
        assert_eq!(answer.status, 200, "{output}: {answer:?}");
        let found = answer.body["contributions"][0]["value"]["content"].as_str();
        assert_eq!(found, expected, "{output}");
    }
    served.runner.wait_for("loading").await;
    served.runner.wait_for("bye {").await;
    let answer = served.recall("acme", "a", "  ").await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let (code, error) = served.fault(&answer).await;
    assert_eq!((&*code, &*error), ("Aborted", "the program ended without a reply"));
}

#[tokio::test]
async fn a_script_that_fails_is_a_failed_step_with_its_last_words() {
    let script =
        "import sys\nprint('{\"memories\": [{\"content\": \"no\"}]}')\nsys.exit('the index is gone')\n";
    let served = LibrefangPlugin::new(INGEST).file("i.py", script).serve(&["recall"]).await;
    let answer = served.recall("acme", "a", "hi").await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let line = served.fault_line(&answer).await;
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["error"], "the program ended with the exit code 1 before it replied");
    assert_eq!(line["stderr"], "the index is gone");
}

#[tokio::test]
async fn a_script_that_is_late_ends_with_what_it_started() {
    let script = "import subprocess, sys\nsubprocess.run(['sh', '-c', 'sleep 31338; true'])\n";
    let manifest = format!("hook_timeout_secs = 1\n{INGEST}");
    let served = LibrefangPlugin::new(&manifest).file("i.py", script).serve(&["recall"]).await;
    let (answer, ()) = tokio::join!(served.recall("acme", "a", "hi"), until_running("31338"));
    assert_eq!(answer.status, 504, "{answer:?}");
    let (code, error) = served.fault(&answer).await;
    assert!(code == "DeadlineExceeded" && error.contains("within 1s"), "{code} {error}");
    until_gone("31338").await;
}

#[tokio::test]
async fn a_script_that_writes_without_end_is_ended() {
    let served = LibrefangPlugin::new("[hooks]\nruntime = \"bash\"\ningest = \"i.sh\"\n")
        .file("i.sh", "exec yes 31339\n")
        .serve(&["recall"])
        .await;
    let answer = served.recall("acme", "a", "hi").await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let (code, error) = served.fault(&answer).await;
    assert!(code == "ResourceExhausted" && error.contains("longer than 4194304 bytes"), "{code} {error}");
    until_gone("31339").await;
}

#[tokio::test]
async fn a_failed_call_is_repeated_as_often_as_the_manifest_says() {
    let script = r#"import os, sys
path = os.path.join(os.environ["HOME"], "attempts")
attempts = int(open(path).read()) if os.path.exists(path) else 0
open(path, "w").write(str(attempts + 1))
if attempts < 2:
    sys.exit("attempt " + str(attempts))
print('{"memories": [{"content": "third"}]}')
"#;
    let manifest = "[hooks]\ningest = \"i.py\"\nmax_retries = 2\nretry_delay_ms = 100\n";
    let served = LibrefangPlugin::new(manifest).file("i.py", script).serve(&["recall"]).await;
    let begin = std::time::Instant::now();
    assert_eq!(served.memory("acme", "a", "hi").await, "third");
    assert!(begin.elapsed().as_millis() >= 300, "it waits 100 ms, then 200 ms");

    let once = LibrefangPlugin::new(INGEST).file("i.py", script).serve(&["recall"]).await;
    assert_eq!(once.recall("acme", "a", "hi").await.status, 502);
}

#[tokio::test]
async fn a_persistent_script_answers_line_by_line_and_is_started_again_once() {
    let script = keeps_saying("(os._exit(3) if call['message'] == 'crash' and count > 1 else count)");
    let script = script.replace("    print(", "    print('not JSON', flush=True)\n    print(");
    let script = format!("{script}    print('nor is this', flush=True)\n");
    let manifest = format!("persistent_subprocess = true\n{INGEST}");
    let served = LibrefangPlugin::new(&manifest).file("i.py", &script).serve(&["recall"]).await;
    assert_eq!(served.memory("acme", "a", "one").await, "1");
    assert_eq!(served.memory("acme", "a", "two").await, "2");
    // The fresh one gets the call.
    assert_eq!(served.memory("acme", "a", "crash").await, "1");
    assert_eq!(served.memory("globex", "a", "one").await, "1");
    served.runner.wait_for("not JSON").await;
}

#[tokio::test]
async fn a_persistent_script_that_replied_twice_answers_no_other_call_with_that() {
    let script = keeps_saying("f\"{count} {call['message']}\"")
        + "    print(json.dumps({'memories': [{'content': 'late'}]}), flush=True)\n";
    let manifest = format!("persistent_subprocess = true\n{INGEST}");
    let served = LibrefangPlugin::new(&manifest).file("i.py", &script).serve(&["recall"]).await;
    assert_eq!(served.memory("acme", "a", "one").await, "1 one");
    // The second line comes when it comes.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(served.memory("acme", "a", "two").await, "1 two");
}

#[tokio::test]
async fn a_persistent_script_that_never_answers_fails() {
    let manifest = format!("persistent_subprocess = true\n{INGEST}");
    let script = "import sys\nfor line in sys.stdin:\n    sys.exit(4)\n";
    let served = LibrefangPlugin::new(&manifest).file("i.py", script).serve(&["recall"]).await;
    let answer = served.recall("acme", "a", "hi").await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(served.fault(&answer).await.0, "Aborted");
    // A script that reads to the end of its input can't be persistent, whatever its manifest says.
    let whole = LibrefangPlugin::new(&manifest)
        .file("i.py", &says("'whole'"))
        .entry(&json!({ "process": "per_call" }))
        .serve(&["recall"])
        .await;
    assert_eq!(whole.memory("acme", "a", "hi").await, "whole");
}

#[tokio::test]
async fn a_sidecar_answers_requests_by_their_ids() {
    let script = r#"import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    id, method, params = request["id"], request["method"], request["params"]
    print("a line that is no reply", flush=True)
    print(json.dumps({"id": id + 1000, "ok": {}}), flush=True)
    if params.get("user_message") == "error":
        reply = {"error": "no such index"}
    elif method == "ingest":
        said = json.dumps([method, params, os.getpid()])
        reply = {"ok": {"recalled_memories": [{"content": said}]}}
    elif method == "assemble":
        reply = {"ok": {"messages": params["messages"][-1:]}}
    else:
        reply = {"ok": {}}
    print(json.dumps({"id": id, **reply}), flush=True)
    print("and one after it", flush=True)
"#;
    let plugin = LibrefangPlugin::new("").file("sidecar.py", script);
    let entry = json!({
        "directory": null, "version": "1.0.0", "command": ["/usr/bin/python3", "./plugin/sidecar.py"],
    });
    let served = plugin.entry(&entry).serve(&["recall", "assemble", "turn_end", "agent_start"]).await;
    let mut processes = Vec::new();
    for _ in 0..2 {
        let said: Value = serde_json::from_str(&served.memory("acme", "a", "hi").await).expect("it is JSON");
        assert_eq!(said[0], "ingest");
        assert_eq!(said[1], json!({ "agent_id": "a", "user_message": "hi", "peer_id": null }));
        processes.push(said[2].clone());
    }
    assert_eq!(processes[0], processes[1], "one process answers both");
    let body = json!({ "messages": [{ "content": "1" }, { "content": "2" }] });
    let answer = served.hook("acme", "assemble", body.clone()).await;
    assert_eq!(answer.body["contributions"][0]["value"], json!([{ "content": "2" }]), "{answer:?}");
    for (hook, body) in [("turn_end", body), ("agent_start", json!({ "context_window_tokens": 9 }))] {
        let answer = served.hook("acme", hook, body).await;
        assert_eq!((answer.status, &answer.body["contributions"]), (200, &json!([])), "{answer:?}");
    }
    let answer = served.recall("acme", "a", "error").await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let (code, error) = served.fault(&answer).await;
    assert_eq!((&*code, &*error), ("Aborted", "the sidecar answered an error: no such index"));
    let said = served.memory("globex", "a", "hi").await;
    assert!(!said.contains(&processes[0].to_string()), "another tenant has a sidecar of its own");
}
