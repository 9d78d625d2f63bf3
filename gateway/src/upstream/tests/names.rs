//! A plugin behind a DNS name whose addresses change, and endpoints with health checks.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tonic_health::{ServingStatus, pb::health_server::HealthServer};

use super::{
    health::{self, HealthOf},
    support::*,
};
use crate::{
    config::{self, Span},
    core::step::Reason,
    upstream::{DialErrorKind, SharedResources, State, Why, resolve::Resolver},
};

const SECOND: Duration = Duration::from_secs(1);

/// A resolver for one name.
#[derive(Default)]
struct ScriptedResolver {
    answer: Mutex<Option<Vec<SocketAddr>>>,
    asked: AtomicUsize,
}

impl Resolver for ScriptedResolver {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        assert_eq!(host, "guard");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().expect("unpoisoned").clone();
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("no such name")) })
    }
}

impl ScriptedResolver {
    fn answers(&self, places: &[&Place]) {
        let addresses = places.iter().map(|place| place.address).collect();
        *self.answer.lock().expect("unpoisoned") = Some(addresses);
    }
}

/// A client of `dns:///guard` with its resolver.
fn named(port: u16) -> (Client, Arc<ScriptedResolver>) {
    named_with(port, Arc::default())
}

fn named_with(port: u16, resolver: Arc<ScriptedResolver>) -> (Client, Arc<ScriptedResolver>) {
    let plugin = registered(format!("dns:///guard:{port}"));
    let shared = SharedResources { resolver: Arc::clone(&resolver) as Arc<dyn Resolver>, ..shared() };
    (Client::with(&plugin, shared, None), resolver)
}

#[tokio::test]
async fn who_asks_for_a_plugin_to_be_described_again_gets_the_present_addresses() {
    let places = Place::of_one_port(2);
    let scripts: Vec<_> = places.iter().map(|_| Arc::new(Script::default())).collect();
    let _processes: Vec<_> =
        places.iter().zip(&scripts).map(|(place, script)| place.start(Process::new(script))).collect();
    let resolver = Arc::new(ScriptedResolver::default());
    resolver.answers(&[&places[0]]);
    let (client, resolver) = named_with(places[0].address.port(), resolver);
    client.until_ready().await;
    let asked = resolver.asked.load(Ordering::SeqCst);

    resolver.answers(&[&places[1]]);
    let told = Mutex::new(Vec::new());
    client.describe_again(|described| told.lock().expect("unpoisoned").push(described)).await;
    let told = std::mem::take(&mut *told.lock().expect("unpoisoned"));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), asked + 1, "sooner than by itself");
    let described: Vec<_> = told.iter().map(|one| (&*one.address, &one.trouble)).collect();
    assert_eq!(described, [(&*places[1].endpoint(), &None)]);
    client.tool_call(SECOND).await.expect("an answer");
    assert_eq!((scripts[0].executions(), scripts[1].executions()), (0, 1));

    // If the name resolves to nothing any more, the existing endpoints stay and the reason is reported.
    *resolver.answer.lock().expect("unpoisoned") = None;
    let told = Mutex::new(Vec::new());
    client.describe_again(|described| told.lock().expect("unpoisoned").push(described)).await;
    let told = told.into_inner().expect("unpoisoned");
    let trouble: Vec<_> = told.iter().map(|one| (&*one.address, one.trouble.is_some())).collect();
    let name = format!("dns:///guard:{}", places[0].address.port());
    assert_eq!(trouble, [(&*name, true), (&*places[1].endpoint(), false)]);
}

#[tokio::test]
async fn addresses_that_come_get_calls_and_those_that_go_are_let_go_of() {
    let places = Place::of_one_port(3);
    let scripts: Vec<_> = places.iter().map(|_| Arc::new(Script::default())).collect();
    let mut processes: Vec<_> =
        places.iter().zip(&scripts).map(|(place, script)| place.start(Process::new(script))).collect();
    let resolver = Arc::new(ScriptedResolver::default());
    resolver.answers(&[&places[0]]);
    let (client, resolver) = named_with(places[0].address.port(), resolver);
    client.until_ready().await;
    assert_eq!(client.endpoints()[0].address, places[0].endpoint());

    // Found with the next lookup, within 11 s.
    resolver.answers(&[&places[0], &places[1], &places[2]]);
    client
        .until(|_| client.endpoints().iter().filter(|endpoint| endpoint.state == State::Ready).count() == 3)
        .await;
    for _ in 0..60 {
        client.tool_call(SECOND).await.expect("an answer");
    }
    assert!(scripts.iter().all(|script| script.executions() > 5));

    // Sooner, because an unreachable address triggers a lookup.
    resolver.answers(&[&places[1], &places[2]]);
    drop(processes.swap_remove(0));
    client.until(|_| client.endpoints().len() == 2).await;
    for _ in 0..20 {
        client.tool_call(SECOND).await.expect("an answer");
    }
}

