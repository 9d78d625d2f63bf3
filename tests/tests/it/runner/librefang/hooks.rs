//! What scripts of LibreFang get at hooks and points, and what their replies become.

use serde_json::{Value, json};

use super::support::{LibrefangPlugin, first_memory, says};

#[tokio::test]
async fn an_unmodified_ingest_script_recalls_memories_for_a_message() {
    let script = r#"import json, sys
call = json.loads(sys.stdin.read())
assert sys.stdin.read() == ""
memories = [{"content": json.dumps(call, sort_keys=True)}, {"content": ""}, {"content": "big", "n": 9007199254740993}]
print(json.dumps({"memories": memories}))
"#;
    let plugin =
        LibrefangPlugin::new("[hooks]\ningest = \"hooks/ingest.py\"\n").file("hooks/ingest.py", script);
    let served = plugin.serve(&["recall"]).await;
    let context = json!({ "agent_id": "a:1/2", "session_id": "s-1", "user_id": "u:1/2" });
    let request = json!({ "body": { "message": "Who am I?" }, "context": context });
    let answer = served.hook_with("acme", "recall", &request).await;
    let call: Value = serde_json::from_str(&first_memory(&answer)).expect("it is the call");
    assert_eq!(
        call,
        json!({
            "type": "ingest", "agent_id": "a:1/2", "session_id": "s-1", "message": "Who am I?", "peer_id": "u:1/2",
        })
    );
    assert_eq!(answer.body["contributions"].as_array().expect("a list").len(), 2, "{answer:?}");
    assert!(
        answer.text.contains(r#"{"content":"big","n":9007199254740993}"#)
            || answer.text.contains("9007199254740993")
    );

    let answer = served.hook("acme", "recall", json!({ "message": "hi" })).await;
    let call: Value = serde_json::from_str(&first_memory(&answer)).expect("it is the call");
    assert_eq!((&call["peer_id"], &call["agent_id"]), (&Value::Null, &json!("")));
}

#[tokio::test]
async fn a_node_script_after_a_turn_gives_memories_events_and_a_log_line() {
    let script = r#"const call = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify({
  type: "ok",
  memories: [{ content: `${call.type}: ${call.messages[0].content.length}`, tags: ["a"] }],
  events: [{ name: "saved", payload: { n: 1 } }, { payload: 2 }],
  annotations: { mood: "calm" },
  log: "a line from the turn",
}));
"#;
    let plugin = LibrefangPlugin::new("[hooks]\nruntime = \"node\"\nafter_turn = \"hooks/after_turn.js\"\n")
        .file("hooks/after_turn.js", script)
        .entry(&json!({ "limits": { "memory": "2GiB" } }));
    let served = plugin.serve(&["turn_end"]).await;
    let messages = json!([{ "role": "user", "content": "x".repeat(600) }]);
    let answer = served.hook("acme", "turn_end", json!({ "messages": messages })).await;
    assert_eq!(first_memory(&answer), "after_turn: 600");
    assert_eq!(answer.body["contributions"][0]["value"]["tags"], json!(["a"]));
    assert_eq!(
        answer.body["contributions"][1],
        json!({ "plugin": "program", "kind": "event", "value": { "kind": "saved", "data": { "n": 1 } } })
    );
    assert_eq!(answer.body["contributions"].as_array().map(Vec::len), Some(2), "{answer:?}");
    assert!(!answer.text.contains("mood"), "nothing takes annotations: {answer:?}");
    served.runner.wait_for("a line from the turn").await;
}

