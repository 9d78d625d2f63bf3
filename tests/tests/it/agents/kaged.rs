//! `examples/kaged-agent`: what kaged's sessions get of a gateway, and what happens without one.

use std::time::Duration;

use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, HOOKS},
    gateway::Gateway,
    port::ReservedPort,
    token::token,
};
use serde_json::{Value, json};

use super::{
    kaged_daemon::{Kaged, manifest},
    support::{gateway, hook_plugin, seen_hooks, url},
};

const HOOK_NAMES: &[&str] = &["session_start", "session_idle", "before_compact", "after_compact"];

fn inject(content: &str) -> Act {
    Act::contribute("inject", &json!({ "content": content }).to_string())
}

/// The daemon, with what the operator configured.
async fn kaged(gateway: &Gateway) -> Kaged {
    let mut kaged = Kaged::start(&[]).await;
    kaged.notify("config.update", json!({ "url": url(gateway), "token": token("acme") })).await;
    kaged
}

#[test]
fn the_manifest_is_one_that_kaged_accepts() {
    let manifest = manifest();
    assert_eq!((&manifest["name"], &manifest["kaged_api"]), (&json!("hookgate"), &json!(1)));
    assert_eq!(manifest["roles"], json!(["observer"]));
    assert_eq!(
        manifest["hooks"],
        json!(["on_session_start", "on_session_idle", "pre_compact", "post_compact"])
    );
    for (setting, range) in
        [("shutdown_timeout_sec", 1..=30), ("health_interval_sec", 5..=300), ("hook_timeout_sec", 10..=60)]
    {
        assert!(manifest[setting].as_u64().is_some_and(|seconds| range.contains(&seconds)), "{setting}");
    }
    let names =
        |schema: &str| manifest[schema]["properties"].as_object().expect("an object").keys().collect();
    let (project, system): (Vec<_>, Vec<_>) = (names("config_schema"), names("system_config_schema"));
    assert!(project.is_empty(), "a project must not say who gets the operator's token: {project:?}");
    assert_eq!(system, ["token", "url"]);
}

