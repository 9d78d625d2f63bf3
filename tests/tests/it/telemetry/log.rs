//! Tests the log line of every call that did not simply continue.

use std::time::Duration;

use hookgate_proto::types::v1::{BeforeToolCallPatch, NoticeKind};
use hookgate_tests::{
    agent::{HttpAgent, path},
    fake::{Act, FakePlugin, notice},
    gateway::{Gateway, Line, Setup},
    token::token,
};
use serde_json::{Value, json};

use crate::telemetry::support::{PARENT, POINT, TRACE, payload, traced_call};

/// A gateway with the tenants acme and globex, for which no call counts as slow, however busy the machine
/// is.
fn tenants() -> Setup {
    crate::telemetry::support::tenants().set("/telemetry/slow_invocation", "60s")
}

/// The lines of all calls so far.
fn lines_of_calls(gateway: &Gateway) -> Vec<Line> {
    gateway.log().lines().into_iter().filter(|line| line.field("decision").is_some()).collect()
}

/// The line of the call with this id.
async fn line_of(gateway: &Gateway, request_id: &str) -> Line {
    let is_it = |line: &Line| {
        line.field("decision").is_some()
            && line.field("request_id").and_then(Value::as_str) == Some(request_id)
    };
    gateway.log().wait_for(is_it).await
}

/// The line without what differs from run to run, after checking that it is there.
fn golden(line: &Line) -> Value {
    let mut json: Value = serde_json::from_str(&line.text).expect("a line is a JSON object");
    for name in ["timestamp", "request_id", "plan_digest"] {
        assert!(json[name].take().is_string(), "{name}: {}", line.text);
    }
    assert!(json["duration_ms"].take().is_f64(), "{}", line.text);
    for step in json["steps"].as_array_mut().expect("there are steps") {
        for name in ["duration_us", "queue_us"] {
            assert!(step[name].take().is_u64(), "{name}: {}", line.text);
        }
    }
    json
}

async fn call(agent: &HttpAgent, context: &Value) -> String {
    let request = agent.request(http::Method::POST, path(POINT)).header("content-type", "application/json");
    let request = request.header("traceparent", PARENT).header("x-request-id", "corr-1");
    let body = json!({ "context": context, "payload": payload() }).to_string();
    let answer = HttpAgent::send(request.body(body)).await.expect("the gateway answers");
    answer.header("x-request-id").expect("every answer has it").to_owned()
}

fn step(plugin: &str, mode: &str, outcome: &str) -> Value {
    json!({
        "plugin": plugin, "binding": plugin, "mode": mode, "outcome": outcome,
        "duration_us": null, "queue_us": null,
    })
}

#[tokio::test]
async fn a_block_is_one_line_with_every_fact_of_it() {
    let patch = BeforeToolCallPatch { args: Some("\"PATCHED\"".into()), ..Default::default() };
    let rewriter = FakePlugin::named("rewriter").at(POINT, Act::patch(patch)).start().await;
    let broken = FakePlugin::named("broken").at(POINT, Act::no_verdict()).start().await;
    let remark = notice(NoticeKind::Block, "WHY", &"long ".repeat(400), &json!({ "detail": "DETAILS" }));
    let cancel = Act::cancel("TOOL_NOT_ALLOWED", &"x".repeat(5_000)).with_notice(remark);
    let guard = FakePlugin::named("guard").at(POINT, cancel).start().await;
    let gateway = tenants()
        .plugin(&rewriter)
        .plugin(&broken)
        .plugin(&guard)
        .binding("rewriter", 10)
        .binding_with("broken", 20, &json!({ "mode": "advise" }))
        .binding("guard", 30)
        .start()
        .await;
    let context = json!({
        "session_id": "session-1", "run_id": "run-1", "agent_id": "agent-1", "user_id": "user-1",
    });
    let id = call(&gateway.http(&token("acme")), &context).await;

    let mut rewritten = step("rewriter", "enforce", "modified");
    rewritten["changed"] = json!(["args"]);
    let mut skipped = step("broken", "advise", "failed_open");
    skipped["reason"] = json!("bad_reply");
    let mut cancelled = step("guard", "enforce", "cancelled");
    cancelled["sanitised"] = json!(1); // its message was too long
    let line = line_of(&gateway, &id).await;
    let mut json = golden(&line);
    let notices = json["notices"].take();
    let expected = json!({
        "timestamp": null, "level": "WARN", "message": "a call was blocked", "event": "decision.block",
        "request_id": null, "correlation_id": "corr-1", "trace_id": TRACE,
        "tenant": "acme", "operator": "operator-of-acme",
        "session": "session-1", "run": "run-1", "agent": "agent-1", "user": "user-1",
        "point": "before_tool_call", "tool": "fs.read", "call_id": "c1",
        "decision": "block", "status": 403, "code": "TOOL_NOT_ALLOWED", "plugin": "guard",
        "detail": "x".repeat(1024), "revision": 1, "plan_digest": null, "duration_ms": null, "slow": false,
        "steps": [rewritten, skipped, cancelled],
        "notices": null,
    });
    assert_eq!(json, expected);
    let of_guard = notices.as_array().expect("there are").iter().find(|notice| notice["plugin"] == "guard");
    let of_guard = of_guard.expect("its own notice is there");
    assert_eq!((&of_guard["kind"], &of_guard["code"]), (&json!("block"), &json!("WHY")));
    assert_eq!(of_guard["message"].as_str().map(str::len), Some(256), "cut short");
    for payload in ["/etc", "PATCHED", "DETAILS"] {
        assert!(!line.text.contains(payload), "no payload: {}", line.text);
    }
    assert_eq!(lines_of_calls(&gateway).len(), 1);
}

