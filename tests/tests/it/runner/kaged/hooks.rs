//! Hooks of kaged: what plugins get, and what their results become.

use serde_json::{Value, json};

use super::support::{KagedPlugin, injected};

const ALL_HOOKS: &str = "hooks: [on_session_start, on_session_idle, pre_compact, post_compact]\n";

#[tokio::test]
async fn a_plugin_keeps_a_transcript_and_injects_it_when_the_next_session_starts() {
    let main = r#"
def handle(message):
    if message["method"] == "kaged.hook.on_session_start":
        path = os.path.expanduser("~/transcript")
        result(message, {"inject": open(path).read()} if os.path.exists(path) else {})
    elif message["method"] == "kaged.hook.on_session_idle":
        open(os.path.expanduser("~/transcript"), "w").write(message["params"]["transcript"])
        result(message, None)

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest(ALL_HOOKS, main);
    let served = plugin.serve(&["session_start", "session_idle"]).await;
    let empty = served.session_start("acme", "primary").await;
    assert_eq!((empty.status, &empty.body["contributions"]), (200, &json!([])), "{empty:?}");
    let messages =
        json!([{ "role": "user", "content": "fix it" }, { "role": "assistant", "content": "done" }]);
    let idle = served.hook("acme", "session_idle", json!({ "messages": messages })).await;
    assert_eq!((idle.status, &idle.body["contributions"]), (200, &json!([])), "{idle:?}");
    let answer = served.session_start("acme", "primary").await;
    assert_eq!(injected(&answer), "**Operator:** fix it\n**Agent:** done");
    let other = served.session_start("globex", "primary").await;
    assert_eq!(other.body["contributions"], json!([]), "{other:?}");
}

#[tokio::test]
async fn a_call_names_the_operator_and_project_agent_and_session_all_or_none() {
    let main = r#"
serve(lambda message: inject(message, message["params"]["_context"]))
"#;
    let served = KagedPlugin::new(main).serve(&["session_start"]).await;
    let context = json!({ "project_id": "p-1", "agent_path": "primary.subagents.a", "session_id": "s-1" });
    let answer = served.hook_with("acme", "session_start", &json!({ "body": {}, "context": context })).await;
    let got: Value = serde_json::from_str(&injected(&answer)).expect("it is JSON");
    let request_id = &answer.body["request_id"];
    let operator = &got["operator_id"];
    assert!(operator.as_str().is_some_and(|operator| !operator.is_empty()), "{got}");
    let expected = json!({
        "operator_id": operator, "project_id": "p-1", "agent_path": "primary.subagents.a", "session_id": "s-1",
        "request_id": request_id,
    });
    assert_eq!(got, expected);
    let answer = served.hook("acme", "session_start", json!({})).await;
    let got: Value = serde_json::from_str(&injected(&answer)).expect("it is JSON");
    let expected = json!({ "operator_id": operator, "request_id": answer.body["request_id"] });
    assert_eq!(got, expected);
    let got = served.injected("acme", "../../escape").await;
    assert_eq!(got["agent_path"], "primary.subagents.%2E%2E%2F%2E%2E%2Fescape");
    assert_eq!(got["project_id"], "acme");
}

#[tokio::test]
async fn an_observer_says_what_a_compaction_keeps_and_what_it_adds() {
    let main = r#"
def handle(message):
    params = message["params"]
    result(message, {"retain": ["m-1"], "inject": json.dumps([message["method"], params["role"],
        params["messages_being_compacted"], params["messages_remaining"], params["strategy"]])})

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest(&format!("roles: [observer]\n{ALL_HOOKS}"), main);
    let served = plugin.serve(&["before_compact", "after_compact"]).await;
    let messages = json!([{ "id": "m-1", "role": "user", "content": "old" }]);
    let body = json!({ "messages": messages, "strategy": "drop", "messages_remaining": "new" });
    for (hook, method) in [("before_compact", "pre_compact"), ("after_compact", "post_compact")] {
        let answer = served.hook("acme", hook, body.clone()).await;
        let expected =
            json!([format!("kaged.hook.{method}"), "observer", "**Operator:** old", "new", "drop"]);
        assert_eq!(serde_json::from_str::<Value>(&injected(&answer)).expect("it is JSON"), expected);
        let retain = &answer.body["contributions"][1];
        assert_eq!((&retain["kind"], &retain["value"]), (&json!("retain"), &json!(["m-1"])));
    }
}

#[tokio::test]
async fn a_compactor_gives_the_messages_and_may_only_replace_those_that_it_got() {
    let main = r#"
def handle(message):
    old = message["params"]["messages_being_compacted"]
    superseded = [one["id"] for one in old] + (["pinned"] if len(old) > 1 else [])
    result(message, {"role": "compactor", "superseded": superseded, "summary": "short",
        "messages": [{"role": "system", "content": "%d messages" % len(old)}]})

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest(&format!("roles: [compactor]\n{ALL_HOOKS}"), main);
    let served = plugin.serve(&["before_compact"]).await;
    let one = json!({ "id": "m-1", "role": "user", "content": "old" });
    let answer = served.hook("acme", "before_compact", json!({ "messages": [one] })).await;
    let contribution = &answer.body["contributions"][0];
    let expected = json!([{ "role": "system", "content": "1 messages" }]);
    assert_eq!(
        (&contribution["kind"], &contribution["value"]),
        (&json!("messages"), &expected),
        "{answer:?}"
    );
    let two = json!({ "id": "m-2", "role": "user", "content": "old" });
    let answer = served.hook("acme", "before_compact", json!({ "messages": [one, two] })).await;
    let (code, error) = served.fault(&answer).await;
    assert_eq!(
        (answer.status, &*code, &*error),
        (502, "Internal", "`superseded` names `pinned`, which is none of the messages to compact")
    );
}

#[tokio::test]
async fn hooks_of_a_tenant_take_turns() {
    let main = r#"
import queue, threading
calls, most = queue.Queue(), 0
threading.Thread(target=lambda: [calls.put(message) for message in messages()] or os._exit(0), daemon=True).start()
while True:
    message = calls.get()
    if message["method"] == "initialize":
        result(message, introduction())
    elif "id" in message:
        time.sleep(0.1)
        most = max(most, calls.qsize())
        inject(message, most)
"#;
    let served = KagedPlugin::new(main).serve(&["session_start"]).await;
    let calls = (0..5).map(|_| served.injected("acme", "primary"));
    assert_eq!(futures::future::join_all(calls).await, [json!(0), json!(0), json!(0), json!(0), json!(0)]);
}
