//! Tests the caller's identity and deadline, and callers that go away (G1, G3, G4, G5).

use std::time::Duration;

use futures::{StreamExt as _, stream};
use hookgate_proto::{
    gateway::v1::BeforeToolCallRequest,
    types::v1::{BeforeToolCallPatch, BeforeToolCallPayload, ExtensionPoint},
};
use hookgate_tests::{
    agent::{HttpAgent, path},
    fake::{Act, FakePlugin, Gate, Seen},
    gateway::Gateway,
    token::token,
};
use http::Method;
use serde_json::{Value, json};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": {} })
}

fn grpc_request() -> BeforeToolCallRequest {
    let payload =
        BeforeToolCallPayload { tool_name: "fs.read".into(), args: "{}".into(), ..Default::default() };
    BeforeToolCallRequest { payload: Some(payload), ..BeforeToolCallRequest::default() }
}

/// The `grpc-timeout` on the wire.
fn time_left(seen: &Seen) -> Duration {
    let text = &seen.metadata["grpc-timeout"];
    let (number, unit) = text.split_at(text.len() - 1);
    let number = number.parse().expect("digits before the unit");
    match unit {
        "u" => Duration::from_micros(number),
        "m" => Duration::from_millis(number),
        "S" => Duration::from_secs(number),
        other => panic!("unit {other} of {text}"),
    }
}

#[tokio::test]
async fn each_plugin_of_a_chain_is_told_of_less_time_than_the_one_before() {
    let slow = || Act::pass().after(Duration::from_millis(30));
    let mut plugins = Vec::new();
    let mut setup = Gateway::with().tenant("acme");
    for (priority, name) in (1..).zip(["a", "b", "c"]) {
        let plugin = FakePlugin::named(name).at(POINT, slow()).start().await;
        setup = setup.plugin(&plugin).binding_with(name, priority, &json!({ "timeout": "60s" }));
        plugins.push(plugin);
    }
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    let body = json!({ "payload": payload() }).to_string();
    let request = agent.request(Method::POST, path(POINT)).header("content-type", "application/json");
    let answer = HttpAgent::send(request.header("hookgate-timeout-ms", "9000").body(body)).await;
    assert_eq!(answer.expect("an answer").status, 200);
    let left: Vec<_> = plugins.iter().map(|plugin| time_left(&plugin.seen()[0])).collect();
    assert!(left[0] <= Duration::from_millis(8950), "50 ms are kept for the answer: {left:?}");
    for pair in left.windows(2) {
        assert!(pair[0] >= pair[1] + Duration::from_millis(25), "{left:?}");
    }
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_the_plugins_call_and_observers_are_told() {
    let hanging = FakePlugin::named("hanging").at(POINT, Act::hang()).start().await;
    let later = FakePlugin::named("later").start().await;
    let observing = FakePlugin::named("observing").start_unix().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&hanging)
        .plugin(&later)
        .plugin(&observing)
        .binding_with("hanging", 1, &json!({ "timeout": "60s" }))
        .binding("later", 2)
        .binding_with("observing", 3, &json!({ "mode": "observe" }))
        .set("/limits/budget", "60s")
        .start()
        .await;

    let agent = gateway.http(&token("acme"));
    let http = tokio::spawn(async move { agent.call(POINT, payload()).await });
    hanging.wait_until(|counts| counts.calls == 1).await;
    http.abort();
    hanging.wait_until(|counts| counts.cancelled == 1).await;

    let mut client = gateway.grpc(&token("acme")).await.client;
    let grpc = tokio::spawn(async move { client.before_tool_call(grpc_request()).await });
    hanging.wait_until(|counts| counts.calls == 2).await;
    grpc.abort();
    hanging.wait_until(|counts| counts.cancelled == 2).await;

    observing.wait_until(|counts| counts.finished == 2).await;
    for seen in observing.seen() {
        let result = seen.call.chain_result.expect("observers are told how it ended");
        assert_eq!(result.code.as_deref(), Some("CANCELLED"), "{result:?}");
    }
    assert_eq!((later.counts().calls, hanging.counts().finished), (0, 0));
}

#[tokio::test]
async fn a_hanging_plugin_is_cut_off_soon_after_its_time_out() {
    const CALLS: usize = 200;
    let limit = Duration::from_secs(1);
    let hanging = FakePlugin::named("hanging").at(POINT, Act::hang()).start().await;
    let binding = json!({ "timeout": "1s", "mode": "enforce", "on_error": "skip" });
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_without_breaker(&hanging)
        .binding_with("hanging", 1, &binding)
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    let agent = &agent;
    let mut took: Vec<Duration> = stream::iter(0..CALLS)
        .map(|_| async move {
            let answer = agent.call(POINT, payload()).await;
            let step = &answer.body["steps"][0];
            assert_eq!(
                (&step["outcome"], &step["reason"]),
                (&json!("failed_open"), &json!("timeout")),
                "{answer:?}"
            );
            Duration::from_micros(step["duration_us"].as_u64().expect("a number"))
        })
        // As many as a tenant has permits.
        .buffer_unordered(48)
        .collect()
        .await;
    took.sort();
    let (least, middle, most) = (took[0], took[CALLS / 2], took[CALLS - 1]);
    assert!(least >= limit, "{least:?}");
    assert!(middle <= limit + Duration::from_millis(500), "ten times what is promised: {middle:?}");
    // A machine may pause for a moment. With the plugin's own timeout, it would be 5 s.
    assert!(most <= limit + Duration::from_millis(3500), "{most:?}");
    hanging.wait_until(|counts| counts.cancelled == CALLS as u64).await;
}

