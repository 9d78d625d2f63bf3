//! Tests one plugin behind a faulty network (D15 to D18, G5, G17): which calls stop, what stays unchanged,
//! and how often a call is executed.

use std::time::Duration;

use futures::future::join_all;
use hookgate_proto::types::v1::BeforeToolCallPatch;
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate},
    proxy::Flow,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    failure_matrix::rig::Transport,
    proxy::support::{POINT, Rig, TRANSPORTS, assert_skipped, assert_stopped, body, call, executions, id},
};

fn shaky(act: Act) -> hookgate_tests::fake::Builder {
    FakePlugin::named("shaky").at(POINT, act)
}

/// Marks the arguments with the call that the patch is for.
fn marking() -> hookgate_tests::fake::Builder {
    FakePlugin::named("shaky").at_with(POINT, |seen| {
        let args = json!({ "for": id(seen), "padding": "x".repeat(8 << 10) }).to_string();
        Act::patch(BeforeToolCallPatch { args: Some(args.into()), ..Default::default() })
    })
}

/// Runs a test over every transport concurrently.
async fn over_all<F: Future<Output = ()>>(test: impl Fn(Transport) -> F) {
    join_all(TRANSPORTS.map(test)).await;
}

#[tokio::test]
async fn a_plugin_killed_in_a_call_stops_who_needs_it_and_changes_nothing_for_the_others() {
    over_all(|transport| async move {
        let mut rig = Rig::start(transport, shaky(Act::hang()), "30s", json!({})).await;
        let (strict, lenient) = (call(&rig.strict, "s"), call(&rig.lenient, "l"));
        rig.plugin.wait_until(|counts| counts.calls == 2).await;
        rig.plugin.stop().await;
        assert_stopped(&strict.await.unwrap(), 503, "PLUGIN_UNAVAILABLE");
        assert_skipped(&lenient.await.unwrap(), "PLUGIN_UNAVAILABLE", "l");
        assert_eq!((executions(&rig.plugin, "s"), executions(&rig.plugin, "l")), (1, 1), "never again");
        let witnessed: Vec<_> = rig.witness.seen().iter().map(id).collect();
        assert_eq!(witnessed, ["l"], "the chain that stopped went no further");

        rig.plugin.set(POINT, Act::pass());
        rig.plugin.start().await;
        let answer = rig.strict.post_text(POINT, body("again")).await;
        assert_eq!(answer.status, 200, "it is back: {answer:?}");
        rig.wait_until_idle().await;
    })
    .await;
}

