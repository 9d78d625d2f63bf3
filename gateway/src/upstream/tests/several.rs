//! A plugin with several endpoints: which one gets a call, which is left out, and which manifest is accepted.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use hookgate_proto::{plugin::v1::DescribeResponse, types::v1::ExtensionPoint};
use tonic::Status;

use super::support::*;
use crate::{
    config::{self, Span},
    core::step::Reason,
    upstream::{BreakerState, EndpointStatus, State, Why},
};

const SECOND: Duration = Duration::from_secs(1);

/// Replicas of one plugin, each with its own script and process.
struct Replicas {
    places: Vec<Place>,
    scripts: Vec<Arc<Script>>,
    processes: Vec<Running>,
}

impl Replicas {
    fn start(scripts: Vec<Script>) -> Self {
        let places: Vec<_> = scripts.iter().map(|_| Place::new(Wire::Tcp)).collect();
        let scripts: Vec<_> = scripts.into_iter().map(Arc::new).collect();
        let start = |(place, script): (&Place, &Arc<Script>)| place.start(Process::new(script));
        let processes = places.iter().zip(&scripts).map(start).collect();
        Replicas { places, scripts, processes }
    }

    fn registered(&self) -> config::Plugin {
        let mut plugin = registered(String::new());
        plugin.endpoint = None;
        plugin.endpoints = Some(self.places.iter().map(Place::endpoint).collect());
        plugin
    }

    /// A client whose endpoints are all connected.
    async fn client(&self, change: impl FnOnce(&mut config::Plugin)) -> Client {
        let mut plugin = self.registered();
        change(&mut plugin);
        let client = Client::new(&plugin);
        all(&client, |endpoint| endpoint.state == State::Ready).await;
        client
    }

    fn executions(&self) -> Vec<usize> {
        self.scripts.iter().map(|script| script.executions()).collect()
    }

    fn stop(&mut self, index: usize) {
        self.processes[index] = Running::none();
    }

    fn restart(&mut self, index: usize, script: Script) {
        self.stop(index);
        self.scripts[index] = Arc::new(script);
        self.processes[index] = self.places[index].start(Process::new(&self.scripts[index]));
    }
}

/// Waits until every endpoint satisfies `wanted`.
async fn all(client: &Client, wanted: impl Fn(&EndpointStatus) -> bool) {
    client.until(|_| client.endpoints().iter().all(&wanted)).await;
}

async fn one(client: &Client, index: usize, wanted: impl Fn(&EndpointStatus) -> bool) {
    client.until(|_| wanted(&client.endpoints()[index])).await;
}

fn failing() -> Script {
    Script::calling(|_| std::future::ready(Err(Status::internal("no"))))
}

#[tokio::test]
async fn calls_are_spread_over_the_endpoints() {
    let replicas = Replicas::start(vec![Script::default(), Script::default(), Script::default()]);
    let client = replicas.client(|_| ()).await;
    for _ in 0..30 {
        join_all((0..10).map(|_| client.tool_call(SECOND))).await.into_iter().for_each(|reply| {
            reply.expect("an answer");
        });
    }
    let executions = replicas.executions();
    assert_eq!(executions.iter().sum::<usize>(), 300);
    assert!(executions.iter().all(|count| (50..150).contains(count)), "{executions:?}");
}

#[tokio::test]
async fn endpoint_that_fails_is_left_out_while_the_others_serve() {
    let mut replicas = Replicas::start(vec![Script::default(), failing(), Script::default()]);
    let client = replicas.client(|plugin| plugin.breaker.open = Span(Duration::from_secs(600))).await;
    for index in [0, 2] {
        replicas.stop(index);
        one(&client, index, |endpoint| endpoint.state == State::Unhealthy).await;
    }
    for _ in 0..5 {
        assert_eq!(client.tool_call(SECOND).await.map(drop).expect_err("it fails").reason, Reason::RpcError);
    }
    let failed = &client.endpoints()[1];
    assert_eq!(
        (failed.breaker, failed.tenant_breakers_open),
        (BreakerState::Closed, 1),
        "it was reached each time"
    );
    for index in [0, 2] {
        replicas.restart(index, Script::default());
        one(&client, index, |endpoint| endpoint.state == State::Ready).await;
    }
    for _ in 0..200 {
        client.tool_call(SECOND).await.expect("the others serve");
    }
    assert_eq!(replicas.executions()[1], 5);
}

