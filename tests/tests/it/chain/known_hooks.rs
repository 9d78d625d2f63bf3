//! The known hooks, over real sockets: what their bodies are, and what plugins may contribute.

use std::collections::{BTreeMap, BTreeSet};

use hookgate::payload::known_hooks::KNOWN_HOOKS;
use hookgate_tests::{
    agent::HttpAnswer,
    fake::{Act, FakePlugin, Gate, HOOKS, Payload},
    gateway::Gateway,
    repository,
    token::token,
};
use http::Method;
use serde_json::{Value, json};

use crate::edge::support::send;

/// A body that each known hook takes, beside members that its schema doesn't name.
fn body(hook: &str) -> Value {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    match hook {
        "recall" => json!({ "message": "hi", "peer_id": null }),
        "turn_end" => json!({ "messages": messages, "outcome": "completed" }),
        "session_start" | "session_idle" | "session_end" => json!({ "messages": messages }),
        "run_start" | "run_end" => json!({ "outcome": "failed" }),
        "subagent_start" | "subagent_end" => json!({ "child": "run-2" }),
        "before_compact" | "after_compact" | "assemble" => {
            json!({ "messages": messages, "strategy": "summary", "trigger": "tokens", "context_window_tokens": 9 })
        }
        "agent_start" | "agent_end" => {
            json!({ "tools": [{ "name": "fs.read" }], "context_window_tokens": 9 })
        }
        "event" => json!({ "kind": "phase", "data": [1] }),
        other => panic!("{other} has no sample here"),
    }
}

/// A value of each known kind.
fn value(kind: &str) -> &'static str {
    match kind {
        "memory" => r#"{"content":"Ada","weight":9007199254740993}"#,
        "inject" => r#"{"content":"Answer in French."}"#,
        "messages" => r#"[{"role":"user","content":"hi"}]"#,
        "retain" => r#"["m-1"]"#,
        "event" => r#"{"kind":"noted","data":null}"#,
        other => panic!("{other} has no sample here"),
    }
}

/// The kinds of each known hook.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let kinds = |kinds: &[&str]| kinds.iter().map(ToString::to_string).collect();
    KNOWN_HOOKS.iter().map(|hook| (hook.name.to_owned(), kinds(hook.kinds))).collect()
}

async fn run(gateway: &Gateway, hook: &str, body: &Value) -> HttpAnswer {
    let asked = gateway.http(&token("acme")).request(Method::POST, &format!("/v1/hooks/{hook}"));
    let body = json!({ "body": body }).to_string();
    send(asked.header("content-type", "application/json").body(body)).await
}

/// A gateway with these plugins at all known hooks, in this order and mode.
async fn gateway(plugins: &[&FakePlugin], mode: &str) -> Gateway {
    let hooks: Vec<_> = known().into_keys().collect();
    let mut setup = Gateway::with().tenant("acme");
    for (priority, plugin) in (1..).zip(plugins) {
        let members = json!({ "hooks": hooks, "mode": mode });
        setup = setup.plugin_without_breaker(plugin).binding_with(plugin.name(), priority, &members);
    }
    setup.start().await
}

async fn plugin(name: &str) -> FakePlugin {
    let known = known();
    let hooks: Vec<_> = known.keys().map(String::as_str).collect();
    FakePlugin::named(name).only(&[]).hooks(&hooks).start().await
}

#[tokio::test]
async fn every_known_hook_takes_its_own_kinds_and_no_others() {
    let plugin = plugin("contributes").await;
    let gateway = gateway(&[&plugin], "advise").await;
    let all: BTreeSet<_> = known().into_values().flatten().collect();
    for (hook, kinds) in known() {
        for kind in &all {
            plugin.set(HOOKS, Act::contribute(kind, value(kind)));
            let answer = run(&gateway, &hook, &body(&hook)).await;
            let expected = match kinds.contains(kind) {
                true => format!(
                    r#""contributions":[{{"plugin":"contributes","kind":"{kind}","value":{}}}]"#,
                    value(kind)
                ),
                false => r#""contributions":[]"#.to_owned(),
            };
            assert!(answer.text.contains(&expected), "{kind} at {hook}: {}", answer.text);
            let step = &answer.body["steps"][0];
            assert_eq!(step["reason"] == json!("bad_reply"), !kinds.contains(kind), "{kind} at {hook}");
        }
        let [.., seen] = &plugin.seen()[..] else { panic!("it was called") };
        let Payload::Hook(payload) = &seen.payload else { panic!("{seen:?}") };
        assert_eq!((&payload.hook, serde_json::from_slice(&payload.body).ok()), (&hook, Some(body(&hook))));
    }
}

#[tokio::test]
async fn an_agent_that_needs_one_window_takes_the_first_of_those_that_have_one() {
    let (empty, fails, first, second) =
        (plugin("empty").await, plugin("fails").await, plugin("first").await, plugin("second").await);
    fails.set(HOOKS, Act::status(tonic::Code::Internal, "no"));
    let window = |text: &str| json!([{ "role": "user", "content": text }]).to_string();
    first.set(HOOKS, Act::contribute("messages", &window("first")));
    second.set(
        HOOKS,
        Act::contribute("inject", value("inject")).with_contribution("messages", &window("second")),
    );
    let gateway = gateway(&[&empty, &fails, &first, &second], "advise").await;
    for hook in ["assemble", "before_compact"] {
        let answer = run(&gateway, hook, &body(hook)).await;
        let contributions = answer.body["contributions"].as_array().expect("a list");
        let messages = contributions.iter().find(|one| one["kind"] == json!("messages")).expect("two");
        assert_eq!((&messages["plugin"], contributions.len()), (&json!("first"), 3), "{hook}: {answer:?}");
    }
}

#[tokio::test]
async fn an_observer_of_a_hook_keeps_no_agent_waiting() {
    let plugin = plugin("background").await;
    let gate = Gate::closed();
    plugin.set(HOOKS, Act::contribute("memory", value("memory")).behind(&gate));
    let gateway = gateway(&[&plugin], "observe").await;
    for hook in ["turn_end", "session_idle", "after_compact"] {
        let answer = run(&gateway, hook, &body(hook)).await;
        assert_eq!((answer.status, &answer.body["contributions"]), (200, &json!([])), "{hook}");
        assert_eq!(answer.body["steps"][0]["outcome"], json!("observed"));
    }
    assert_eq!(plugin.counts().finished, 0, "the agent has its answers, and the plugin still works");
    gate.open();
    plugin.wait_until(|counts| counts.finished == 3).await;
}

#[test]
fn the_protocol_lists_every_known_hook_with_its_kinds() {
    let page = std::fs::read_to_string(repository::root().join("docs/protocol.md")).expect("a page");
    let (_, section) = page.split_once("### Known hooks").expect("the section");
    let named = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells: Vec<Vec<_>> = rows.map(|line| line.trim_matches('|').split('|').collect()).collect();
    let mut listed = BTreeMap::new();
    for cells in cells.iter().filter(|cells| cells.len() == 4) {
        for hook in named(cells[0]) {
            listed.insert(hook, named(cells[3]));
        }
    }
    assert_eq!(listed, known());
}
