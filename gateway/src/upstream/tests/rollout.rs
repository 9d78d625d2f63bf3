//! Replicas that are replaced: which manifest is accepted meanwhile, and which calls wait for an Initialize.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use hookgate_proto::{plugin::v1::DescribeResponse, types::v1::ExtensionPoint};
use tonic::Status;
use tonic_health::ServingStatus;

use super::{health, support::*};
use crate::{
    config::{self, Span},
    upstream::{SharedResources, State, Why, resolve::Resolver},
};

const SECOND: Duration = Duration::from_secs(1);

/// A resolver for one name.
#[derive(Default)]
struct Named(Mutex<Vec<SocketAddr>>);

impl Named {
    fn answers(&self, places: &[&Place]) {
        *self.0.lock().expect("unpoisoned") = places.iter().map(|place| place.address).collect();
    }
}

impl Resolver for Named {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let answer = self.0.lock().expect("unpoisoned").clone();
        Box::pin(async move { Ok(answer) })
    }
}

/// A manifest that offers more.
fn larger() -> DescribeResponse {
    let points = vec![offer(ExtensionPoint::BeforeToolCall), offer(ExtensionPoint::BeforeResponse)];
    DescribeResponse { version: "2.0.0".into(), points, ..manifest() }
}

fn at(places: &[Place]) -> config::Plugin {
    let mut plugin = registered(String::new());
    plugin.endpoint = None;
    plugin.endpoints = Some(places.iter().map(Place::endpoint).collect());
    plugin
}

#[tokio::test]
async fn name_that_moves_from_old_to_new_addresses_changes_the_manifest_while_old_calls_go_on() {
    for newer in [larger(), DescribeResponse { version: "1.3.0".into(), ..manifest() }] {
        let places = Place::of_one_port(2);
        let (release, waiting) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (let_go, arrived) = (Arc::clone(&release), Arc::clone(&waiting));
        let old = Arc::new(Script::calling(move |_| {
            let (let_go, arrived) = (Arc::clone(&let_go), Arc::clone(&arrived));
            async move {
                arrived.notify_one();
                let_go.notified().await;
                Ok(go_on())
            }
        }));
        let version = newer.version.clone();
        let new = Arc::new(Script::describing(newer));
        let _old = places[0].start(Process::new(&old));
        let _new = places[1].start(Process::new(&new));
        let names = Arc::new(Named::default());
        names.answers(&[&places[0]]);
        let plugin = registered(format!("dns:///guard:{}", places[0].address.port()));
        let shared = SharedResources { resolver: Arc::clone(&names) as Arc<dyn Resolver>, ..shared() };
        let client = Client::with(&plugin, shared, None);
        client.until_ready().await;
        let plugin = Arc::clone(&client.plugin);
        let under_way = tokio::spawn(async move { call(&plugin, SOON).await });
        waiting.notified().await;

        names.answers(&[&places[1]]);
        let is_new = |status: &crate::upstream::Status| {
            status.state == State::Ready
                && status.manifest.as_ref().is_some_and(|manifest| manifest.version.to_string() == version)
        };
        client.until(is_new).await;
        client.tool_call(SECOND).await.expect("the new one serves");
        assert!(old.shut_down.lock().expect("unpoisoned").is_empty(), "its call is under way");
        release.notify_one();
        under_way.await.expect("no panic").expect("the old one's call goes on");
        eventually("it is told", || old.shut_down.lock().expect("unpoisoned").len() == 1).await;
    }
}

#[tokio::test]
async fn refused_initialize_of_the_first_lets_the_others_have_their_turn() {
    let places = [Place::new(Wire::Tcp), Place::new(Wire::Tcp)];
    let (described, go) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (told, wait) = (Arc::clone(&described), Arc::clone(&go));
    let refusing = Arc::new(Script::initializing(move || {
        told.notify_one();
        let wait = Arc::clone(&wait);
        async move {
            wait.notified().await;
            Err(Status::invalid_argument("no"))
        }
    }));
    let _refusing = places[0].start(Process::new(&refusing));
    let client = Client::new(&at(&places));
    described.notified().await;
    let _other = places[1].start(Process::new(&Arc::new(Script::describing(larger()))));
    client.until(|_| client.endpoints()[1].why == Why::ManifestMismatch).await;
    go.notify_one();
    client.until_ready().await;
    assert_eq!(client.endpoints()[1].why, Why::Serving);
    assert_ne!(client.endpoints()[0].state, State::Ready);
    client.tool_call(SECOND).await.expect("the other one serves");
}

/// A process that reports itself healthy only once it has its configuration.
async fn serving_when_initialised(place: &Place) -> (Arc<Script>, Running) {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("", ServingStatus::NotServing).await;
    let script = Arc::new(Script::initializing(move || {
        let reporter = reporter.clone();
        async move {
            reporter.set_service_status("", ServingStatus::Serving).await;
            Ok(Default::default())
        }
    }));
    let running = health::start(place, Process::new(&script), service);
    (script, running)
}

#[tokio::test]
async fn restarted_process_that_serves_once_it_is_initialised_is_initialised() {
    let place = Place::new(Wire::Tcp);
    let mut plugin = registered(place.endpoint());
    plugin.health.interval = Span(Duration::from_millis(20));
    let (_, running) = serving_when_initialised(&place).await;
    let client = Client::new(&plugin);
    client.until_ready().await;
    drop(running);
    client.until(|status| status.state == State::Unhealthy).await;
    let (script, _running) = serving_when_initialised(&place).await;
    eventually("it is initialised", || script.initializes() == 1).await;
    client.until_ready().await;
    client.tool_call(SECOND).await.expect("an answer");
}

#[tokio::test]
async fn replica_that_takes_long_to_initialise_again_holds_up_no_call_that_another_could_take() {
    let places = [Place::new(Wire::Tcp), Place::new(Wire::Tcp), Place::new(Wire::Tcp)];
    let scripts: Vec<_> = places.iter().map(|_| Arc::new(Script::default())).collect();
    let started = places.iter().zip(&scripts).map(|(place, script)| place.start(Process::new(script)));
    let mut running: Vec<_> = started.collect();
    let client = Client::new(&at(&places));
    client.until(|_| client.endpoints().iter().all(|endpoint| endpoint.state == State::Ready)).await;
    // So that each endpoint is known to have its configuration.
    for _ in 0..30 {
        client.tool_call(SECOND).await.expect("an answer");
    }
    running[0] = Running::none();
    client.until(|_| client.endpoints()[0].state != State::Ready).await;
    let slow = Arc::new(Script::initializing(std::future::pending));
    running[0] = places[0].start(Process::new(&slow));
    client.until(|_| client.endpoints()[0].state == State::Ready).await;
    for _ in 0..20 {
        for reply in join_all((0..20).map(|_| client.tool_call(SECOND))).await {
            reply.expect("another one serves");
        }
    }
    assert_eq!((slow.initializes(), slow.executions()), (1, 0), "it was asked, and told once");
}
