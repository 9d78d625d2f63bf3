//! The connections to one endpoint: their number, their end, and health checks of a busy endpoint.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tonic_health::pb::health_server::HealthServer;

use super::{
    health::{self, Behind},
    support::*,
};
use crate::{
    config::{self, Span},
    core::step::Reason,
    upstream::{BreakerState, SharedResources, State},
};

const SECOND: Duration = Duration::from_secs(1);

/// A proxy between the gateway and a plugin that counts connections.
struct Between {
    endpoint: String,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Between {
    /// Forwards up to `most` connections; further ones are accepted, but not forwarded.
    async fn start(place: &Place, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let connections: Arc<Mutex<Vec<AbortHandle>>> = Arc::default();
        let (count, now, all, target) =
            (Arc::clone(&accepted), Arc::clone(&open), Arc::clone(&connections), place.address);
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut above, _)) = listener.accept().await {
                if count.fetch_add(1, Ordering::SeqCst) >= most {
                    held.push(above);
                    continue;
                }
                let open = Open::one(&now);
                let passing = tokio::spawn(async move {
                    let _open = open;
                    let mut below = TcpStream::connect(target).await.expect("the plugin listens");
                    let _ = tokio::io::copy_bidirectional(&mut above, &mut below).await;
                });
                all.lock().expect("unpoisoned").push(passing.abort_handle());
            }
        });
        Between { endpoint, accepted, open, connections }
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Counts a connection for as long as it lives.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn one(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Open(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn often(endpoint: &str) -> config::Plugin {
    let mut plugin = registered(endpoint.to_owned());
    plugin.health.interval = Span(Duration::from_millis(20));
    plugin.limits.in_flight = 200;
    plugin.limits.queue = 1000;
    plugin
}

#[tokio::test]
async fn connection_that_was_replaced_for_its_age_is_closed() {
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::default()));
    let _running = place.start(Process::new(&script));
    let between = Between::start(&place, usize::MAX).await;
    let shared = SharedResources { most_age: Duration::from_millis(100), ..shared() };
    let client = Client::with(&often(&between.endpoint), shared, None);
    client.until_ready().await;
    while between.accepted.load(Ordering::SeqCst) < 5 {
        client.tool_call(SECOND).await.expect("an answer");
    }
    // The one in use and, while it is being replaced, the next.
    eventually("the others are closed", || between.open() <= 2).await;
}

/// Waits until this many calls are under way, and then answers them all.
fn gathering(most: usize) -> Script {
    let barrier = Arc::new(tokio::sync::Barrier::new(most));
    Script::calling(move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok(go_on())
        }
    })
}

#[tokio::test]
async fn connections_that_ended_are_replaced_when_they_are_needed() {
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(gathering(150)));
    let _running = place.start(Process::new(&script));
    let between = Between::start(&place, usize::MAX).await;
    let client = Client::new(&often(&between.endpoint));
    client.until_ready().await;
    let all_three = async || {
        while client.endpoints()[0].connections < 3 {
            for reply in join_all((0..150).map(|_| client.tool_call(SOON))).await {
                reply.expect("an answer");
            }
        }
    };
    all_three().await;
    for connection in between.connections.lock().expect("unpoisoned").iter().skip(1) {
        connection.abort();
    }
    eventually("two have ended", || client.endpoints()[0].connections == 1).await;
    all_three().await;
    assert!(between.open() <= 4, "{}", between.open());
}

#[tokio::test]
async fn connection_that_cannot_be_added_is_not_tried_with_every_call() {
    let (place, script) = (Place::new(Wire::Tcp), Arc::new(gathering(90)));
    let _running = place.start(Process::new(&script));
    let between = Between::start(&place, 1).await;
    let client = Client::new(&often(&between.endpoint));
    client.until_ready().await;
    for _ in 0..50 {
        for reply in join_all((0..90).map(|_| client.tool_call(SOON))).await {
            reply.expect("the first connection is there");
        }
    }
    assert!(between.accepted.load(Ordering::SeqCst) <= 3, "{}", between.accepted.load(Ordering::SeqCst));
    assert_eq!(client.status().state, State::Ready);
}

#[tokio::test]
async fn time_spent_on_initialize_opens_no_breaker() {
    let slow = || {
        let script = Script::calling(|_| async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok(go_on())
        });
        let initialize: Box<dyn Fn() -> _ + Send + Sync> = Box::new(|| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(Default::default())
            }) as _
        });
        Arc::new(Script { initialize, ..script })
    };
    let place = Place::new(Wire::Tcp);
    let running = place.start(Process::new(&slow()));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    drop(running);
    client.until(|status| status.state == State::Unhealthy).await;
    let _running = place.start(Process::new(&slow()));
    client.until_ready().await;
    // Each waits for Initialize, and has too little time left for the rest.
    let calls = join_all((0..6).map(|_| client.tool_call(Duration::from_secs(2)))).await;
    assert!(calls.iter().all(|call| call.as_ref().is_err_and(|failure| failure.reason == Reason::Timeout)));
    assert_eq!(client.endpoints()[0].breaker, BreakerState::Closed);
}

#[tokio::test]
async fn plugin_that_is_busy_with_calls_is_not_taken_for_dead() {
    let (place, turn) = (Place::new(Wire::Tcp), Arc::new(tokio::sync::Mutex::new(())));
    let taken = Arc::clone(&turn);
    let script = Arc::new(Script::calling(move |_| {
        let taken = Arc::clone(&taken);
        async move {
            let _turn = taken.lock().await;
            tokio::time::sleep(Duration::from_millis(80)).await;
            Ok(go_on())
        }
    }));
    let _running = health::start(&place, Process::new(&script), HealthServer::new(Behind(turn)));
    let mut plugin = registered(place.endpoint());
    plugin.limits.in_flight = 1;
    plugin.health.interval = Span(Duration::from_millis(100));
    plugin.health.timeout = Span(Duration::from_millis(20));
    let client = Client::new(&plugin);
    client.until_ready().await;
    let calls = (0..2).map(|_| async {
        for _ in 0..20 {
            client.tool_call(SOON).await.expect("it answers one after the other");
        }
    });
    join_all(calls).await;
    assert_eq!(script.described.load(Ordering::SeqCst), 1, "its connection was kept");
}
