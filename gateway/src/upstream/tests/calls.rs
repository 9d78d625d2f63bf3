//! One call: what is sent, what cancels it, when it fails and for which reason, and what is retried.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use prost::Message as _;
use tokio::sync::{Notify, mpsc};
use tonic::Status;

use super::support::*;
use crate::{
    config::Span,
    core::step::Reason,
    upstream::{State, Why},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn call_travels_over_either_socket_with_depth_digest_and_payload() {
    for wire in WIRES {
        let (place, script) = (Place::new(wire), Arc::new(Script::default()));
        let _running = place.start(Process::new(&script));
        let client = Client::new(&registered(place.endpoint()));
        client.until_ready().await;
        let reply = client.tool_call(SECOND).await.expect("an answer");
        let reply = hookgate_proto::plugin::v1::BeforeToolCallResponse::decode(reply.bytes);
        assert_eq!(reply.expect("the contract's message"), go_on());
        let seen = script.seen.lock().expect("unpoisoned").remove(0);
        assert_eq!(seen.metadata.get("hookgate-depth").expect("sent"), "1");
        assert_eq!(seen.metadata.get("hookgate-plugin").expect("sent"), "guard");
        assert_eq!(seen.payload.expect("sent").tool_name, "fs.read");
        let initialized = script.initialized.lock().expect("unpoisoned");
        assert_eq!(seen.call.config_digest, initialized[0].config_digest);
        assert_eq!(seen.call.config_digest, crate::core::digest::digest(&serde_json::json!({})));
    }
}

#[tokio::test]
async fn time_left_on_the_wire_is_what_is_left_of_the_limit() {
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::default()));
    let _running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    let mut before = u64::MAX;
    for limit in [3000, 2000, 1000] {
        client.tool_call(Duration::from_millis(limit)).await.expect("an answer");
        let seen = script.seen.lock().expect("unpoisoned").pop().expect("a call");
        let header = seen.metadata.get("grpc-timeout").expect("sent").to_str().expect("ASCII");
        let left: u64 = header.strip_suffix('u').expect("microseconds").parse().expect("digits");
        assert!(left <= limit * 1000 && left < before, "{left} of {limit} ms after {before}");
        before = left;
    }
}

