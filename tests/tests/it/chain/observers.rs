//! Tests observers: they get every call, and nobody waits for them (G38).

use hookgate_proto::types::v1::{Decision, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, Payload},
    gateway::Gateway,
    token::token,
};
use serde_json::{Value, json};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const CALLS: usize = 60;
/// The size of the observers' queue.
const QUEUE: usize = 5;
/// Concurrent deliveries to one observer.
const UNDER_WAY: usize = 8;

fn payload(number: usize) -> Value {
    json!({ "tool_name": "fs.read", "args": {}, "call_id": number.to_string() })
}

fn number(payload: &Payload) -> usize {
    let Payload::BeforeToolCall(payload) = payload else { panic!("{payload:?}") };
    payload.call_id.as_deref().and_then(|id| id.parse().ok()).expect("every call has its number")
}

#[tokio::test]
async fn an_observer_that_never_reads_delays_no_chain_and_loses_the_oldest_calls() {
    let gate = Gate::closed();
    let stuck = FakePlugin::named("stuck").at(POINT, Act::cancel("X", "No.").behind(&gate)).start().await;
    let guard = FakePlugin::named("guard").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&stuck)
        .plugin(&guard)
        .binding("guard", 1)
        .binding_with("stuck", 2, &json!({ "mode": "observe", "timeout": "60s" }))
        .set("/observers/items", QUEUE)
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    for call in 0..UNDER_WAY {
        assert_eq!(agent.call(POINT, payload(call)).await.status, 200);
        // Wait before the next call, so that the queue isn't full of calls that are just being delivered.
        stuck.wait_until(|counts| counts.calls == call as u64 + 1).await;
    }
    for call in UNDER_WAY..CALLS {
        let answer = agent.call(POINT, payload(call)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let step = &answer.body["steps"][1];
        assert_eq!((&step["outcome"], &step["duration_us"]), (&json!("observed"), &json!(0)), "{answer:?}");
    }
    let order: Vec<_> = guard.seen().iter().map(|seen| number(&seen.payload)).collect();
    assert_eq!(order, Vec::from_iter(0..CALLS), "the chain ran on, in order");
    assert_eq!(stuck.counts().finished, 0, "and all that while the observer answered nothing");

    gate.open();
    stuck.wait_until(|counts| counts.finished == (UNDER_WAY + QUEUE) as u64).await;
    let mut seen: Vec<_> = stuck.seen().iter().map(|seen| number(&seen.payload)).collect();
    seen.sort_unstable();
    let expected: Vec<_> = (0..UNDER_WAY).chain(CALLS - QUEUE..CALLS).collect();
    assert_eq!(seen, expected, "the oldest of those that waited gave way");

    let exit = gateway.stop().await;
    let lines = exit.log.lines();
    let count = |event: &str| {
        lines.iter().filter(|line| line.field("event").and_then(Value::as_str) == Some(event)).count()
    };
    assert_eq!(count("step.failed"), CALLS - UNDER_WAY - QUEUE, "each loss is logged:\n{}", exit.log);
    assert_eq!(count("decision.would_block"), UNDER_WAY + QUEUE, "a cancel of an observer stops nothing");
}

#[tokio::test]
async fn observers_are_told_how_every_chain_ended_and_a_dead_one_harms_none() {
    let act = |seen: &hookgate_tests::fake::Seen| match number(&seen.payload) {
        0 => Act::pass(),
        1 => Act::cancel("TOOL_NOT_ALLOWED", "No."),
        _ => Act::status(tonic::Code::Internal, "no"),
    };
    let guard = FakePlugin::named("guard").at_with(POINT, act).start().await;
    let observing = FakePlugin::named("observing").start_unix().await;
    let mut dead = FakePlugin::named("dead").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&guard)
        .plugin(&observing)
        .plugin(&dead)
        .binding("guard", 1)
        .binding_with("observing", 2, &json!({ "mode": "observe" }))
        .binding_with("dead", 3, &json!({ "mode": "observe" }))
        .start()
        .await;
    dead.stop().await;
    let agent = gateway.http(&token("acme"));
    for (call, status) in [200, 403, 502].into_iter().enumerate() {
        assert_eq!(agent.call(POINT, payload(call)).await.status, status);
    }
    observing.wait_until(|counts| counts.finished == 3).await;
    let mut seen = observing.seen();
    seen.sort_by_key(|seen| number(&seen.payload));
    let told: Vec<_> = seen
        .iter()
        .map(|seen| {
            let result = seen.call.chain_result.clone().expect("observers are told");
            (result.decision(), result.plugin, result.code)
        })
        .collect();
    let guard = Some("guard".to_owned());
    let expected = [
        (Decision::Continue, None, None),
        (Decision::Block, guard.clone(), Some("TOOL_NOT_ALLOWED".into())),
        (Decision::Unspecified, guard, Some("PLUGIN_ERROR".into())),
    ];
    assert_eq!(told, expected);
}