#[tokio::test]
async fn a_kaged_session_gets_what_the_gateways_plugins_inject() {
    let first = hook_plugin("first", &["session_start"], inject("Answer in French.")).await;
    let second = hook_plugin(
        "second",
        &["session_start"],
        inject("Ada is here.").with_contribution("inject", r#"{"content":"☕"}"#),
    )
    .await;
    let gateway = gateway(&[(&first, &["session_start"]), (&second, &["session_start"])]).await;
    let mut kaged = kaged(&gateway).await;
    let answer = kaged.hook("on_session_start", json!({})).await;
    assert_eq!(answer, json!({ "inject": "Answer in French.\n\nAda is here.\n\n☕" }));

    let [seen] = &seen_hooks(&first)[..] else { panic!("one call") };
    let context = &seen.context;
    assert_eq!((context.tenant.as_str(), context.operator.as_str()), ("acme", "operator-of-acme"));
    assert_eq!(context.project_id.as_deref(), Some("proj-1"));
    assert_eq!(context.agent_path.as_deref(), Some("primary/helper"));
    assert_eq!(context.session_id.as_deref(), Some("ses-1"));
    assert_eq!(context.correlation_id.as_deref(), Some("req-1"));

    first.set(HOOKS, Act::pass());
    second.set(HOOKS, Act::pass());
    assert_eq!(kaged.hook("on_session_start", json!({})).await, json!({}));
}

#[tokio::test]
async fn the_gateways_plugins_see_a_kaged_session_rest_and_its_compactions() {
    let act = inject("Go on with the tea.")
        .with_contribution("retain", r#"["m-1","m-2"]"#)
        .with_contribution("retain", r#"["m-3"]"#);
    let memory = hook_plugin("memory", &["before_compact", "after_compact"], act).await;
    let idle = hook_plugin("idle", &["session_idle"], inject("nobody hears this")).await;
    let gateway =
        gateway(&[(&memory, &["before_compact", "after_compact"]), (&idle, &["session_idle"])]).await;
    let mut kaged = kaged(&gateway).await;

    let transcript = "**Operator:** fix it\n**Agent:** done";
    let text = json!([{ "role": "transcript", "content": transcript }]);
    let list = json!([{ "role": "user", "content": "fix it" }]);
    for (sent, expected) in [(json!(transcript), &text), (list.clone(), &list)] {
        assert_eq!(kaged.hook("on_session_idle", json!({ "transcript": sent })).await, Value::Null);
        let seen = seen_hooks(&idle).pop().expect("it was asked");
        assert_eq!(seen.body, json!({ "messages": expected }));
    }
    let compaction = json!({
        "messages_being_compacted": transcript, "messages_remaining": list, "strategy": "summarize",
        "trigger": "token_limit", "role": "observer",
    });
    for (hook, seen_at) in [("pre_compact", "before_compact"), ("post_compact", "after_compact")] {
        let answer = kaged.hook(hook, compaction.clone()).await;
        assert_eq!(answer, json!({ "retain": ["m-1", "m-2", "m-3"], "inject": "Go on with the tea." }));
        let seen = seen_hooks(&memory).pop().expect("it was asked");
        let body = json!({
            "messages": text, "messages_remaining": list, "strategy": "summarize", "trigger": "token_limit",
        });
        assert_eq!((seen.hook.as_str(), seen.body), (seen_at, body));
    }
}

#[tokio::test]
async fn a_kaged_session_goes_on_while_the_gateway_is_away() {
    let plugin = FakePlugin::named("memory")
        .only(&[])
        .hooks(HOOK_NAMES)
        .at(HOOKS, inject("Ada is here."))
        .start()
        .await;
    let required = json!({ "hooks": HOOK_NAMES, "on_error": "fail" });
    let gateway = Gateway::with().tenant("acme").plugin_without_breaker(&plugin);
    let gateway = gateway.binding_with("memory", 1, &required).start().await;
    let nobody = ReservedPort::new().expect("a port is free");
    let nobody = format!("http://{}", nobody.address());
    let token = token("acme");
    let mut kaged = Kaged::start(&[("HOOKGATE_URL", &nobody), ("HOOKGATE_TOKEN", &token)]).await;
    let hooks = [
        ("on_session_start", json!({})),
        ("on_session_idle", json!({ "transcript": "hi" })),
        ("pre_compact", json!({ "messages_being_compacted": "hi", "messages_remaining": "" })),
        ("post_compact", json!({ "messages_being_compacted": "hi", "messages_remaining": "" })),
    ];
    for (hook, params) in hooks {
        assert_eq!(kaged.hook(hook, params).await, Value::Null, "{hook}");
    }
    let answer = kaged.request("kaged.hook.on_session_start", json!({})).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");

    // The operator corrects the address.
    let answer = kaged.request("config.update", json!({ "url": url(&gateway) })).await;
    assert_eq!(answer["result"], Value::Null);
    assert_eq!(kaged.hook("on_session_start", json!({})).await["inject"], "Ada is here.");
    plugin.set(HOOKS, Act::status(tonic::Code::Internal, "broken"));
    let answer = kaged.request("kaged.hook.on_session_start", json!({})).await;
    assert_eq!(answer["error"]["code"], -32000);
    let message = answer["error"]["message"].as_str().expect("a text");
    assert!(message.starts_with("PLUGIN_ERROR: "), "{message}");
}

#[tokio::test]
async fn a_kaged_session_does_not_wait_for_a_slow_plugin() {
    let gate = Gate::closed();
    let slow = hook_plugin("slow", HOOK_NAMES, inject("late").behind(&gate)).await;
    let gateway =
        Gateway::with().tenant("acme").plugin_with(&slow, &json!({ "limits": { "timeout": "25s" } }));
    let gateway = gateway.binding_with("slow", 1, &json!({ "hooks": HOOK_NAMES })).start().await;
    let mut kaged = kaged(&gateway).await;
    kaged.hook_timeout(Duration::from_millis(200));
    assert_eq!(kaged.hook("on_session_start", json!({})).await, Value::Null);

    let waiting = kaged.send("kaged.hook.on_session_start", json!({})).await;
    assert_eq!(kaged.request("ping", json!({})).await["result"], json!({ "status": "ok" }));
    gate.open();
    assert_eq!(kaged.answer(waiting).await["result"], json!({ "inject": "late" }), "the ping came first");

    slow.set(HOOKS, Act::hang());
    kaged.send("kaged.hook.on_session_start", json!({})).await;
    slow.wait_until(|counts| counts.calls == 3).await;
    let answer = kaged.request("shutdown", json!({})).await;
    assert_eq!(answer["result"], json!({ "status": "ok" }), "while a hook waits");
    assert!(kaged.ended().await.success());
}

#[tokio::test]
async fn a_kaged_plugin_ends_when_it_is_told_to_and_when_the_daemon_is_gone() {
    let mut kaged = Kaged::start(&[]).await;
    kaged.notify("shutdown", json!({})).await;
    assert!(kaged.ended().await.success());
    let mut kaged = Kaged::start(&[]).await;
    kaged.hang_up();
    assert!(kaged.ended().await.success());
}

#[tokio::test]
async fn what_kaged_sends_wrongly_is_answered_with_the_errors_of_json_rpc() {
    let mut kaged = Kaged::start(&[]).await;
    for (method, code) in
        [("memory.retain", -32601), ("toString", -32601), ("kaged.hook.pre_compact", -32602)]
    {
        assert_eq!(kaged.request(method, json!({})).await["error"]["code"], code, "{method}");
    }
    for (line, code) in [("[]\n", -32600), ("null\n", -32600), ("{\"id\":1}\n", -32600), ("hi\n", -32700)] {
        kaged.write_text(line).await;
        let answer = kaged.line().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{line}");
    }
    kaged.notify("projects.activated", json!({})).await;
    assert_eq!(
        kaged.request("ping", json!({})).await["result"]["status"],
        "ok",
        "no answer to a notification"
    );
}

#[tokio::test]
async fn a_line_of_kaged_may_come_in_any_pieces() {
    let idle = hook_plugin("idle", &["session_idle"], Act::pass()).await;
    let gateway = gateway(&[(&idle, &["session_idle"])]).await;
    let mut kaged = kaged(&gateway).await;
    // Some readers of lines end one at U+2028.
    let transcript = "né ☕\u{2028}next";
    let call = json!({
        "jsonrpc": "2.0", "id": 77, "method": "kaged.hook.on_session_idle", "params": { "transcript": transcript },
    });
    for byte in format!("{call}\n").into_bytes() {
        kaged.write_bytes(&[byte]).await;
    }
    assert_eq!(kaged.answer(77).await["result"], Value::Null);
    let seen = seen_hooks(&idle).pop().expect("it was asked");
    assert_eq!(seen.body["messages"][0]["content"], transcript);
}
