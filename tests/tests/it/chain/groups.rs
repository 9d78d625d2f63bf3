//! Tests that neighbouring steps which only read are called at the same time, and answer as if in order.

use futures::future;
use hookgate_proto::{
    gateway::v1::BeforeToolCallRequest,
    plugin::v1::{Access, SideEffects},
    types::v1::{BeforeToolCallPayload, ExtensionPoint, NoticeKind},
};
use hookgate_tests::{
    agent::HttpAnswer,
    fake::{Act, Builder, FakePlugin, Gate, notice},
    gateway::{Gateway, Line},
    metrics::Scrape,
    token::token,
};
use serde_json::{Value, json};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": {} })
}

/// A plugin that reads, has no side effects, and acts like this.
fn reader(name: &str, act: Act) -> Builder {
    FakePlugin::named(name).access(Access::Read).at(POINT, act)
}

fn with_side_effects(builder: Builder) -> Builder {
    builder.manifest(|manifest| {
        manifest.points.iter_mut().for_each(|offer| offer.set_side_effects(SideEffects::Some));
    })
}

/// Continues with a notice by this code, once the gate is open.
fn remark_behind(gate: &Gate, code: &str) -> Act {
    Act::pass().with_notice(notice(NoticeKind::Info, code, "hello", &Value::Null)).behind(gate)
}

fn steps(answer: &HttpAnswer) -> Vec<(&str, &str)> {
    let steps = answer.body["steps"].as_array().expect("there are steps");
    steps.iter().filter_map(|step| Some((step["plugin"].as_str()?, step["outcome"].as_str()?))).collect()
}

#[tokio::test]
async fn neighbours_that_only_read_are_called_before_any_of_them_has_answered() {
    let gate = Gate::closed();
    let slow = |name: &str| reader(name, remark_behind(&gate, name));
    let (a, b, c) = (slow("a").start().await, slow("b").start_unix().await, slow("c").start().await);
    let observer = FakePlugin::named("observer").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&a)
        .plugin(&observer)
        .plugin(&b)
        .plugin(&c)
        .binding("a", 1)
        .binding_with("observer", 2, &json!({ "mode": "observe" }))
        .binding_with("b", 3, &json!({ "mode": "advise" }))
        .binding("c", 4)
        .start()
        .await;
    let (agent, mut client) = (gateway.http(&token("acme")), gateway.grpc(&token("acme")).await.client);
    let called = async {
        for plugin in [&a, &b, &c] {
            plugin.wait_until(|counts| counts.calls == 2).await;
            assert_eq!(plugin.counts().finished, 0);
        }
        gate.open();
    };
    let proto =
        BeforeToolCallPayload { tool_name: "fs.read".into(), args: "{}".into(), ..Default::default() };
    let request = BeforeToolCallRequest { payload: Some(proto), ..Default::default() };
    let (http, grpc, ()) =
        future::join3(agent.call(POINT, payload()), client.before_tool_call(request), called).await;

    let expected = [("a", "continued"), ("observer", "observed"), ("b", "continued"), ("c", "continued")];
    assert_eq!(steps(&http), expected, "{http:?}");
    let notices = http.body["notices"].as_array().expect("there are notices");
    assert_eq!(notices.iter().map(|notice| &notice["code"]).collect::<Vec<_>>(), ["a", "b", "c"], "{http:?}");
    let timing = http.header("server-timing").expect("every answer has it");
    let places = ["plugin-a;", "plugin-b;", "plugin-c;"].map(|name| timing.find(name).expect(name));
    assert!(places.is_sorted(), "{timing}");
    let grpc = grpc.expect("a decision").into_inner();
    let plugins: Vec<_> = grpc.steps.iter().map(|step| step.plugin.as_str()).collect();
    assert_eq!(plugins, ["a", "observer", "b", "c"]);
    observer.wait_until(|counts| counts.finished == 2).await;

    // Each invocation waited for its plugins once and not three times, so the rest is more than nothing.
    let overhead = Scrape::of(&gateway).await.sum("hookgate_overhead_duration_seconds_sum", &[]);
    assert!(overhead > 0.0, "{overhead}");
}