#[tokio::test]
async fn endpoint_that_fails_fast_gets_few_calls_even_without_a_breaker() {
    let replicas = Replicas::start(vec![Script::default(), failing(), Script::default()]);
    let client = replicas.client(|plugin| plugin.breaker.failures = 1_000_000).await;
    for _ in 0..1_000 {
        let _ = client.tool_call(SECOND).await;
    }
    let executions = replicas.executions();
    assert!(executions[1] > 0 && executions[1] < 50, "{executions:?}");
}

#[tokio::test]
async fn all_breakers_open_fail_at_once_and_each_is_tried_again() {
    let healed = Arc::new(AtomicBool::new(false));
    let script = || {
        let healed = Arc::clone(&healed);
        Script::calling(move |_| {
            let healed = healed.load(Ordering::SeqCst);
            async move { if healed { Ok(go_on()) } else { Err(Status::unavailable("no")) } }
        })
    };
    let replicas = Replicas::start(vec![script(), script()]);
    let client = replicas.client(|plugin| plugin.breaker.open = Span(Duration::from_secs(2))).await;
    let refused = loop {
        let failure = client.tool_call(SECOND).await.map(drop).expect_err("both fail");
        if failure.reason == Reason::BreakerOpen {
            break failure;
        }
    };
    assert!(refused.detail.contains("all of its 2 endpoints"), "{refused}");
    let before = replicas.executions();
    assert!(before.iter().sum::<usize>() >= 10, "{before:?}");
    assert_eq!(client.tool_call(SECOND).await.map(drop).expect_err("open").reason, Reason::BreakerOpen);
    assert_eq!(replicas.executions(), before);

    healed.store(true, Ordering::SeqCst);
    let both_are_tried_again = async {
        while (0..2).any(|index| replicas.executions()[index] == before[index]) {
            let _ = client.tool_call(SECOND).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SECOND * 60, both_are_tried_again).await.expect("both are tried again");
    for _ in 0..20 {
        let _ = client.tool_call(SECOND).await;
    }
    client.tool_call(SECOND).await.expect("an answer");
}

#[tokio::test]
async fn single_endpoint_is_probed_when_its_time_is_over() {
    let replicas = Replicas::start(vec![failing()]);
    let client = replicas.client(|plugin| plugin.breaker.open = Span(Duration::from_millis(50))).await;
    let mut seen = 0;
    // The breaker is open for at most half a minute.
    while replicas.executions()[0] < 8 {
        match client.tool_call(SECOND).await.map(drop).expect_err("it fails").reason {
            Reason::BreakerOpen => tokio::time::sleep(Duration::from_millis(5)).await,
            reason => {
                assert_eq!(reason, Reason::RpcError);
                seen += 1;
            }
        }
    }
    assert_eq!(replicas.executions()[0], seen);
}

#[tokio::test]
async fn plugin_s_own_word_never_opens_the_breaker() {
    for status in [Status::invalid_argument("no"), Status::resource_exhausted("no"), Status::cancelled("no")]
    {
        let status_of = status.clone();
        let replicas =
            Replicas::start(vec![Script::calling(move |_| std::future::ready(Err(status_of.clone())))]);
        let client = replicas.client(|_| ()).await;
        for _ in 0..10 {
            let failure = client.tool_call(SECOND).await.map(drop).expect_err("it fails");
            assert_eq!(failure.reason, Reason::RpcError, "{failure}");
        }
    }
}

#[tokio::test]
async fn time_out_counts_only_where_the_call_had_its_whole_time() {
    let replicas = Replicas::start(vec![Script::calling(|_| std::future::pending())]);
    let client = replicas.client(|_| ()).await;
    let limit = Duration::from_millis(20);
    for _ in 0..10 {
        let failure = client.shortened_call(limit).await.map(drop).expect_err("it hangs");
        assert_eq!(failure.reason, Reason::Timeout);
    }
    for _ in 0..5 {
        assert_eq!(client.tool_call(limit).await.map(drop).expect_err("it hangs").reason, Reason::Timeout);
    }
    assert_eq!(client.tool_call(limit).await.map(drop).expect_err("open").reason, Reason::BreakerOpen);
}

#[tokio::test]
async fn call_that_could_not_be_sent_goes_to_another_endpoint() {
    let mut replicas = Replicas::start(vec![Script::default(), Script::default(), Script::default()]);
    // Every failed dial would open the breaker.
    let client = replicas.client(|plugin| plugin.breaker.failures = 1).await;
    for index in [0, 1] {
        replicas.stop(index);
        one(&client, index, |endpoint| endpoint.state == State::Unhealthy).await;
        for _ in 0..50 {
            client.tool_call(SECOND).await.expect("another one serves");
        }
    }
    assert_eq!(replicas.executions().iter().sum::<usize>(), 100);
}

/// Refuses every call.
fn refusing() -> RawAnswer {
    Arc::new(|_, mut respond| {
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        Box::pin(std::future::ready(())) as BoxFuture<'static, ()>
    })
}

#[tokio::test]
async fn refused_stream_goes_to_another_endpoint() {
    let good = Replicas::start(vec![Script::default()]);
    let place = Place::new(Wire::Tcp);
    let _raw = place.start_raw(refusing());
    let mut plugin = good.registered();
    plugin.endpoints.as_mut().expect("one").push(place.endpoint());
    let client = Client::new(&plugin);
    all(&client, |endpoint| endpoint.state == State::Ready).await;
    for _ in 0..100 {
        client.tool_call(SECOND).await.expect("the other one serves");
    }
    assert_eq!(good.executions(), [100]);
}

/// As when replicas are restarted one after another: one has lost its configuration, another is going.
#[tokio::test]
async fn refusal_and_lost_configuration_may_meet_in_one_call() {
    let place = Place::new(Wire::Tcp);
    let _raw = place.start_raw(refusing());
    // The first endpoint is chosen at random.
    for _ in 0..10 {
        let calls = AtomicUsize::new(0);
        let forgetful = Script::calling(move |_| {
            let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            std::future::ready(if is_first { Err(by_metadata()) } else { Ok(go_on()) })
        });
        let replicas = Replicas::start(vec![forgetful]);
        let mut plugin = replicas.registered();
        plugin.endpoints.as_mut().expect("one").push(place.endpoint());
        let client = Client::new(&plugin);
        all(&client, |endpoint| endpoint.state == State::Ready).await;
        client.tool_call(SECOND).await.expect("one retry for each reason");
        assert_eq!(replicas.executions(), [2]);
    }
}

/// A manifest that offers more.
fn larger() -> DescribeResponse {
    let points = vec![offer(ExtensionPoint::BeforeToolCall), offer(ExtensionPoint::BeforeResponse)];
    DescribeResponse { version: "2.0.0".into(), points, ..manifest() }
}

#[tokio::test]
async fn replica_with_another_manifest_waits_until_no_old_one_is_left_and_then_all_change_at_once() {
    let mut replicas = Replicas::start(vec![Script::default(), Script::default(), Script::default()]);
    let client = replicas.client(|_| ()).await;
    let first = client.status().manifest.expect("accepted");
    for index in [0, 1] {
        replicas.restart(index, Script::describing(larger()));
        one(&client, index, |endpoint| endpoint.why == Why::ManifestMismatch).await;
        assert!(
            client.endpoints()[index].detail.contains("adds before_response"),
            "{:?}",
            client.endpoints()
        );
        assert!(Arc::ptr_eq(&first, &client.status().manifest.expect("accepted")));
        client.tool_call(SECOND).await.expect("an old one serves");
    }
    assert_eq!((replicas.executions()[0], replicas.executions()[1]), (0, 0));

    let seen = manifests(&client);
    replicas.restart(2, Script::describing(larger()));
    all(&client, |endpoint| endpoint.state == State::Ready).await;
    client.tool_call(SECOND).await.expect("a new one serves");
    assert_eq!(client.status().manifest.expect("accepted").version.to_string(), "2.0.0");
    assert_eq!(versions(&seen), ["1.2.0", "2.0.0"]);
}

#[tokio::test]
async fn version_alone_keeps_no_replica_out_and_changes_once() {
    let newer = || DescribeResponse { version: "1.3.0".into(), ..manifest() };
    let mut replicas = Replicas::start(vec![Script::default(), Script::default(), Script::default()]);
    let client = replicas.client(|_| ()).await;
    let seen = manifests(&client);
    for index in 0..3 {
        assert_eq!(client.status().manifest.expect("accepted").version.to_string(), "1.2.0");
        replicas.restart(index, Script::describing(newer()));
        one(&client, index, |endpoint| {
            endpoint.version.as_ref().is_some_and(|version| version.minor == 3)
                && endpoint.state == State::Ready
        })
        .await;
    }
    client.until(|status| status.manifest.as_ref().is_some_and(|manifest| manifest.version.minor == 3)).await;
    assert_eq!(versions(&seen), ["1.2.0", "1.3.0"]);
}

type SeenVersions = Arc<Mutex<Vec<String>>>;

/// Records the accepted version at every change.
fn manifests(client: &Client) -> SeenVersions {
    let (seen, plugin) = (SeenVersions::default(), Arc::clone(&client.plugin));
    let (into, mut changes) = (Arc::clone(&seen), client.shared.changes());
    tokio::spawn(async move {
        loop {
            let version = plugin.status().manifest.expect("accepted").version.to_string();
            into.lock().expect("unpoisoned").push(version);
            if changes.changed().await.is_err() {
                return;
            }
        }
    });
    seen
}

fn versions(seen: &SeenVersions) -> Vec<String> {
    let mut seen = seen.lock().expect("unpoisoned").clone();
    seen.dedup();
    seen
}

#[tokio::test]
async fn connections_grow_with_the_calls_in_flight_up_to_four() {
    let release = Arc::new(tokio::sync::Semaphore::new(0));
    let waiting = Arc::clone(&release);
    let script = Script::calling(move |_| {
        let waiting = Arc::clone(&waiting);
        async move {
            waiting.acquire().await.expect("open").forget();
            Ok(go_on())
        }
    });
    let replicas = Replicas::start(vec![script]);
    let client = replicas.client(|plugin| plugin.limits.in_flight = 200).await;
    assert_eq!(client.endpoints()[0].connections, 1);
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let plugin = Arc::clone(&client.plugin);
            tokio::spawn(async move { call(&plugin, SOON).await })
        })
        .collect();
    let under_way = AtomicUsize::new(0);
    eventually("all are under way", || {
        under_way.store(replicas.executions()[0], Ordering::SeqCst);
        under_way.load(Ordering::SeqCst) == 100
    })
    .await;
    for _ in 0..10 {
        let plugin = Arc::clone(&client.plugin);
        drop(tokio::spawn(async move { call(&plugin, SOON).await }));
        tokio::task::yield_now().await;
    }
    eventually("there are more connections", || client.endpoints()[0].connections > 1).await;
    assert!(client.endpoints()[0].connections <= 4);
    release.add_permits(200);
    for answer in join_all(calls).await {
        answer.expect("no panic").expect("an answer");
    }
    assert_eq!(client.endpoints().len(), 1);
}

#[tokio::test]
async fn old_connections_are_replaced_and_no_call_notices() {
    let replicas = Replicas::start(vec![Script::default()]);
    let mut plugin = replicas.registered();
    plugin.health.interval = Span(Duration::from_millis(10));
    let shared = crate::upstream::SharedResources { most_age: Duration::from_millis(100), ..shared() };
    let client = Client::with(&plugin, shared, None);
    client.until_ready().await;
    while replicas.scripts[0].described.load(Ordering::SeqCst) < 4 {
        client.tool_call(SECOND).await.expect("an answer");
    }
    assert_eq!(replicas.scripts[0].initializes(), 1, "the process knows its configuration");
    assert_eq!(client.status().state, State::Ready);
}