#[tokio::test]
async fn a_late_reply_is_discarded_and_its_place_is_free_again() {
    let gate = Gate::closed();
    let slow =
        FakePlugin::named("slow").at(POINT, Act::cancel("FORBIDDEN", "No.").behind(&gate)).start().await;
    let limits = json!({ "limits": { "in_flight": 1, "queue": 1 } });
    let setup = Gateway::with().tenant("hasty").tenant("patient").plugin_with(&slow, &limits);
    let of = |tenant: &str, timeout: &str| json!({ "tenant": tenant, "timeout": timeout });
    let setup = setup.binding_with("slow", 1, &of("hasty", "1s"));
    let gateway = setup.binding_with("slow", 1, &of("patient", "60s")).start().await;
    let answer = gateway.http(&token("hasty")).call(POINT, payload()).await;
    assert_eq!((answer.status, &answer.body["code"]), (504, &json!("PLUGIN_TIMEOUT")), "{answer:?}");
    slow.wait_until(|counts| counts.cancelled == 1).await;
    slow.set(POINT, Act::pass());
    gate.open();
    let answer = gateway.http(&token("patient")).call(POINT, payload()).await;
    assert_eq!(answer.status, 200, "the previous call's cancel affects no other: {answer:?}");
}

#[tokio::test]
async fn a_plugin_that_forgot_its_configuration_is_told_once_and_executes_the_call_once() {
    let plugin = FakePlugin::named("plugin").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("plugin", 1).start().await;
    let agent = gateway.http(&token("acme"));
    for _ in 0..100 {
        assert_eq!(agent.call(POINT, payload()).await.status, 200);
    }
    let counts = plugin.counts();
    // The caller's connection is one worker's, which made its own connection after some calls.
    assert_eq!((counts.describes, counts.initializes, counts.calls), (2, 1, 100), "made once, used for ever");

    plugin.forget();
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    let counts = plugin.counts();
    assert_eq!((counts.uninitialized, counts.initializes, counts.calls), (1, 2, 101));
    let [first, second] = &plugin.seen()[99..] else { panic!("101 calls") };
    let id = |seen: &Seen| seen.call.context.as_ref().map(|context| context.request_id.clone());
    assert_ne!(id(first), id(second));
}

/// Patches the arguments to the caller as the plugin sees it.
fn echo(seen: &Seen) -> Act {
    let context = seen.call.context.clone().unwrap_or_default();
    let args = json!({
        "tenant": context.tenant,
        "operator": context.operator,
        "session": context.session_id,
        "run": context.run_id,
        "parent": context.parent_run_id,
        "depth": context.depth,
        "labels": context.labels,
        "user": context.user_id,
        "provider": context.provider,
        "model": context.model,
    });
    Act::patch(BeforeToolCallPatch { args: Some(args.to_string().into()), ..Default::default() })
}

#[tokio::test]
async fn callers_in_parallel_are_never_mixed_up() {
    let echoing = FakePlugin::named("echoing").at_with(POINT, echo).start_unix().await;
    let gateway =
        Gateway::with().tenant("acme").tenant("globex").plugin(&echoing).binding("echoing", 1).start().await;
    let agents = ["acme", "globex"].map(|tenant| (tenant, gateway.http(&token(tenant))));
    let agents = &agents;
    stream::iter(0..200_usize)
        .for_each_concurrent(16, |number| async move {
            let (tenant, agent) = &agents[number % 2];
            let context = json!({
                "session_id": format!("{tenant}:s/{number}"), "run_id": "r1", "parent_run_id": "r0",
                "depth": 1, "labels": { "team": tenant }, "user_id": "u", "provider": "local", "model": "m1",
            });
            let answer = agent.post(POINT, &json!({ "context": context, "payload": payload() })).await;
            let expected = json!({
                "tenant": tenant, "operator": format!("operator-of-{tenant}"),
                "session": format!("{tenant}:s/{number}"), "run": "r1", "parent": "r0",
                "depth": 1, "labels": { "team": tenant }, "user": "u", "provider": "local", "model": "m1",
            });
            assert_eq!(answer.body["payload"]["args"], expected, "{answer:?}");
        })
        .await;
    let answer = agents[0].1.call(POINT, payload()).await;
    let args = &answer.body["payload"]["args"];
    assert_eq!((&args["tenant"], &args["session"]), (&json!("acme"), &Value::Null), "absent is legal");
}

#[tokio::test]
async fn the_plan_digest_names_plugins_and_order() {
    let (a, b) = (FakePlugin::named("a").start().await, FakePlugin::named("b").start().await);
    let gateway = Gateway::with()
        .tenant("one")
        .tenant("other")
        .tenant("reverse")
        .plugin(&a)
        .plugin(&b)
        .binding_with("a", 1, &json!({ "tenant": "one", "name": "x1" }))
        .binding_with("b", 2, &json!({ "tenant": "one", "name": "x2" }))
        .binding_with("a", 1, &json!({ "tenant": "other", "name": "y1" }))
        .binding_with("b", 2, &json!({ "tenant": "reverse", "name": "z1" }))
        .binding_with("a", 3, &json!({ "tenant": "reverse", "name": "z2" }))
        .start()
        .await;
    let mut digests = Vec::new();
    for tenant in ["one", "other", "reverse"] {
        let agent = gateway.http(&token(tenant));
        let digest = agent.call(POINT, payload()).await.body["plan_digest"].clone();
        assert_eq!(agent.call(POINT, payload()).await.body["plan_digest"], digest);
        digests.push(digest.to_string());
    }
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 3, "{digests:?}");
}