#[tokio::test]
async fn a_plugin_with_side_effects_or_that_may_patch_is_not_called_before_its_turn() {
    let refusing = |name: &str| reader(name, Act::cancel("FORBIDDEN", "No."));
    let first = refusing("first").start().await;
    let counting = with_side_effects(reader("counting", Act::pass())).start().await;
    let patching = FakePlugin::named("patching").start().await;
    for (later, name) in [(&counting, "counting"), (&patching, "patching")] {
        let setup = Gateway::with().tenant("acme").plugin(&first).plugin(later);
        let gateway = setup.binding("first", 1).binding(name, 2).start().await;
        let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
        assert_eq!(steps(&answer), [("first", "cancelled")], "{answer:?}");
        assert_eq!(gateway.stop().await.code, Some(0));
        assert_eq!(later.counts().calls, 0, "{name}");
    }
}

#[tokio::test]
async fn a_cancel_ends_the_calls_behind_it_and_they_count_against_nobody() {
    let gate = Gate::closed();
    let refusing = reader("refusing", Act::cancel("FORBIDDEN", "No.").behind(&gate)).start().await;
    let hanging = reader("hanging", Act::hang()).start().await;
    // One failure would open its breaker, and one call that goes on would take its only permit.
    let strict = json!({
        "limits": { "in_flight": 1, "queue": 1, "timeout": "60s" },
        "breaker": { "failures": 1, "open": "1h", "max_open": "1h" },
    });
    let gateway = Gateway::with()
        .tenant("acme")
        .tenant("other")
        .plugin(&refusing)
        .plugin_with(&hanging, &strict)
        .binding_with("refusing", 1, &json!({ "tenant": "acme" }))
        .binding("hanging", 2)
        .set("/limits/budget", "60s")
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    let called = async {
        hanging.wait_until(|counts| counts.calls == 1).await;
        gate.open();
    };
    let (answer, ()) = future::join(agent.call(POINT, payload()), called).await;
    assert_eq!((answer.status, &answer.body["block"]["code"]), (403, &json!("FORBIDDEN")), "{answer:?}");
    assert_eq!(steps(&answer), [("refusing", "cancelled")], "{answer:?}");
    hanging.wait_until(|counts| counts.cancelled == 1).await;

    hanging.set(POINT, Act::pass());
    let answer = gateway.http(&token("other")).call(POINT, payload()).await;
    assert_eq!(steps(&answer), [("hanging", "continued")], "{answer:?}");
    let scrape = Scrape::of(&gateway).await;
    let calls = |outcome: &str| {
        let labels = [("hookgate_plugin_name", "hanging"), ("hookgate_outcome", outcome)];
        scrape.sum("hookgate_plugin_call_duration_seconds_count", &labels)
    };
    assert_eq!((calls("continued"), calls("failed")), (1.0, 0.0), "{}", scrape.text);
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_all_calls_of_a_group() {
    let (a, b) = (reader("a", Act::pass()).start().await, reader("b", Act::hang()).start().await);
    let c = reader("c", Act::hang()).start_unix().await;
    let slow = json!({ "timeout": "60s" });
    let setup = Gateway::with().tenant("acme").plugin(&a).plugin(&b).plugin(&c).set("/limits/budget", "60s");
    let setup = setup.binding("a", 1).binding_with("b", 2, &slow).binding_with("c", 3, &slow);
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    let call = tokio::spawn(async move { agent.call(POINT, payload()).await });
    a.wait_until(|counts| counts.finished == 1).await;
    for plugin in [&b, &c] {
        plugin.wait_until(|counts| counts.calls == 1).await;
    }
    call.abort();
    for plugin in [&b, &c] {
        plugin.wait_until(|counts| counts.cancelled == 1).await;
    }
    let is_ours =
        |line: &Line| line.field("steps").and_then(Value::as_array).is_some_and(|steps| !steps.is_empty());
    let line = gateway.log().wait_for(is_ours).await;
    let steps = line.field("steps").and_then(Value::as_array).expect("it has steps");
    let reported: Vec<_> = steps.iter().map(|step| (&step["plugin"], &step["outcome"])).collect();
    let current = reported.last().expect("there is one");
    assert_eq!(current.1, &json!("cancelled_by_caller"), "{line:?}");
    assert!(reported.iter().all(|step| step.0 != "c"), "only the first unfinished step: {line:?}");
}
