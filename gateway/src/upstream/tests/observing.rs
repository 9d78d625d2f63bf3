//! Observers: no call waits for them, a full queue drops its oldest entries, and every entry is reported
//! once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_proto::{plugin::v1::Call, types::v1::BeforeToolCallPayload};
use tokio::sync::{Semaphore, mpsc};

use super::support::*;
use crate::{
    config::{self, Size},
    core::{failure::Failure, point::Point, step::Reason},
    telemetry::Telemetry,
    upstream::{BreakerState, CallMeta, PluginReply, SharedResources, State},
};

const SECOND: Duration = Duration::from_secs(1);

type Told = (usize, Result<PluginReply, Failure>);

/// An observer that answers once for each permit of `go`, with a queue bounded by entries and bytes.
struct Observer {
    client: Client,
    script: Arc<Script>,
    go: Arc<Semaphore>,
    told: mpsc::UnboundedReceiver<Told>,
    tell: mpsc::UnboundedSender<Told>,
}

impl Observer {
    async fn new(wire: Wire, items: usize, bytes: u64, in_flight: usize) -> (Self, Place, Running) {
        let go = Arc::new(Semaphore::new(0));
        let script = {
            let go = Arc::clone(&go);
            Arc::new(Script::calling(move |_| {
                let go = Arc::clone(&go);
                async move {
                    go.acquire().await.expect("open").forget();
                    Ok(go_on())
                }
            }))
        };
        let place = Place::new(wire);
        let running = place.start(Process::new(&script));
        let mut plugin = registered(place.endpoint());
        plugin.limits.in_flight = in_flight;
        let observers = config::Observers { items, bytes: Size(bytes) };
        let shared = SharedResources::new(
            "gateway-1",
            Telemetry::unseen(),
            config::Limits::default(),
            observers,
            |config, scope| config::resolve_references(config, [], scope),
        );
        let client = Client::with(&plugin, shared, None);
        client.until_ready().await;
        let (tell, told) = mpsc::unbounded_channel();
        (Observer { client, script, go, told, tell }, place, running)
    }

    fn observe(&self, number: usize, args: usize) {
        self.observe_args(number, vec![b'1'; args].into());
    }

    fn observe_args(&self, number: usize, args: bytes::Bytes) {
        let payload = BeforeToolCallPayload { tool_name: number.to_string(), args, ..Default::default() };
        let tell = self.tell.clone();
        let done = Box::new(move |result| drop(tell.send((number, result))));
        let meta = CallMeta::default();
        self.client.observe(Point::BeforeToolCall, Call::default(), &payload, meta, SOON, done);
    }

    async fn told(&mut self) -> Told {
        tokio::time::timeout(SOON, self.told.recv()).await.expect("told in time").expect("a sender is kept")
    }

    fn observed(&self) -> Vec<usize> {
        let seen = self.script.seen.lock().expect("unpoisoned");
        let number = |seen: &Seen| seen.payload.as_ref().expect("sent").tool_name.parse().expect("a number");
        seen.iter().map(number).collect()
    }
}

#[tokio::test]
async fn full_queue_gives_up_its_oldest_entries_and_counts_them() {
    for wire in WIRES {
        let (mut observer, _place, _running) = Observer::new(wire, 4, 1 << 20, 1).await;
        observer.observe(0, 0);
        eventually("the first is under way", || observer.observed() == [0]).await;
        (1..=10).for_each(|number| observer.observe(number, 0));
        for number in 1..=6 {
            let (told, result) = observer.told().await;
            assert_eq!((told, result.expect_err("given up").reason), (number, Reason::BulkheadFull));
        }
        assert_eq!(observer.client.observers_dropped(), 6);
        observer.go.add_permits(5);
        for number in [0, 7, 8, 9, 10] {
            let (told, result) = observer.told().await;
            assert!(told == number && result.is_ok(), "{told}: {result:?}");
        }
        assert_eq!(observer.observed(), [0, 7, 8, 9, 10], "in order");
    }
}

#[tokio::test]
async fn a_queued_entry_does_not_keep_the_received_message_alive() {
    let (observer, _place, _running) = Observer::new(Wire::Unix, 1000, 10_000, 1).await;
    observer.observe(0, 0);
    eventually("the first is under way", || observer.observed() == [0]).await;
    // A large message of which the payload is a small slice, as JSON values and gRPC fields are.
    let message = Arc::new(vec![b'1'; 4 << 20]);
    let received = bytes::Bytes::from_owner(Shares(Arc::clone(&message)));
    observer.observe_args(1, received.slice(..10));
    drop(received);
    assert_eq!(Arc::strong_count(&message), 1, "the queue holds what it counts");
}

