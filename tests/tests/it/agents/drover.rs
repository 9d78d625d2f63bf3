//! `examples/drover-agent`: what drover's runs get of a gateway, and what happens without one.

use hookgate_proto::types::v1::ExtensionPoint::{AfterToolResult, BeforeToolCall};
use hookgate_tests::{
    fake::{Act, FakePlugin, HOOKS, Payload},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};

use super::{
    stand_in::{LARGE, Run, args_patch, name_patch, nobody, result_patch, run},
    support::{hook_plugin, seen_hooks, url},
};

const UNDECIDED: &str = "The tool wasn't run, because Hookgate gave no decision about it.";
const WITHHELD: &str = "This result is withheld, because Hookgate gave no decision about it.";

/// A run of a tenant with these calls of tools.
fn run_of(tenant: &str, calls: Value) -> Value {
    let run_id = format!("run-of-{tenant}");
    json!({ "tenant": tenant, "runId": run_id, "parentRunId": "run-0", "depth": 1, "calls": calls })
}

/// A call of an agent's own tool.
fn mail() -> Value {
    let result = json!({ "content": "from Bob", "data": { "id": LARGE } });
    json!({ "id": "mail.read", "input": { "id": LARGE }, "result": result })
}

/// An agent that has a token of each tenant.
fn agent(url: &str, runs: Value) -> Value {
    let tokens = json!({ "acme": token("acme"), "globex": token("globex") });
    json!({ "url": url, "tokens": tokens, "timeoutMs": 5000, "runs": runs })
}

async fn drover(scenario: &Value) -> Run {
    let tokens = scenario["tokens"].as_object().expect("tokens").values();
    run("drover", scenario, &tokens.filter_map(Value::as_str).collect::<Vec<_>>()).await
}

/// What came of a run of `acme` that calls its own tool.
async fn outcome(gateway: &Gateway) -> Value {
    let mut run = drover(&agent(&url(gateway), json!([run_of("acme", json!([mail()]))]))).await;
    run.outcome[0].take()
}

async fn asking(plugin: &FakePlugin) -> Gateway {
    let gateway = Gateway::with().tenant("acme").tenant("globex").plugin_without_breaker(plugin);
    gateway.binding(plugin.name(), 10).start().await
}

