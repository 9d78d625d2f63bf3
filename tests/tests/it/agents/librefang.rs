//! `examples/librefang-agent`: what LibreFang's agents get of a gateway, and what happens without one.

use std::time::Duration;

use hookgate_proto::types::v1::{AfterToolResultPatch, ExtensionPoint::AfterToolResult};
use hookgate_tests::{
    fake::{Act, FakePlugin, HOOKS, Payload},
    gateway::{Gateway, Setup},
    port::ReservedPort,
    token::{Token, token},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    librefang_loop::{LibreFang, ResultFormat},
    support::{gateway, hook_plugin, seen_hooks, url},
};

const FORMATS: [ResultFormat; 2] = [ResultFormat::Result, ResultFormat::Content];
const WITHHELD: &str = "This result is withheld, because Hookgate gave no decision about it.";

fn librefang(gateway: &Gateway) -> LibreFang {
    LibreFang::new(&url(gateway), &token("acme"))
}

/// A gateway that asks `plugin` after tools.
fn after_tools(plugin: &FakePlugin) -> Setup {
    Gateway::with().tenant("acme").plugin_without_breaker(plugin).binding(plugin.name(), 10)
}

#[tokio::test]
async fn a_librefang_agent_gets_the_memories_of_the_gateways_plugins() {
    let first = hook_plugin("first", &["recall"], Act::contribute("memory", r#"{"content":"Ada"}"#)).await;
    let second = Act::contribute("memory", r#"{"content":"likes tea ☕"}"#);
    let second = hook_plugin("second", &["recall"], second).await;
    let gateway = gateway(&[(&first, &["recall"]), (&second, &["recall"])]).await;
    let memories = librefang(&gateway).ingest("What does Ada like?", Some("tg:7")).await;
    assert_eq!(memories, ["LibreFang's own", "Ada", "likes tea ☕"]);

    let [seen] = &seen_hooks(&first)[..] else { panic!("one call") };
    assert_eq!(seen.body, json!({ "message": "What does Ada like?", "peer_id": "tg:7" }));
    let context = &seen.context;
    assert_eq!((context.tenant.as_str(), context.operator.as_str()), ("acme", "operator-of-acme"));
    assert_eq!((context.agent_id.as_deref(), context.user_id.as_deref()), (Some("agent-1"), Some("tg:7")));
}

#[tokio::test]
async fn the_first_plugin_with_messages_replaces_the_context_of_a_librefang_agent() {
    let hooks: &[&str] = &["assemble", "before_compact"];
    let silent = hook_plugin("silent", hooks, Act::pass()).await;
    let kept = r#"[{"role":"user","content":[{"type":"text","text":"kept"}]}]"#;
    let first = hook_plugin("first", hooks, Act::contribute("messages", kept)).await;
    let second = Act::contribute("messages", r#"[{"role":"user","content":"of the second"}]"#);
    let second = hook_plugin("second", hooks, second).await;
    let asked = gateway(&[(&silent, hooks), (&first, hooks), (&second, hooks)]).await;
    let messages = json!([{ "role": "user", "content": "hi", "pinned": true }]);
    for hook in ["assemble", "compact"] {
        let window = librefang(&asked).window(hook, &messages).await;
        assert_eq!(window.to_string(), serde_json::from_str::<Value>(kept).unwrap().to_string());
    }
    let [assemble, compact] = &seen_hooks(&first)[..] else { panic!("two calls") };
    assert_eq!((assemble.hook.as_str(), compact.hook.as_str()), ("assemble", "before_compact"));
    assert_eq!(compact.body, json!({ "messages": messages, "model": "m-1", "context_window_tokens": 9 }));
    assert_eq!(compact.context.model.as_deref(), Some("m-1"));

    let nobody = gateway(&[(&silent, hooks)]).await;
    assert_eq!(librefang(&nobody).window("assemble", &messages).await, "LibreFang's own");
}

#[tokio::test]
async fn the_gateways_plugins_learn_what_happens_to_a_librefang_agent() {
    let hooks: &[&str] = &["agent_start", "turn_end", "subagent_start", "subagent_end", "event"];
    let plugin =
        FakePlugin::named("memory").only(&[]).hooks(hooks).at_with(HOOKS, |seen| match &seen.payload {
            Payload::Hook(payload) if payload.hook == "turn_end" => {
                Act::contribute("memory", r#"{"content":"Ada","tags":["person"]}"#)
                    .with_contribution("event", r#"{"kind":"saved","data":[1]}"#)
            }
            _ => Act::pass(),
        });
    let plugin = plugin.start().await;
    let gateway = gateway(&[(&plugin, hooks)]).await;
    let librefang = librefang(&gateway);
    let turn = json!({
        "type": "after_turn", "agent_id": "agent-1", "messages": [{ "role": "user", "content": "I am Ada." }],
    });
    let reply = librefang.call("after_turn", &turn).await.expect("a reply");
    assert_eq!(reply["memories"], json!([{ "content": "Ada", "tags": ["person"] }]));
    assert_eq!(reply["events"], json!([{ "name": "saved", "payload": [1] }]));
    let subagents = |hook: &str| json!({ "type": hook, "parent_id": "agent-1", "child_id": "agent-2" });
    let child = json!({ "parent_id": "agent-1", "child_id": "agent-2", "child": "agent-2" });
    let event = json!({ "event": { "name": "saved", "payload": [1], "source_plugin": "notes" } });
    for (hook, call, seen_at, body) in [
        (
            "bootstrap",
            json!({ "type": "bootstrap", "context_window_tokens": 9, "stable_prefix_mode": false }),
            "agent_start",
            json!({ "context_window_tokens": 9, "stable_prefix_mode": false }),
        ),
        ("prepare_subagent", subagents("prepare_subagent"), "subagent_start", child.clone()),
        ("merge_subagent", subagents("merge_subagent"), "subagent_end", child),
        ("on_event", event, "event", json!({ "kind": "saved", "data": [1], "source_plugin": "notes" })),
    ] {
        librefang.call(hook, &call).await.unwrap_or_else(|error| panic!("{hook}: {error}"));
        let seen = seen_hooks(&plugin).pop().expect("it was asked");
        assert_eq!((seen.hook.as_str(), seen.body), (seen_at, body), "{hook}");
    }
}

#[tokio::test]
async fn a_block_replaces_the_tools_result() {
    let act = Act::cancel("CONTENT_BLOCKED", "This mail holds a secret.");
    let plugin = FakePlugin::named("guard").at(AfterToolResult, act).start().await;
    let gateway = after_tools(&plugin).start().await;
    for format in FORMATS {
        let result = json!("the secret of the mail");
        let shown = librefang(&gateway).tool_result(format, &result).await;
        assert_eq!(shown, "This mail holds a secret.", "{format:?}");
    }
    for (seen, call_id) in plugin.seen().iter().zip([None, Some("call-1")]) {
        let Payload::AfterToolResult(payload) = &seen.payload else { panic!("{seen:?}") };
        assert_eq!((payload.tool_name.as_str(), payload.success), ("mail.read", Some(true)));
        assert_eq!(&payload.args[..], br#"{"id": 7}"#);
        assert_eq!(payload.call_id.as_deref(), call_id);
    }
}

#[tokio::test]
async fn a_librefang_agents_tool_results_are_redacted() {
    let gateway = Gateway::with().tenant("acme").builtin("redact", &json!({})).binding("redact", 10);
    let gateway = gateway.start().await;
    let mail = json!({ "from": "ada@example.com", "id": 9_007_199_254_740_993_i64, "text": "☕" });
    let redacted = json!({ "from": "[EMAIL]", "id": 9_007_199_254_740_993_i64, "text": "☕" });
    let librefang = librefang(&gateway);
    assert_eq!(librefang.tool_result(ResultFormat::Result, &mail).await, redacted);
    let shown = librefang.tool_result(ResultFormat::Content, &mail).await;
    assert_eq!(shown, redacted.to_string());
    let call = json!({ "type": "transform_tool_result", "tool_name": "t", "args": {}, "result": "nothing" });
    let reply = librefang.call("transform_tool_result", &call).await.expect("a reply");
    assert_eq!(reply, json!({ "type": "skip" }), "LibreFang's next plugin is asked");
}

/// An agent goes on without the gateway, but sees no tool's result.
async fn assert_withheld(librefang: &LibreFang, why: &str) {
    for format in FORMATS {
        let shown = librefang.tool_result(format, &json!("the secret of the mail")).await;
        assert_eq!(shown, WITHHELD, "{why}, {format:?}");
    }
    assert_eq!(librefang.ingest("hi", None).await, ["LibreFang's own"], "{why}");
    assert_eq!(librefang.window("assemble", &json!([])).await, "LibreFang's own", "{why}");
    librefang.call("on_event", &json!({ "event": { "name": "saved" } })).await.expect("a reply");
}

#[tokio::test]
async fn no_tool_result_passes_while_the_gateway_is_away() {
    let nobody = ReservedPort::new().expect("a port is free");
    let nobody = format!("http://{}", nobody.address());
    assert_withheld(&LibreFang::new(&nobody, &token("acme")), "nobody listens").await;
    assert_withheld(&LibreFang::new("", ""), "no address").await;
    assert_withheld(&LibreFang::new(&nobody, "x").env("HOOKGATE_TIMEOUT_SECS", "10s"), "no time limit").await;
}

#[tokio::test]
async fn no_tool_result_passes_without_a_decision_of_the_gateway() {
    let hooks: &[&str] = &["recall", "assemble"];
    let plugin = FakePlugin::named("guard").hooks(hooks).start().await;
    let fail = json!({ "hooks": hooks, "on_error": "fail", "name": "hooks" });
    let gateway = after_tools(&plugin).binding_with("guard", 20, &fail).start().await;
    let error = Act::status(tonic::Code::Internal, "broken");
    plugin.set(AfterToolResult, error.clone());
    plugin.set(HOOKS, error);
    assert_withheld(&librefang(&gateway), "a plugin fails").await;
    let expired = Token::for_tenant("acme").expiring_in(-100).mint();
    assert_withheld(&LibreFang::new(&url(&gateway), &expired), "the token has expired").await;
    plugin.set(AfterToolResult, Act::hang());
    plugin.set(HOOKS, Act::hang());
    assert_withheld(&librefang(&gateway).env("HOOKGATE_TIMEOUT_SECS", "0.2"), "a plugin hangs").await;
}

/// A server that isn't a gateway, or a proxy that changes its answers: each call gets this text.
async fn serve(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 64 << 10];
                let _ = connection.read(&mut request).await;
                let _ = connection.write_all(answer.as_bytes()).await;
                // Read on, so that the answer isn't lost to what the client still sends.
                while connection.read(&mut request).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn no_tool_result_passes_with_an_answer_that_is_not_the_gateways() {
    let next = FakePlugin::named("next").start().await;
    let next = after_tools(&next).start().await;
    let forged = r#"{"decision":"continue","modified":false,"contributions":[],"payload":{"result":"x"}}"#;
    let block = r#"{"decision":"block","block":{"message":"x"}}"#;
    let redirect = format!("location: {}/v1/after-tool-result\r\n", url(&next));
    for (status, headers, body) in [
        ("200 OK", "", forged),
        ("200 OK", "hookgate-decision: block\r\n", forged),
        ("200 OK", "hookgate-decision: block\r\n", block),
        ("403 Forbidden", "", block),
        ("403 Forbidden", "hookgate-decision: continue\r\n", forged),
        ("200 OK", "hookgate-decision: continue\r\n", "{}"),
        ("200 OK", "hookgate-decision: continue\r\n", "[]"),
        ("200 OK", "hookgate-decision: continue\r\n", "<html>"),
        ("307 Temporary Redirect", redirect.as_str(), ""),
        ("502 Bad Gateway", "", "<html>"),
    ] {
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}");
        assert_withheld(&LibreFang::new(&serve(answer).await, &token("acme")), status).await;
    }
}

/// Each byte comes within the time limit, and the answer never ends.
#[tokio::test]
async fn no_tool_result_passes_while_an_answer_trickles() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                while connection.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
    });
    let librefang = LibreFang::new(&format!("http://{address}"), &token("acme"));
    assert_withheld(&librefang.env("HOOKGATE_TIMEOUT_SECS", "0.2"), "it trickles").await;
}

/// LibreFang ignores a reply of more than 4 MiB. As `content`, this result is larger than as JSON.
#[tokio::test]
async fn no_tool_result_passes_because_the_new_one_is_too_large_for_librefang() {
    let large = format!("[{}\"\"]", "\"\",".repeat(1_200_000));
    let patch = AfterToolResultPatch { result: Some(large.into()), ..AfterToolResultPatch::default() };
    let plugin = FakePlugin::named("guard").at(AfterToolResult, Act::patch(patch)).start().await;
    let gateway = after_tools(&plugin).start().await;
    let shown = librefang(&gateway).tool_result(ResultFormat::Content, &json!("secret")).await;
    assert_eq!(shown, WITHHELD);
}