/// Memory that counts its users.
struct Shares(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shares {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test]
async fn queue_is_bounded_by_bytes_too() {
    let (mut observer, _place, _running) = Observer::new(Wire::Unix, 1000, 10_000, 1).await;
    observer.observe(0, 0);
    eventually("the first is under way", || observer.observed() == [0]).await;
    (1..=5).for_each(|number| observer.observe(number, 3_000));
    for number in [1, 2] {
        assert_eq!(observer.told().await.0, number);
    }
    observer.observe(6, 20_000);
    let mut given_up = Vec::new();
    for _ in 0..4 {
        given_up.push(observer.told().await.0);
    }
    assert_eq!(given_up, [3, 4, 5, 6], "what is larger than the queue doesn't stay either");
    assert_eq!(observer.client.observers_dropped(), 6);
}

#[tokio::test]
async fn flood_of_an_observer_that_never_answers_does_not_hold_up_calls() {
    let (observer, _place, _running) = Observer::new(Wire::Tcp, 16, 1 << 20, 64).await;
    let since = std::time::Instant::now();
    (0..5_000).for_each(|number| observer.observe(number, 100));
    assert!(since.elapsed() < SOON / 4, "nothing waits");
    eventually("some are under way", || !observer.observed().is_empty()).await;
    let dropped = usize::try_from(observer.client.observers_dropped()).expect("few");
    assert!((5_000 - 16 - 8..5_000).contains(&dropped), "{dropped}");
    // A step of the same plugin still gets a permit: the observer takes at most eight.
    let step = tokio::time::timeout(SOON, async {
        let step = observer.client.tool_call(SOON);
        tokio::pin!(step);
        tokio::select! {
            result = &mut step => panic!("{result:?}"),
            () = eventually("the step is called", || {
                let seen = observer.script.seen.lock().expect("unpoisoned");
                let mut payloads = seen.iter().filter_map(|seen| seen.payload.as_ref());
                payloads.any(|payload| payload.tool_name == "fs.read")
            }) => {}
        }
    });
    step.await.expect("the step is called");
}

#[tokio::test]
async fn drain_delivers_what_is_queued() {
    let (mut observer, _place, _running) = Observer::new(Wire::Unix, 100, 1 << 20, 64).await;
    observer.go.add_permits(50);
    (0..50).for_each(|number| observer.observe(number, 0));
    assert_eq!(observer.client.drain(SOON).await, 0);
    assert_eq!(observer.observed().len(), 50);
    observer.observe(50, 0);
    for _ in 0..50 {
        assert!(observer.told().await.1.is_ok());
    }
    let (late, result) = observer.told().await;
    assert_eq!((late, result.expect_err("ended").reason), (50, Reason::BulkheadFull));
}

#[tokio::test]
async fn drain_ends_at_its_limit_and_counts_what_is_left() {
    let (mut observer, _place, _running) = Observer::new(Wire::Tcp, 100, 1 << 20, 2).await;
    (0..10).for_each(|number| observer.observe(number, 0));
    eventually("two are under way", || observer.observed().len() == 2).await;
    let since = std::time::Instant::now();
    assert_eq!(observer.client.drain(Duration::from_millis(50)).await, 10);
    assert!(since.elapsed() < SOON / 2);
    let given_up = Mutex::new(Vec::new());
    for _ in 0..10 {
        let (number, result) = observer.told().await;
        assert!(result.is_err());
        given_up.lock().expect("unpoisoned").push(number);
    }
    let mut given_up = given_up.into_inner().expect("unpoisoned");
    given_up.sort_unstable();
    assert_eq!(given_up, (0..10).collect::<Vec<_>>(), "each is told of once");
    assert_eq!(observer.client.drain(SECOND).await, 0);
}

#[tokio::test]
async fn outage_of_an_observer_costs_few_entries_and_the_rest_wait_for_its_end() {
    let place = Place::new(Wire::Tcp);
    let script = Arc::new(Script::default());
    let running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    drop(running);
    client.until(|status| status.state == State::Unhealthy).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    for _ in 0..100 {
        let tell = tell.clone();
        let done = Box::new(move |result: Result<PluginReply, Failure>| {
            let reason = result.as_ref().err().map(|failure| failure.reason);
            if let Ok(replied) = result {
                replied.served.judge(None);
            }
            let _ = tell.send(reason);
        });
        let (payload, meta) = (
            BeforeToolCallPayload::default(),
            CallMeta { tenant: Arc::default(), depth: 1, whole: true, trial: false },
        );
        client.observe(Point::BeforeToolCall, Call::default(), &payload, meta, SOON, done);
    }
    eventually("its breaker is open", || client.endpoints()[0].breaker != BreakerState::Closed).await;
    let _running = place.start(Process::new(&script));
    let mut reasons = Vec::new();
    for _ in 0..100 {
        reasons.push(
            tokio::time::timeout(SOON, told.recv()).await.expect("told in time").expect("a sender is kept"),
        );
    }
    let lost = reasons.iter().filter(|reason| reason.is_some()).count();
    assert!(lost <= 20, "{lost}: {reasons:?}");
    assert_eq!((script.executions(), client.observers_dropped()), (100 - lost, 0));
}