#[tokio::test]
async fn the_gateways_plugins_see_the_tools_of_drovers_runs_and_never_mix_tenants() {
    let plugin = FakePlugin::named("guard")
        .only(&[BeforeToolCall, AfterToolResult])
        .at_with(BeforeToolCall, |seen| match &*seen.call.context.as_ref().expect("it has one").tenant {
            "acme" => Act::cancel("TOOL_NOT_ALLOWED", "Not for acme."),
            _ => Act::pass(),
        })
        .start()
        .await;
    let gateway = asking(&plugin).await;
    let tenants = ["acme", "globex"].into_iter().cycle().take(10);
    let runs: Vec<_> = tenants.clone().map(|tenant| run_of(tenant, json!([mail(), mail()]))).collect();
    let run = drover(&agent(&url(&gateway), json!(runs))).await;
    for (tenant, outcome) in tenants.zip(run.outcome.as_array().expect("a list")) {
        let (seen, runs) = match tenant {
            "acme" => (json!({ "error": "Not for acme." }), 0),
            _ => (json!({ "content": "from Bob", "data": { "id": LARGE } }), 2),
        };
        assert_eq!((&outcome["model"][0], &outcome["model"][1]), (&seen, &seen));
        let expected = vec![json!({ "id": "mail.read", "input": { "id": LARGE } }); runs];
        assert_eq!(outcome["ran"], json!(expected), "each tool that isn't blocked runs once");
    }
    for seen in plugin.seen() {
        let context = seen.call.context.expect("it has one");
        assert_eq!(context.run_id, Some(format!("run-of-{}", context.tenant)));
        assert_eq!((context.parent_run_id.as_deref(), context.depth), (Some("run-0"), Some(1)));
        assert_eq!((context.user_id.as_deref(), context.agent_id.as_deref()), (Some("ada"), Some("clerk")));
        assert_eq!(context.labels["cwd"], "/srv/work");
        let args = format!(r#"{{"id":{LARGE}}}"#);
        match seen.payload {
            Payload::BeforeToolCall(call) => {
                assert_eq!(&call.args[..], args.as_bytes());
                assert!(matches!(call.call_id.as_deref(), Some("call-1" | "call-2")));
            }
            Payload::AfterToolResult(result) => {
                assert_eq!((&result.args[..], result.success), (args.as_bytes(), Some(true)));
                let sent: Value = serde_json::from_slice(&result.result).expect("JSON");
                assert_eq!(sent, json!({ "content": "from Bob", "data": { "id": LARGE } }));
                assert!(result.duration_ms.is_some());
            }
            payload => panic!("{payload:?}"),
        }
    }
}

#[tokio::test]
async fn what_the_gateways_plugins_change_reaches_drover() {
    let plugin = FakePlugin::named("rewriter")
        .at(BeforeToolCall, Act::patch(args_patch(&json!({ "id": LARGE, "limit": 1 }))))
        .at(AfterToolResult, Act::patch(result_patch(&json!({ "content": "from [NAME]" }))))
        .start()
        .await;
    let gateway = asking(&plugin).await;
    let outcome = outcome(&gateway).await;
    assert_eq!(outcome["ran"], json!([{ "id": "mail.read", "input": { "id": LARGE, "limit": 1 } }]));
    assert_eq!(outcome["model"], json!([{ "content": "from [NAME]" }]));
}

#[tokio::test]
async fn a_drover_run_is_guarded_by_builtin_plugins() {
    let rules = json!({ "default": "allow", "rules": [{ "name": "no-shell", "tools": ["shell"], "action": "deny" }] });
    let gateway = Gateway::with().tenant("acme").builtin("tool-policy", &rules).builtin("redact", &json!({}));
    let gateway = gateway.binding("tool-policy", 10).binding("redact", 20).start().await;
    let calls = json!([
        { "id": "shell", "input": {}, "result": { "content": "x" } },
        { "id": "mail.read", "input": {}, "result": { "content": "from ada@example.com" } },
        { "id": "mail.find", "input": {}, "fails": "ada@example.com is unknown" },
        { "id": "mail.send", "input": {}, "fails": "no network" },
        { "id": "mail.move", "input": {}, "throws": "ada@example.com is full" },
        { "id": "mail.drop", "input": {}, "throws": "no folder" },
    ]);
    let run = drover(&agent(&url(&gateway), json!([run_of("acme", calls)]))).await;
    let model = json!([
        { "error": "Rule 'no-shell' denies this call of tool 'shell'." }, { "content": "from [EMAIL]" },
        { "error": "[EMAIL] is unknown" }, { "error": "no network" },
        { "error": "[EMAIL] is full" }, { "error": "no folder" },
    ]);
    assert_eq!(run.outcome[0]["model"], model);
    assert_eq!(run.outcome[0]["ran"].as_array().map(Vec::len), Some(5));
}

#[tokio::test]
async fn a_changed_error_of_drovers_tool_stays_an_error() {
    let plugin = FakePlugin::named("rewriter").start().await;
    let gateway = asking(&plugin).await;
    let calls = json!([
        { "id": "mail.send", "input": {}, "fails": "no network" },
        { "id": "mail.read", "input": {}, "result": { "content": "no mail", "isError": true } },
    ]);
    for (patch, seen) in [
        (json!({ "content": "try later" }), json!({ "error": "try later" })),
        (json!("try later"), json!({ "error": "try later" })),
        (json!({ "content": "sent", "isError": false }), json!({ "content": "sent" })),
    ] {
        plugin.set(AfterToolResult, Act::patch(result_patch(&patch)));
        let run = drover(&agent(&url(&gateway), json!([run_of("acme", calls.clone())]))).await;
        assert_eq!(run.outcome[0]["model"], json!([seen, seen]), "{patch}");
    }
}

#[tokio::test]
async fn a_block_is_the_tools_error_in_a_drover_run() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = asking(&plugin).await;
    for (point, runs) in [(BeforeToolCall, 0), (AfterToolResult, 1)] {
        plugin.set(point, Act::cancel("CONTENT_BLOCKED", "Not on your plan."));
        let outcome = outcome(&gateway).await;
        assert_eq!(outcome["model"], json!([{ "error": "Not on your plan." }]), "{point:?}");
        assert_eq!(outcome["ran"].as_array().map(Vec::len), Some(runs), "{point:?}");
        plugin.set(point, Act::pass());
    }
    plugin.set(BeforeToolCall, Act::patch(name_patch("mail.peek")));
    let outcome = outcome(&gateway).await;
    assert_eq!((&outcome["model"], &outcome["ran"]), (&json!([{ "error": UNDECIDED }]), &json!([])));
}

