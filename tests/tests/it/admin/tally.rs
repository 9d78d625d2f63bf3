//! Tests the plugins' totals since startup (L46): after ten calls, the numbers are exact.

use std::time::{Duration, Instant};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};
use tonic::Code;

use crate::edge::support::{POINT, request};

const CALLS: u64 = 10;
/// The minimum duration of the guard's calls.
const WAIT: Duration = Duration::from_millis(20);

/// The number of the call, which is its `call_id`.
fn number(seen: &Seen) -> u64 {
    let Payload::BeforeToolCall(payload) = &seen.payload else { panic!("{seen:?}") };
    payload.call_id.as_deref().and_then(|id| id.parse().ok()).expect("every call has its number")
}

/// Continues; blocks from call `blocks` on, and fails from call `fails` on.
fn script(blocks: u64, fails: u64) -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    move |seen| match number(seen) {
        number if number >= fails => Act::status(Code::Internal, "broken"),
        number if number >= blocks => Act::cancel("BLOCKED", "No."),
        _ => Act::pass(),
    }
}

async fn points(gateway: &Gateway, plugin: &str) -> Value {
    let agent = gateway.admin(&Token::for_operators().mint());
    agent.get(&format!("/admin/v1/plugins/{plugin}")).await.unwrap().body["points"].take()
}

/// Calls, successes and failures.
fn counts(points: &Value) -> [u64; 3] {
    ["calls", "successes", "failures"]
        .map(|name| points["before_tool_call"][name].as_u64().expect("a number"))
}

fn latency_ms(points: &Value) -> f64 {
    points["before_tool_call"]["latency_ms_total"].as_f64().expect("a number")
}

#[tokio::test]
async fn after_ten_calls_over_both_protocols_the_numbers_are_exact() {
    let (slowly, slowly_watching) = (script(5, 8), script(2, 9));
    let names = ["advisor", "guard", "watcher", "elsewhere"];
    let [advisor, guard, watcher, elsewhere] = names.map(FakePlugin::named);
    let advisor = advisor.at_with(POINT, script(6, 7)).start().await;
    let guard = guard.at_with(POINT, move |seen| slowly(seen).after(WAIT)).start().await;
    let watcher = watcher.at_with(POINT, move |seen| slowly_watching(seen).after(WAIT)).start().await;
    let elsewhere = elsewhere.start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&advisor)
        .plugin(&guard)
        .plugin(&watcher)
        .plugin(&elsewhere)
        .binding_with("advisor", 10, &json!({ "blocking": false }))
        .binding_with("elsewhere", 15, &json!({ "match": { "tools": ["other.*"] } }))
        .binding("guard", 20)
        .binding_with("watcher", 30, &json!({ "mode": "observe" }))
        .admin()
        .start()
        .await;
    assert_eq!(counts(&points(&gateway, "guard").await), [0, 0, 0]);

    let (http, mut grpc) = (gateway.http(&token("acme")), gateway.grpc(&token("acme")).await.client);
    let began = Instant::now();
    for call in 0..CALLS {
        if call % 2 == 0 {
            let id = call.to_string();
            http.call(POINT, json!({ "tool_name": "fs.read", "args": {}, "call_id": id })).await;
        } else {
            let mut request = request();
            request.payload.as_mut().expect("it has one").call_id = Some(call.to_string());
            let _ = grpc.before_tool_call(request).await; // some of them fail on purpose
        }
    }
    let took = began.elapsed();

    // Advice counts by its result, whether it is enforced or not. A skipped failed step has failed.
    assert_eq!(counts(&points(&gateway, "advisor").await), [CALLS, 7, 3]);
    let of_guard = points(&gateway, "guard").await;
    assert_eq!(counts(&of_guard), [CALLS, 8, 2], "a block is a success");
    assert_eq!(
        counts(&points(&gateway, "elsewhere").await),
        [0, 0, 0],
        "a step that was skipped says nothing"
    );
    let (least, most) = (WAIT.as_secs_f64() * 1e3 * CALLS as f64, took.as_secs_f64() * 1e3);
    assert!((least..=most).contains(&latency_ms(&of_guard)), "{least} <= {of_guard} <= {most}");
    let none = json!({ "calls": 0, "successes": 0, "failures": 0, "latency_ms_total": 0.0 });
    for point in ["before_llm_request", "after_tool_result", "before_response"] {
        assert_eq!(of_guard[point], none, "{point}");
    }

    // Observers' results are known after the answer.
    let known = async {
        // Only the totals show that an observer continued.
        while counts(&points(&gateway, "watcher").await)[0] < CALLS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), known).await.expect("the observer is asked ten times");
    let of_watcher = points(&gateway, "watcher").await;
    assert_eq!(counts(&of_watcher), [CALLS, 9, 1]);
    assert!(latency_ms(&of_watcher) >= least, "{of_watcher}");
}

#[tokio::test]
async fn every_point_is_counted_for_itself() {
    let plugin = FakePlugin::named("guard").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin).binding("guard", 10);
    let gateway = setup.admin().start().await;
    let agent = gateway.http(&token("acme"));
    agent.call(ExtensionPoint::BeforeResponse, json!({ "content": "x" })).await;
    for _ in 0..2 {
        agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "x" })).await;
    }
    let points = points(&gateway, "guard").await;
    let calls = ["before_llm_request", "before_tool_call", "after_tool_result", "before_response"]
        .map(|point| points[point]["calls"].as_u64());
    assert_eq!(calls, [Some(2), Some(0), Some(0), Some(1)]);
}