/// Signals when it is dropped, as it is when the handler is cancelled.
struct DropGuard(mpsc::UnboundedSender<()>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn dropped_or_expired_call_is_cancelled_at_the_plugin() {
    for wire in WIRES {
        let (dropped, mut drops) = mpsc::unbounded_channel();
        let arrived = Arc::new(Notify::new());
        let script = {
            let arrived = Arc::clone(&arrived);
            Arc::new(Script::calling(move |_| {
                let guard = DropGuard(dropped.clone());
                arrived.notify_one();
                async move {
                    let _guard = guard;
                    std::future::pending().await
                }
            }))
        };
        let place = Place::new(wire);
        let _running = place.start(Process::new(&script));
        let client = Client::new(&registered(place.endpoint()));
        client.until_ready().await;

        tokio::select! {
            result = client.tool_call(SOON) => panic!("{result:?}"),
            () = arrived.notified() => {}
        }
        tokio::time::timeout(SOON, drops.recv()).await.expect("cancelled").expect("the guard's sender");

        let failure = client.tool_call(Duration::from_millis(100)).await.expect_err("no answer");
        assert_eq!(failure.reason, Reason::Timeout);
        tokio::time::timeout(SOON, drops.recv()).await.expect("cancelled").expect("the guard's sender");
        assert_eq!(script.executions(), 2);
    }
}

#[tokio::test]
async fn status_of_the_plugin_is_told_with_its_words() {
    let script = Arc::new(Script::calling(|_| async { Err(Status::resource_exhausted("full\nhouse")) }));
    let place = Place::new(Wire::Unix);
    let _running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    let failure = client.tool_call(SECOND).await.expect_err("an error");
    assert_eq!((failure.reason, failure.status), (Reason::RpcError, Some(tonic::Code::ResourceExhausted)));
    assert!(failure.detail.contains("full house"), "{failure}");
    assert_eq!(script.executions(), 1);
}

#[tokio::test]
async fn absent_plugin_is_not_ready_and_lost_plugin_is_unreachable() {
    for wire in WIRES {
        let (place, script) = (Place::new(wire), Arc::new(Script::default()));
        let client = Client::new(&registered(place.endpoint()));
        client.until(|status| matches!(status.why, Why::Unreachable(_))).await;
        assert_eq!(client.tool_call(SECOND).await.expect_err("absent").reason, Reason::NotReady);

        let running = place.start(Process::new(&script));
        client.until_ready().await;
        client.tool_call(SECOND).await.expect("an answer");
        drop(running);
        client.until(|status| status.state == State::Unhealthy).await;
        let failure = client.tool_call(SECOND).await.expect_err("gone");
        assert_eq!(failure.reason, Reason::Unreachable, "{failure}");

        let _again = place.start(Process::new(&script));
        client.tool_call(SECOND).await.expect("a call dials at once");
    }
}

#[tokio::test]
async fn plugin_that_restarted_is_initialised_once_for_a_hundred_calls() {
    for (wire, says) in [(Wire::Tcp, by_metadata as fn() -> Status), (Wire::Unix, by_error_info)] {
        let script = Arc::new(Script { not_initialized: Some(says), ..Script::default() });
        let place = Place::new(wire);
        let running = place.start(Process::new(&script));
        let client = Client::new(&registered(place.endpoint()));
        client.until_ready().await;
        drop(running);
        client.until(|status| status.state == State::Unhealthy).await;
        let _again = place.start(Process::new(&script));
        client.until_ready().await;
        assert_eq!(script.initializes(), 1, "a later connection is not initialised eagerly");
        let calls = join_all((0..100).map(|_| client.tool_call(SOON))).await;
        assert!(calls.iter().all(Result::is_ok), "{calls:?}");
        assert_eq!(script.initializes(), 2);
        assert_eq!(script.executions(), 100);
    }
}

fn by_error_info() -> Status {
    use tonic_types::StatusExt as _;
    let details = tonic_types::ErrorDetails::with_error_info("NOT_INITIALIZED", "hookgate", HashMap::new());
    Status::with_error_details(tonic::Code::FailedPrecondition, "who are you", details)
}

#[tokio::test]
async fn plugin_that_never_knows_its_configuration_is_not_ready() {
    // The plugin forgets its configuration: the script answers Initialize and stores nothing.
    let script = Arc::new(Script::calling(|_| async { Err(by_metadata()) }));
    let place = Place::new(Wire::Tcp);
    let _running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    assert_eq!(client.tool_call(SECOND).await.expect_err("unknown").reason, Reason::NotReady);
    assert_eq!((script.executions(), script.initializes()), (2, 2), "once more, and no more");
}

#[tokio::test(start_paused = true)]
async fn plugin_that_forgets_its_configuration_is_not_handed_it_with_every_call() {
    let forgetting = Script::calling(|_| async { Err(by_metadata()) });
    let away = Script::initializing(|| async { Err(Status::unavailable("database away")) });
    for script in [forgetting, away] {
        let script = Arc::new(script);
        let client = Client::built_in(&script, |_| {});
        client.until(|status| status.why != Why::NotDialled).await;
        for _ in 0..200 {
            assert_eq!(client.tool_call(SECOND).await.expect_err("unknown").reason, Reason::NotReady);
            assert_eq!(client.status().why, Why::InitializeUnavailable);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // In 10 s with delays that double from 100 ms to 5 s, at least half of each.
        let initializes = script.initializes();
        assert!((4..20).contains(&initializes), "{initializes}");
    }
}

#[tokio::test]
async fn call_waits_for_initialize_until_its_limit_and_initialize_goes_on() {
    let go = Arc::new(Notify::new());
    let script = {
        let go = Arc::clone(&go);
        Arc::new(Script::initializing(move || {
            let go = Arc::clone(&go);
            async move {
                go.notified().await;
                Ok(Default::default())
            }
        }))
    };
    let place = Place::new(Wire::Unix);
    let _running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until(|status| status.why == Why::Initializing).await;
    let failure = client.tool_call(Duration::from_millis(50)).await.expect_err("no answer yet");
    assert_eq!((failure.reason, failure.ran_out), (Reason::NotReady, true));
    let waiting = client.tool_call(SOON);
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    go.notify_one();
    waiting.await.expect("an answer");
    assert_eq!(script.initializes(), 1);
}

#[tokio::test]
async fn dial_that_hangs_is_unreachable_within_the_limit() {
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::default()));
    let running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    drop(running);
    client.until(|status| status.state == State::Unhealthy).await;
    // Connects and never answers Describe.
    let script = Script { describe: Box::new(|| Box::pin(std::future::pending())), ..Script::default() };
    let _silent = place.start(Process::new(&Arc::new(script)));
    let since = std::time::Instant::now();
    let failure = client.tool_call(Duration::from_millis(200)).await.expect_err("no connection");
    assert_eq!((failure.reason, failure.ran_out), (Reason::Unreachable, true), "{failure}");
    assert!(since.elapsed() < SOON / 4);
}