#[tokio::test]
async fn a_plugin_answers_instead_of_drovers_tool_and_for_its_own() {
    let cache = Act::cancel("", "").with_result(r#"{"content":"from the cache"}"#);
    let cache = FakePlugin::named("cache").tools(&["memory.find"]).at(BeforeToolCall, cache).start().await;
    let gateway = asking(&cache).await;
    let foreign = json!({ "id": "memory.find", "foreign": true, "input": { "about": "Bob" } });
    let mut scenario = agent(&url(&gateway), json!([run_of("acme", json!([mail(), foreign]))]));
    scenario["offersTools"] = json!(true);
    let run = drover(&scenario).await;
    let answer = json!({ "content": "from the cache" });
    assert_eq!(run.outcome[0]["model"], json!([answer, answer]));
    assert_eq!(run.outcome[0]["ran"], json!([]));
    assert_eq!(run.outcome[0]["tools"], json!(["mail.read", "memory.find"]));
    let results = cache.seen().iter().filter(|seen| seen.point == AfterToolResult).count();
    assert_eq!(results, 2, "the result of a tool that didn't run is judged too");
}

#[tokio::test]
async fn no_tool_of_drover_runs_without_a_decision_and_no_result_passes() {
    let plugin = FakePlugin::named("guard").only(&[BeforeToolCall, AfterToolResult]).start().await;
    let gateway = asking(&plugin).await;
    let (_port, nobody) = nobody();
    let runs = json!([run_of("acme", json!([mail()]))]);
    let down = agent(&nobody, runs.clone());
    let mut expired = agent(&url(&gateway), runs.clone());
    expired["tokens"]["acme"] = json!(Token::for_tenant("acme").expiring_in(-100).mint());
    let unknown = agent(&url(&gateway), json!([run_of("initech", json!([mail()]))]));
    for (scenario, why) in [
        (down, "no decision at beforeToolCall"),
        (expired, "TOKEN_EXPIRED"),
        (unknown, "the token source failed"),
    ] {
        let run = drover(&scenario).await;
        assert_eq!(run.outcome[0]["model"], json!([{ "error": UNDECIDED }]), "{run:?}");
        assert_eq!(run.outcome[0]["ran"], json!([]), "{run:?}");
        assert!(run.log.contains(why), "{run:?}");
    }
    let mut short = agent(&url(&gateway), runs);
    short["timeoutMs"] = json!(500);
    for (point, runs, seen) in [(BeforeToolCall, 0, UNDECIDED), (AfterToolResult, 1, WITHHELD)] {
        for act in [Act::status(tonic::Code::Internal, "broken"), Act::hang()] {
            plugin.set(point, act);
            let run = drover(&short).await;
            assert_eq!(run.outcome[0]["model"], json!([{ "error": seen }]), "{run:?}");
            assert_eq!(run.outcome[0]["ran"].as_array().map(Vec::len), Some(runs), "{run:?}");
        }
        plugin.set(point, Act::pass());
    }
    let mut offering = agent(&nobody, json!([]));
    offering["runs"] = json!([run_of("acme", json!([]))]);
    offering["offersTools"] = json!(true);
    let failed = drover(&offering).await;
    assert!(failed.outcome["startFailed"].is_string(), "nobody knows the gateway's tools: {failed:?}");
}

#[tokio::test]
async fn the_gateways_plugins_learn_what_happens_to_a_drover_run() {
    let hooks: &[&str] = &["run_start", "run_end", "event", "before_compact"];
    let kept = json!([{ "role": "user", "content": "kept" }]);
    let act = FakePlugin::named("memory").only(&[]).hooks(hooks).at_with(HOOKS, |seen| match &seen.payload {
        Payload::Hook(payload) if payload.hook == "before_compact" => {
            Act::contribute("messages", r#"[{"role":"user","content":"kept"}]"#)
        }
        _ => Act::pass(),
    });
    let memory = act.start().await;
    let gateway = Gateway::with().tenant("acme").plugin_without_breaker(&memory);
    let gateway = gateway.binding_with("memory", 1, &json!({ "hooks": hooks })).start().await;
    let mut run = run_of("acme", json!([mail()]));
    run["history"] = json!([{ "role": "user", "content": "hi" }]);
    let mut scenario = agent(&url(&gateway), json!([run]));
    scenario["events"] = json!(["tool_call_end"]);
    let ran = drover(&scenario).await;
    assert_eq!(ran.outcome[0]["history"], kept);
    let mut seen = seen_hooks(&memory);
    seen.sort_by(|one, other| one.hook.cmp(&other.hook));
    let [compact, event, end, start] = &seen[..] else { panic!("four calls") };
    assert_eq!((&compact.hook, &start.hook), (&"before_compact".into(), &"run_start".into()));
    assert_eq!(compact.body, json!({ "messages": [{ "role": "user", "content": "hi" }] }));
    let data = json!({ "toolName": "mail.read", "runId": "run-of-acme", "ts": 1 });
    assert_eq!(event.body, json!({ "kind": "tool_call_end", "data": data }), "other kinds aren't sent");
    assert_eq!((&*end.hook, &end.body), ("run_end", &json!({ "outcome": "success" })));
    assert_eq!(start.context.run_id.as_deref(), Some("run-of-acme"));
}

#[tokio::test]
async fn a_drover_run_goes_on_where_nobody_learns_of_it() {
    let memory =
        hook_plugin("memory", &["run_start", "run_end"], Act::status(tonic::Code::Internal, "x")).await;
    let required = json!({ "hooks": ["run_start", "run_end"], "on_error": "fail" });
    let gateway = Gateway::with().tenant("acme").plugin_without_breaker(&memory);
    let gateway = gateway.binding_with("memory", 1, &required).start().await;
    let outcome = outcome(&gateway).await;
    assert_eq!(outcome["model"], json!([{ "content": "from Bob", "data": { "id": LARGE } }]));
}
