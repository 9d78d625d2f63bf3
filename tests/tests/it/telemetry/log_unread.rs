//! Tests a log that nobody reads for a while: calls and checks go on, and lost lines are counted and
//! reported.

use std::time::Duration;

use hookgate_proto::types::v1::NoticeKind;
use hookgate_tests::{
    fake::{Act, FakePlugin, notice},
    gateway::{Gateway, Line},
    metrics::Scrape,
    token::{Token, token},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    admin::events_support::events,
    edge::support::{POINT, payload},
};

/// Far more than an answer takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Fills every queue several times over.
const MAX_CALLS: usize = 5_000;

/// Blocks with a long message: each call's line has about 6 kB.
fn wordy() -> Act {
    let long = "why ".repeat(64);
    let remark = || notice(NoticeKind::Info, "WHY", &long, &Value::Null);
    (0..16).fold(Act::cancel("NO", &"x".repeat(1024)), |act, _| act.with_notice(remark()))
}

async fn dropped(gateway: &Gateway) -> f64 {
    Scrape::of(gateway).await.sum("hookgate_log_dropped_total", &[])
}

fn is_about_losses(line: &Line) -> bool {
    line.field("event") == Some(&json!("log.dropped"))
}

fn lost(line: &Line) -> f64 {
    line.field("lines").and_then(Value::as_f64).expect("it says how many")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_continue_while_the_log_is_unread_and_lost_lines_are_reported() {
    let guard = FakePlugin::named("guard").at(POINT, wordy()).start().await;
    let setup = Gateway::with().tenant("acme").tenant("globex").admin().plugin(&guard);
    // A successful call has no line, however long it takes.
    let setup = setup.set("/telemetry/slow_invocation", "60s");
    let gateway = setup.binding_with("guard", 10, &json!({ "tenant": "acme" })).start().await;
    let (refused, good, ops) = (gateway.http(&token("acme")), gateway.http(&token("globex")), gateway.ops());
    gateway.log().pause();
    let mut calls = 0;
    while calls % 100 != 0 || calls == 0 || dropped(&gateway).await == 0.0 {
        assert!(calls < MAX_CALLS, "nothing is lost");
        calls += 1;
        let blocked = timeout(PATIENCE, refused.call(POINT, payload())).await.expect("it waits for nothing");
        assert_eq!(blocked.status, 403, "{blocked:?}");
        if calls % 20 == 0 {
            let answer = timeout(PATIENCE, good.call(POINT, payload())).await.expect("it waits for nothing");
            assert_eq!(answer.status, 200, "{answer:?}");
            let alive = timeout(PATIENCE, ops.get("/livez")).await.expect("it waits for nothing");
            assert_eq!(alive.expect("it answers").status, 200);
        }
    }

    let told = events(&gateway.admin(&Token::for_operators().mint()), "event=log.dropped").await;
    assert_eq!(told.len(), 1, "once, and not for each line: {told:?}");
    assert_eq!((&told[0]["level"], &told[0]["lines"]), (&json!("WARN"), &Value::Null));

    gateway.log().resume();
    let line = gateway.log().wait_for(is_about_losses).await;
    assert!(lost(&line) > 0.0, "{}", line.text);
    let answer = gateway.http("nonsense").call(POINT, payload()).await;
    assert_eq!(answer.status, 401);
    let is_refusal = |line: &Line| line.field("event") == Some(&json!("auth.refused"));
    gateway.log().wait_for(is_refusal).await;
    let counted = dropped(&gateway).await;
    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let lines = exit.log.lines();
    let told: f64 = lines.iter().filter(|line| is_about_losses(line)).map(lost).sum();
    assert_eq!(told, counted, "the lines tell of all that the metric counts");
    let whole = lines.iter().filter(|line| line.field("event") == Some(&json!("decision.block")));
    let written = u32::try_from(whole.count()).expect("there are few");
    let calls = u32::try_from(calls).expect("there are few");
    assert_eq!(f64::from(written) + told, f64::from(calls), "every other line is there, and whole");
}