#[tokio::test]
async fn address_that_left_finishes_its_calls_and_is_told() {
    let places = Place::of_one_port(2);
    let (release, waiting) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (let_go, arrived) = (Arc::clone(&release), Arc::clone(&waiting));
    let slow = Arc::new(Script::calling(move |_| {
        let (let_go, arrived) = (Arc::clone(&let_go), Arc::clone(&arrived));
        async move {
            arrived.notify_one();
            let_go.notified().await;
            Ok(go_on())
        }
    }));
    let _slow = places[0].start(Process::new(&slow));
    let other = Arc::new(Script::default());
    let _other = places[1].start(Process::new(&other));
    let resolver = Arc::new(ScriptedResolver::default());
    resolver.answers(&[&places[0]]);
    let (client, resolver) = named_with(places[0].address.port(), resolver);
    client.until_ready().await;
    let plugin = Arc::clone(&client.plugin);
    let under_way = tokio::spawn(async move { call(&plugin, SOON).await });
    waiting.notified().await;

    resolver.answers(&[&places[1]]);
    let only_the_other = || {
        let [only] = &client.endpoints()[..] else { return false };
        only.address == places[1].endpoint() && only.state == State::Ready
    };
    client.until(|_| only_the_other()).await;
    assert!(slow.shut_down.lock().expect("unpoisoned").is_empty(), "its call is under way");
    release.notify_one();
    under_way.await.expect("no panic").expect("the call goes on");
    eventually("it is told", || slow.shut_down.lock().expect("unpoisoned").len() == 1).await;
    client.tool_call(SECOND).await.expect("the other one serves");
    assert_eq!(other.executions(), 1);
}

#[tokio::test]
async fn empty_answer_keeps_the_addresses_there_were() {
    let place = Place::new(Wire::Tcp);
    let script = Arc::new(Script::default());
    let running = place.start(Process::new(&script));
    let resolver = Arc::new(ScriptedResolver::default());
    resolver.answers(&[&place]);
    let (client, resolver) = named_with(place.address.port(), resolver);
    client.until_ready().await;

    resolver.answers(&[]);
    drop(running);
    client.until(|status| status.state == State::Unhealthy).await;
    let asked = resolver.asked.load(Ordering::SeqCst);
    let _ = client.tool_call(SECOND).await;
    eventually("the name is looked up", || resolver.asked.load(Ordering::SeqCst) > asked).await;
    let _running = place.start(Process::new(&script));
    client.until_ready().await;
    client.tool_call(SECOND).await.expect("an answer");
}

#[tokio::test]
async fn name_that_leads_nowhere_says_so_and_lets_no_call_through() {
    for (answer, cause, word) in [
        (None, DialErrorKind::NameUnresolved, "name_unresolved"),
        (Some(Vec::new()), DialErrorKind::NoAddress, "no_address"),
    ] {
        let (client, resolver) = named(7000);
        *resolver.answer.lock().expect("unpoisoned") = answer;
        client.until(|status| status.why == Why::Unreachable(cause)).await;
        let status = client.status();
        assert_eq!((status.why.as_str(), status.state), (word, State::Unhealthy));
        assert!(status.detail.contains("`guard`"), "{status:?}");
        let failure = client.tool_call(SECOND).await.map(drop).expect_err("there is nobody");
        assert_eq!(failure.reason, Reason::NotReady, "{failure}");
        assert!(failure.detail.contains(word), "{failure}");
    }
}

/// Checked every 20 ms. The timeout is long, so that no check fails on a busy machine.
fn often(place: &Place) -> config::Plugin {
    let mut plugin = registered(place.endpoint());
    plugin.health.interval = Span(Duration::from_millis(20));
    plugin.health.timeout = Span(SOON);
    plugin
}

#[tokio::test]
async fn endpoint_that_says_it_does_not_serve_gets_no_calls_until_it_does() {
    for wire in WIRES {
        let (place, script) = (Place::new(wire), Arc::new(Script::default()));
        let (reporter, service) = tonic_health::server::health_reporter();
        reporter.set_service_status("", ServingStatus::NotServing).await;
        let _running = health::start(&place, Process::new(&script), service);
        let client = Client::new(&often(&place));
        client.until(|status| status.why == Why::NotServing).await;
        assert_eq!(script.initializes(), 1);
        let failure = client.tool_call(SECOND).await.map(drop).expect_err("it doesn't serve");
        assert_eq!(failure.reason, Reason::NotReady, "{failure}");
        assert_eq!(script.executions(), 0);
        for _ in 0..2 {
            reporter.set_service_status("", ServingStatus::Serving).await;
            client.until_ready().await;
            client.tool_call(SECOND).await.expect("an answer");
            reporter.set_service_status("", ServingStatus::NotServing).await;
            client.until(|status| status.why == Why::NotServing).await;
        }
        assert_eq!(script.described.load(Ordering::SeqCst), 1, "the connection is kept");
    }
}

#[tokio::test]
async fn endpoint_that_leaves_its_health_unanswered_is_out_and_connected_anew() {
    let answers = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::default()));
    let _running =
        health::start(&place, Process::new(&script), HealthServer::new(HealthOf(Arc::clone(&answers))));
    let mut plugin = often(&place);
    plugin.health.timeout = Span(Duration::from_millis(200));
    let client = Client::new(&plugin);
    client.until(|status| status.why == Why::HealthUnanswered).await;
    assert!(client.status().detail.contains("3 health checks in a row"), "{:?}", client.status());
    let failure = client.tool_call(SECOND).await.map(drop).expect_err("nobody may be there");
    assert_eq!(failure.reason, Reason::Unreachable, "{failure}");
    answers.store(true, Ordering::SeqCst);
    client.until_ready().await;
    client.tool_call(SECOND).await.expect("an answer");
    assert_eq!(script.initializes(), 1, "the process knows its configuration");
}

#[tokio::test]
async fn endpoint_without_the_health_service_is_judged_by_its_calls() {
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::default()));
    let _running = place.start(Process::new(&script));
    let client = Client::new(&often(&place));
    client.until_ready().await;
    for _ in 0..20 {
        client.tool_call(SECOND).await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(client.status().state, State::Ready);
    }
}