#[tokio::test]
async fn a_call_that_simply_continues_has_no_line() {
    let patch = BeforeToolCallPatch { args: Some("1".into()), ..Default::default() };
    let rewriter = FakePlugin::named("rewriter").at(POINT, Act::patch(patch)).start().await;
    let gateway = tenants().plugin(&rewriter).binding("rewriter", 10).start().await;
    let agent = gateway.http(&token("acme"));
    for _ in 0..3 {
        assert_eq!(agent.call(POINT, payload()).await.status, 200);
    }
    let exit = gateway.stop().await;
    let lines: Vec<_> =
        exit.log.lines().into_iter().filter(|line| line.field("decision").is_some()).collect();
    assert!(lines.is_empty(), "{lines:?}");
}

#[tokio::test]
async fn every_other_end_of_a_call_is_one_line_of_its_event_and_level() {
    let plugin = FakePlugin::named("plugin").start().await;
    let setup = tenants().plugin(&plugin).binding("plugin", 10);
    let gateway = setup.set("/plugins/0/limits", json!({ "timeout": "2s" })).start().await;
    let agent = gateway.http(&token("acme"));
    let remark = |kind| notice(kind, "N", "a remark", &Value::Null);
    for (act, event, level, code) in [
        (Act::cancel("X", "no"), "decision.block", "INFO", Some("X")),
        (Act::no_verdict(), "decision.error", "WARN", Some("PLUGIN_BAD_REPLY")),
        (Act::hang(), "decision.error", "WARN", Some("PLUGIN_TIMEOUT")),
        (Act::pass().with_notice(remark(NoticeKind::Info)), "decision.continue", "INFO", None),
        (Act::pass().with_notice(remark(NoticeKind::Allow)), "decision.continue", "INFO", None),
        (Act::pass().with_notice(remark(NoticeKind::Warn)), "decision.continue", "INFO", None),
        (Act::pass().with_notice(remark(NoticeKind::Block)), "decision.continue", "INFO", None),
    ] {
        plugin.set(POINT, act);
        let answer = agent.call(POINT, payload()).await;
        let line = line_of(&gateway, answer.header("x-request-id").expect("every answer has it")).await;
        assert_eq!(line.field("event"), Some(&json!(event)), "{}", line.text);
        assert_eq!(line.level(), Some(level), "{}", line.text);
        assert_eq!(line.field("code").and_then(Value::as_str), code, "{}", line.text);
    }
    let answer = agent.post(POINT, &json!({ "payload": { "tool_name": 7 } })).await;
    let line = line_of(&gateway, answer.header("x-request-id").expect("every answer has it")).await;
    assert_eq!((line.field("code"), line.level()), (Some(&json!("PAYLOAD_INVALID")), Some("INFO")));
    assert_eq!(line.field("tenant"), Some(&json!("acme")), "who it was is known: {}", line.text);
    let answer = gateway.http("bad").call(POINT, payload()).await;
    let line = line_of(&gateway, answer.header("x-request-id").expect("every answer has it")).await;
    assert_eq!(
        (line.field("event"), line.field("reason")),
        (Some(&json!("auth.refused")), Some(&json!("malformed")))
    );
    assert_eq!(lines_of_calls(&gateway).len(), 9, "one line each");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_line_with_the_running_step() {
    let pass = FakePlugin::named("pass").start().await;
    let slow = FakePlugin::named("slow").at(POINT, Act::hang()).start().await;
    let setup = tenants().plugin(&pass).plugin(&slow).binding("pass", 10).binding("slow", 20);
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    let call = tokio::spawn(async move { traced_call(&agent).await });
    slow.wait_until(|counts| counts.calls == 1).await;
    call.abort();
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("decision.cancelled"))).await;
    let json = golden(&line);
    assert_eq!((&json["status"], &json["code"]), (&json!(499), &json!("CANCELLED")));
    assert_eq!((&json["tenant"], &json["tool"]), (&json!("acme"), &json!("fs.read")));
    let steps = [step("pass", "enforce", "continued"), step("slow", "enforce", "cancelled_by_caller")];
    assert_eq!(json["steps"], json!(steps));
}