#[tokio::test]
async fn shell_scripts_assemble_and_compact_the_context() {
    let script = r#"call=$(cat)
printf '%s' "$call" | jq -c '{messages: (.messages[-1:] + [{role: "system", content: (del(.messages) | tostring)}])}'
"#;
    let manifest = "[hooks]\nruntime = \"bash\"\nassemble = \"a.sh\"\ncompact = \"a.sh\"\n";
    let served =
        LibrefangPlugin::new(manifest).file("a.sh", script).serve(&["assemble", "before_compact"]).await;
    for (hook, kind) in [("assemble", "assemble"), ("before_compact", "compact")] {
        let body = json!({
            "messages": [{ "role": "user", "content": "1" }, { "role": "user", "content": "2" }],
            "system_prompt": "Be brief.", "context_window_tokens": 9000,
        });
        let request = json!({ "body": body, "context": { "agent_id": "a", "model": "m" } });
        let answer = served.hook_with("acme", hook, &request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let contribution = &answer.body["contributions"][0];
        assert_eq!(contribution["kind"], "messages");
        assert_eq!(contribution["value"][0], json!({ "role": "user", "content": "2" }));
        let said = contribution["value"][1]["content"].as_str().expect("a text");
        let call: Value = serde_json::from_str(said).expect("it is the call");
        assert_eq!((&call["type"], &call["agent_id"]), (&json!(kind), &json!("a")));
        assert_eq!(call["context_window_tokens"], 9000);
        assert_eq!(call["system_prompt"], "Be brief.");
        assert_eq!(call["model"], if kind == "compact" { json!("m") } else { Value::Null });
    }
    let answer = served.hook("acme", "assemble", json!({ "messages": [] })).await;
    assert_eq!(answer.body["contributions"].as_array().map(Vec::len), Some(1), "{answer:?}");
}

#[tokio::test]
async fn a_script_without_messages_leaves_the_context_to_the_agent() {
    let served = LibrefangPlugin::new("[hooks]\nassemble = \"a.py\"\n")
        .file("a.py", "print('{\"messages\": []}')\n")
        .serve(&["assemble"])
        .await;
    let answer = served.hook("acme", "assemble", json!({ "messages": [{}] })).await;
    assert_eq!((answer.status, &answer.body["contributions"]), (200, &json!([])));
    served.runner.wait_for("the reply has no `messages`, so the agent's default applies").await;
}

#[tokio::test]
async fn scripts_are_told_of_subagents_and_events() {
    let script = "import sys\nsys.stderr.write('got ' + sys.stdin.read())\nprint('{\"type\": \"ok\"}')\n";
    let manifest = "[hooks]\nprepare_subagent = \"p.py\"\nmerge_subagent = \"p.py\"\non_event = \"p.py\"\n";
    let served = LibrefangPlugin::new(manifest)
        .file("p.py", script)
        .serve(&["subagent_start", "subagent_end", "event"])
        .await;
    for (hook, body, expected) in [
        (
            "subagent_start",
            json!({ "child": "c-1" }),
            r#"got {"type":"prepare_subagent","parent_id":"a-1","child_id":"c-1"}"#,
        ),
        (
            "subagent_end",
            json!({ "child": "c-1", "outcome": "completed" }),
            r#"got {"type":"merge_subagent","parent_id":"a-1","child_id":"c-1","outcome":"completed"}"#,
        ),
        (
            "event",
            json!({ "kind": "saved", "data": { "n": 1 }, "source_plugin": "other" }),
            r#"got {"event":{"name":"saved","payload":{"n":1},"source_plugin":"other"}}"#,
        ),
    ] {
        let request = json!({ "body": body, "context": { "agent_id": "a-1" } });
        let answer = served.hook_with("acme", hook, &request).await;
        assert_eq!((answer.status, &answer.body["contributions"]), (200, &json!([])), "{hook}");
        served.runner.wait_for(expected).await;
    }
}

#[tokio::test]
async fn a_tools_result_is_transformed_in_either_of_two_formats() {
    let script = r#"import json, sys
call = json.loads(sys.stdin.read())
if call["tool_name"] == "documented":
    print(json.dumps({"type": "transformed", "result": {"was": call["result"], "args": call["args"]}}))
elif call["tool_name"] == "newer":
    print(json.dumps({"content": call["content"].upper() + " " + call["tool_use_id"] + " " + call["status"]}))
elif call["tool_name"] == "same":
    print(json.dumps({"content": call["content"]}))
else:
    print(json.dumps({"type": "ok"}))
"#;
    let plugin = LibrefangPlugin::new("[hooks]\ntransform_tool_result = \"t.py\"\n").file("t.py", script);
    let served = plugin.serve_bound(&[json!({})]).await;
    let result = json!({ "n": 1 });
    for (tool, expected) in [
        ("documented", json!({ "was": { "n": 1 }, "args": [2] })),
        ("newer", json!("{\"N\":1} c-1 success")),
        ("same", result.clone()),
        ("other", result.clone()),
    ] {
        let payload =
            json!({ "tool_name": tool, "result": result, "success": true, "args": [2], "call_id": "c-1" });
        let answer = served.tool_result("acme", payload.clone()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let modified = answer.body["modified"] == true;
        let found =
            if modified { answer.body["payload"]["result"].clone() } else { payload["result"].clone() };
        assert_eq!(found, expected, "{tool}: {answer:?}");
    }
}

#[tokio::test]
async fn bootstrap_runs_at_the_start_of_an_agent_and_overrides_what_nobody_set() {
    let bootstrap = r#"import json, sys
call = json.loads(sys.stdin.read())
print(json.dumps({
    "env_overrides": {"WINDOW": str(call["context_window_tokens"]), "FIXED": "changed", "OPERATORS": "changed", "HOME": "/"},
    "ingest_filter": "please",
}))
"#;
    let ingest = says("[os.environ.get(name) for name in ('WINDOW', 'FIXED', 'OPERATORS', 'HOME')]");
    let manifest = "[hooks]\nbootstrap = \"b.py\"\ningest = \"i.py\"\n[env]\nFIXED = \"fixed\"\n";
    let served = LibrefangPlugin::new(manifest)
        .file("b.py", bootstrap)
        .file("i.py", &ingest)
        .entry(&json!({ "env": { "OPERATORS": "kept" } }))
        .serve(&["agent_start", "recall"])
        .await;
    let home = |tenant: &str| served.directory.path().join("homes/program").join(tenant);
    let said =
        |window: &str, tenant: &str| format!("[{window}, 'fixed', 'kept', '{}']", home(tenant).display());
    assert_eq!(served.memory("acme", "a", "hi").await, said("None", "acme"));
    let request = json!({ "body": { "context_window_tokens": 9000 }, "context": { "agent_id": "a" } });
    let answer = served.hook_with("acme", "agent_start", &request).await;
    assert_eq!((answer.status, &answer.body["contributions"]), (200, &json!([])), "{answer:?}");
    assert_eq!(served.memory("acme", "a", "please").await, said("'9000'", "acme"));
    let filtered = served.recall("acme", "a", "hi").await;
    assert_eq!((filtered.status, &filtered.body["contributions"]), (200, &json!([])));
    // Another agent's calls and another tenant's are as before.
    assert_eq!(served.memory("acme", "b", "hi").await, said("None", "acme"));
    assert_eq!(served.memory("globex", "a", "hi").await, said("None", "globex"));
}

#[tokio::test]
async fn bootstrap_may_take_twice_as_long_as_other_scripts() {
    let slow = "import time\ntime.sleep(1.3)\nprint('{}')\n";
    let manifest = "hook_timeout_secs = 1\n[hooks]\nbootstrap = \"s.py\"\ningest = \"s.py\"\n";
    let served = LibrefangPlugin::new(manifest).file("s.py", slow).serve(&["agent_start", "recall"]).await;
    let answer = served.hook("acme", "agent_start", json!({})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(served.recall("acme", "a", "hi").await.status, 504);
}

#[tokio::test]
async fn scripts_are_asked_only_for_the_messages_and_agents_that_the_manifest_names() {
    let manifest = concat!(
        "[hooks]\ningest = \"i.py\"\ningest_filter = \"note\"\ningest_regex = \"(?i)^please\"\n",
        "only_for_agent_ids = [\"3f2a\", \"9c\"]\n"
    );
    let served = LibrefangPlugin::new(manifest).file("i.py", &says("'asked'")).serve(&["recall"]).await;
    for (agent, message, asked) in [
        ("x-3f2a", "Please note this", true),
        ("9c01", "please, a note", true),
        ("x-3f2a", "Please do this", false),
        ("x-3f2a", "note this, please", false),
        ("other", "Please note this", false),
        ("", "Please note this", false),
    ] {
        let answer = served.recall("acme", agent, message).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let is_asked = answer.body["contributions"] != json!([]);
        assert_eq!(is_asked, asked, "{agent}: {message}");
    }
}