#[tokio::test]
async fn a_late_reply_is_nobodys_and_leaves_nothing_behind() {
    over_all(|transport| async move {
        let limits = json!({ "limits": { "in_flight": 2, "queue": 1 } });
        let rig = Rig::start(transport, marking(), "3s", limits).await;
        for round in ["first", "second"] {
            rig.proxy.up(Flow::Late(Duration::from_secs(5)));
            let began = Instant::now();
            let (strict, lenient) = (call(&rig.strict, round), call(&rig.lenient, round));
            assert_stopped(&strict.await.unwrap(), 504, "PLUGIN_TIMEOUT");
            assert_skipped(&lenient.await.unwrap(), "PLUGIN_TIMEOUT", round);
            assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
            assert_eq!(executions(&rig.plugin, round), 2, "both were answered, too late");
            rig.wait_until_idle().await;

            rig.proxy.up(Flow::Pass);
            let late = rig.proxy.traffic().taken_up;
            rig.proxy.wait_until(|traffic| traffic.passed_up >= late).await;
            for number in 0..10 {
                let id = format!("{round}-{number}");
                let answers = tokio::join!(call(&rig.strict, &id), call(&rig.lenient, &id));
                for answer in [answers.0.unwrap(), answers.1.unwrap()] {
                    assert_eq!(answer.body["payload"]["args"]["for"], json!(id), "{answer:?}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_reset_after_the_request_went_out_is_never_a_second_execution() {
    over_all(|transport| async move {
        let rig = Rig::start(transport, shaky(Act::hang()), "30s", json!({})).await;
        let (strict, lenient) = (call(&rig.strict, "s"), call(&rig.lenient, "l"));
        rig.plugin.wait_until(|counts| counts.calls == 2).await;
        rig.proxy.reset();
        assert_stopped(&strict.await.unwrap(), 503, "PLUGIN_UNAVAILABLE");
        assert_skipped(&lenient.await.unwrap(), "PLUGIN_UNAVAILABLE", "l");
        // the plugin is up and a new connection passes everything, so a retry would be seen
        rig.plugin.set(POINT, Act::pass());
        assert_eq!(rig.strict.post_text(POINT, body("after")).await.status, 200);
        let counts = rig.plugin.wait_until(|counts| counts.cancelled == 2).await;
        assert_eq!((counts.calls, counts.initializes), (3, 1), "{counts:?}");
        assert_eq!((executions(&rig.plugin, "s"), executions(&rig.plugin, "l")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_request_lost_on_its_way_is_not_sent_again() {
    over_all(|transport| async move {
        let rig = Rig::start(transport, shaky(Act::pass()), "30s", json!({})).await;
        let before = rig.proxy.traffic().taken_down;
        rig.proxy.lose();
        let strict = call(&rig.strict, "s");
        rig.proxy.wait_until(|traffic| traffic.taken_down > before + 200).await;
        rig.proxy.reset();
        assert_stopped(&strict.await.unwrap(), 503, "PLUGIN_UNAVAILABLE");
        assert_eq!(rig.strict.post_text(POINT, body("after")).await.status, 200);
        assert_eq!((executions(&rig.plugin, "s"), rig.plugin.counts().calls), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_is_tried_once_more_and_no_more() {
    over_all(|transport| async move {
        let rig = Rig::start(transport, shaky(Act::pass()), "5s", json!({})).await;
        rig.proxy.reset_next(1);
        rig.proxy.reset();
        rig.wait_until_logged("plugin.disconnected", 1).await;
        assert_eq!(rig.strict.post_text(POINT, body("once")).await.status, 200);
        assert_eq!(executions(&rig.plugin, "once"), 1);

        rig.proxy.reset_next(1000);
        let before = rig.proxy.traffic().connections;
        rig.proxy.reset();
        rig.wait_until_logged("plugin.health_failed", 2).await;
        // The reconnect delay grows each time, by now to most of a second.
        rig.proxy.wait_until(|traffic| traffic.connections >= before + 5).await;
        let before = rig.proxy.traffic().connections;
        let answer = rig.strict.post_text(POINT, body("never")).await;
        assert_stopped(&answer, 503, "PLUGIN_UNAVAILABLE");
        let dials = rig.proxy.traffic().connections - before;
        assert!(dials <= 3, "two of the call's, perhaps one of the supervisor's: {dials}");
        assert_eq!(executions(&rig.plugin, "never"), 0);
    })
    .await;
}

#[tokio::test]
async fn half_a_reply_and_a_reset_is_no_reply() {
    over_all(|transport| async move {
        let rig = Rig::start(transport, marking(), "30s", json!({})).await;
        for (agent, call_id) in [(&rig.strict, "s"), (&rig.lenient, "l")] {
            let before = rig.proxy.traffic().passed_up;
            rig.proxy.up(Flow::Drip(16, Duration::from_millis(20))); // 10 s for the whole
            let answer = call(agent, call_id);
            rig.proxy.wait_until(|traffic| traffic.passed_up > before + 1000).await;
            rig.proxy.reset();
            let answer = answer.await.unwrap();
            // A truncated TLS record can't be read, so nothing of the reply arrives.
            let (status, code) = match transport {
                Transport::Tls => (503, "PLUGIN_UNAVAILABLE"),
                _ => (502, "PLUGIN_BAD_REPLY"),
            };
            if call_id == "s" {
                assert_stopped(&answer, status, code);
            } else {
                assert_skipped(&answer, code, call_id);
            }
            assert_eq!(executions(&rig.plugin, call_id), 1);
            rig.proxy.up(Flow::Pass);
            assert_eq!(agent.post_text(POINT, body("after")).await.status, 200);
        }
        assert_eq!(rig.witness.seen().iter().filter(|seen| id(seen) == "l").count(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_reply_that_drips_is_taken_whole_or_not_at_all() {
    over_all(|transport| async move {
        let rig = Rig::start(transport, marking(), "4s", json!({})).await;
        rig.proxy.up(Flow::Drip(512, Duration::from_millis(1)));
        let answer = rig.strict.post_text(POINT, body("slow")).await;
        assert_eq!(answer.body["payload"]["args"]["for"], json!("slow"), "{answer:?}");
        rig.proxy.up(Flow::Drip(1, Duration::from_millis(1))); // 8 s for the whole
        let (strict, lenient) = (call(&rig.strict, "s"), call(&rig.lenient, "l"));
        assert_stopped(&strict.await.unwrap(), 504, "PLUGIN_TIMEOUT");
        assert_skipped(&lenient.await.unwrap(), "PLUGIN_TIMEOUT", "l");
        rig.wait_until_idle().await;
        rig.proxy.up(Flow::Pass);
    })
    .await;
}

#[tokio::test]
async fn calls_in_flight_when_the_network_comes_back_are_answered() {
    over_all(|transport| async move {
        let gate = Gate::closed();
        let rig = Rig::start(transport, shaky(Act::pass().behind(&gate)), "30s", json!({})).await;
        let waiting = call(&rig.strict, "waiting");
        rig.plugin.wait_until(|counts| counts.calls == 1).await;
        rig.proxy.both(Flow::Stop);
        gate.open();
        rig.plugin.wait_until(|counts| counts.finished == 1).await;
        rig.proxy.both(Flow::Pass);
        assert_eq!(waiting.await.unwrap().status, 200);
        assert_eq!(executions(&rig.plugin, "waiting"), 1);
    })
    .await;
}