#[tokio::test]
async fn one_place_serialises_the_plugin() {
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let script = {
        let (under_way, most) = (Arc::clone(&under_way), Arc::clone(&most));
        Arc::new(Script::calling(move |_| {
            let (under_way, most) = (Arc::clone(&under_way), Arc::clone(&most));
            async move {
                most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                under_way.fetch_sub(1, Ordering::SeqCst);
                Ok(go_on())
            }
        }))
    };
    let place = Place::new(Wire::Unix);
    let _running = place.start(Process::new(&script));
    for (in_flight, expected) in [(1, 1..=1), (64, 2..=64)] {
        let mut plugin = registered(place.endpoint());
        plugin.limits.in_flight = in_flight;
        plugin.limits.queue_wait = Some(Span(SOON));
        let client = Client::new(&plugin);
        client.until_ready().await;
        let calls = join_all((0..40).map(|_| client.tool_call(SOON))).await;
        assert!(calls.iter().all(Result::is_ok), "{calls:?}");
        let most = most.swap(0, Ordering::SeqCst);
        assert!(expected.contains(&most), "{most} at once with {in_flight} places");
    }
}

#[tokio::test]
async fn wait_for_a_place_that_the_calls_limit_ends_says_so() {
    let arrived = Arc::new(Notify::new());
    let script = {
        let arrived = Arc::clone(&arrived);
        Arc::new(Script::calling(move |_| {
            arrived.notify_one();
            std::future::pending()
        }))
    };
    let client = Client::built_in(&script, |plugin| {
        plugin.limits.in_flight = 1;
        plugin.limits.queue_wait = Some(Span(SOON));
    });
    client.until_ready().await;
    let held = client.tool_call(SECOND);
    tokio::pin!(held);
    tokio::select! {
        result = &mut held => panic!("{result:?}"),
        () = arrived.notified() => {}
    }
    let queued = client.tool_call(SECOND / 20).await.expect_err("no place");
    assert_eq!((queued.reason, queued.ran_out), (Reason::BulkheadFull, true));
    let held = held.await.expect_err("no answer");
    assert_eq!((held.reason, held.ran_out), (Reason::Timeout, true));
}

#[tokio::test(start_paused = true)]
async fn full_queue_and_ended_wait_are_bulkhead_full() {
    let arrived = Arc::new(Notify::new());
    let script = {
        let arrived = Arc::clone(&arrived);
        Arc::new(Script::calling(move |_| {
            arrived.notify_one();
            std::future::pending()
        }))
    };
    let client = Client::built_in(&script, |plugin| {
        plugin.limits.in_flight = 1;
        plugin.limits.queue = 1;
    });
    client.until_ready().await;
    let held = client.tool_call(SOON);
    tokio::pin!(held);
    tokio::select! {
        result = &mut held => panic!("{result:?}"),
        () = arrived.notified() => {}
    }
    let since = tokio::time::Instant::now();
    let (queued, turned_away) = tokio::join!(client.tool_call(SECOND), async {
        let failure = client.tool_call(SECOND).await;
        (failure, since.elapsed())
    });
    let queued = queued.expect_err("the wait is a tenth of the limit");
    assert_eq!((queued.reason, queued.ran_out), (Reason::BulkheadFull, false));
    assert_eq!(since.elapsed(), SECOND / 10);
    assert_eq!(turned_away.0.expect_err("the queue is full").reason, Reason::BulkheadFull);
    assert_eq!(turned_away.1, Duration::ZERO, "at once");
    assert_eq!(script.executions(), 1);
}

#[tokio::test]
async fn point_that_the_manifest_does_not_offer_is_not_called() {
    let script = Arc::new(Script::default());
    let client = Client::built_in(&script, |_| {});
    client.until_ready().await;
    let payload = hookgate_proto::types::v1::BeforeResponsePayload::default();
    let (call, meta) = Default::default();
    let point = crate::core::point::Point::BeforeResponse;
    let failure = client.call(point, call, Arc::new(payload), meta, SECOND).await.expect_err("not offered");
    assert_eq!(failure.reason, Reason::PointNotOffered);
}