#[tokio::test]
async fn a_slow_call_is_a_warning_with_its_steps() {
    let slow =
        FakePlugin::named("slow").at(POINT, Act::pass().after(Duration::from_millis(60))).start().await;
    let setup = tenants().plugin(&slow).binding("slow", 10).set("/telemetry/slow_invocation", "50ms");
    let gateway = setup.start().await;
    assert_eq!(gateway.http(&token("acme")).call(POINT, payload()).await.status, 200);
    let line = gateway.log().wait_for(|line| line.field("slow") == Some(&json!(true))).await;
    assert_eq!((line.level(), line.field("event")), (Some("WARN"), Some(&json!("decision.continue"))));
    assert_eq!(golden(&line)["steps"], json!([step("slow", "enforce", "continued")]));
}

#[tokio::test]
async fn an_observers_verdict_and_its_failure_are_lines_of_their_own() {
    let observer = FakePlugin::named("observer").at(POINT, Act::cancel("X", "would")).start().await;
    // Observers are connected before the start completes only if they are required.
    let setup = tenants().plugin_with(&observer, &json!({ "required": true }));
    let gateway = setup.binding_with("observer", 10, &json!({ "mode": "observe" })).start().await;
    let agent = gateway.http(&token("acme"));
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    let line =
        gateway.log().wait_for(|line| line.field("event") == Some(&json!("decision.would_block"))).await;
    assert_eq!(
        would_block(&line),
        ["observer", "acme", "before_tool_call", "observe", "X"].map(|fact| json!(fact))
    );

    observer.set(POINT, Act::no_verdict());
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("step.failed"))).await;
    assert_eq!((line.level(), line.field("reason")), (Some("WARN"), Some(&json!("bad_reply"))));
    assert!(lines_of_calls(&gateway).is_empty(), "the calls themselves simply continued");
}

/// The fields of an event `decision.would_block`.
fn would_block(line: &Line) -> [Value; 5] {
    ["plugin", "tenant", "point", "mode", "code"].map(|name| line.field(name).cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_cancel_that_only_advises_is_the_same_line_as_an_observers_whatever_the_chain_decides() {
    let adviser = FakePlugin::named("adviser").at(POINT, Act::cancel("X", "would")).start().await;
    let guard = FakePlugin::named("guard").start().await;
    let setup = tenants().plugin_with(&adviser, &json!({ "required": true })).plugin(&guard);
    let advise = json!({ "mode": "advise" });
    let gateway = setup.binding_with("adviser", 10, &advise).binding("guard", 20).start().await;
    let agent = gateway.http(&token("acme"));
    for (act, status) in [(Act::pass(), 200), (Act::cancel("Y", "no"), 403), (Act::no_verdict(), 502)] {
        guard.set(POINT, act);
        let answer = agent.call(POINT, payload()).await;
        assert_eq!(answer.status, status, "{answer:?}");
        let id = json!(answer.header("x-request-id").expect("every answer has it"));
        let is_it = |line: &Line| {
            line.field("event") == Some(&json!("decision.would_block"))
                && line.field("request_id") == Some(&id)
        };
        let line = gateway.log().wait_for(is_it).await;
        assert_eq!(
            would_block(&line),
            ["adviser", "acme", "before_tool_call", "advise", "X"].map(|fact| json!(fact))
        );
        assert_eq!(line.level(), Some("INFO"));
        let call = line_of(&gateway, id.as_str().expect("it is text")).await;
        let step = &golden(&call)["steps"][0];
        assert_eq!((&step["outcome"], &step["code"]), (&json!("would_block"), &json!("X")), "{}", call.text);
    }
    let exit = gateway.stop().await;
    let lines = exit.log.lines();
    let told = lines.iter().filter(|line| line.field("event") == Some(&json!("decision.would_block")));
    assert_eq!(told.count(), 3, "one line each");
}

#[tokio::test]
async fn every_plugin_of_the_configuration_is_a_line_at_the_start_with_where_it_is() {
    let (one, off) = (FakePlugin::named("one").start().await, FakePlugin::named("off").start_unix().await);
    let (first, second) = (one.endpoint(), "http://127.0.0.1:1");
    let gateway = tenants()
        .plugin_with(&one, &json!({ "endpoint": null, "endpoints": [first, second] }))
        .plugin_with(&off, &json!({ "enabled": false }))
        .builtin("content-policy", &json!({ "redact_emails": true }))
        .binding("one", 10)
        .start()
        .await;
    gateway.log().wait_for(|line| line.message() == Some("started")).await;
    let lines = gateway.log().lines();
    let told = |event: &str| -> Vec<_> {
        let of_it = lines.iter().filter(|line| line.field("event") == Some(&json!(event)));
        of_it
            .map(|line| (line.level(), line.field("plugin").cloned(), line.field("endpoints").cloned()))
            .collect()
    };
    let registered =
        |plugin: &str, endpoints: &str| (Some("INFO"), Some(json!(plugin)), Some(json!(endpoints)));
    assert_eq!(
        told("plugin.registered"),
        [
            registered("one", &format!("{first} {second}")),
            registered("off", &off.endpoint()),
            registered("content-policy", "builtin:content-policy"),
        ]
    );
    assert_eq!(told("plugin.disabled"), [(Some("INFO"), Some(json!("off")), None)]);
}
