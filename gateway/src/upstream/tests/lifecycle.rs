//! Disabled, unreachable, shut down: the states around a plugin's calls.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch;

use super::support::*;
use crate::{
    config::Span,
    core::step::Reason,
    upstream::{Refusal, State, Why, state::StatusCell},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn plugin_that_is_switched_off_is_never_dialled() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let mut plugin = registered(endpoint.clone());
    plugin.enabled = false;
    let client = Client::new(&plugin);
    assert_eq!(client.tool_call(SECOND).await.expect_err("switched off").reason, Reason::NotReady);
    assert_eq!(client.status().state, State::Disabled);
    client.shutdown(SECOND).await;
    // An enabled twin, started later, is the first to connect.
    let _twin = Client::new(&registered(endpoint));
    let _held = listener.accept().await.expect("the twin dials");
    let second = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(second.is_err(), "nobody else dialled");
}

#[tokio::test(start_paused = true)]
async fn unreachable_plugin_is_dialled_again_with_growing_delays() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("plugin.sock");
    let client = Client::new(&registered(format!("unix://{}", path.display())));
    client.until(|status| matches!(status.why, Why::Unreachable(_))).await;
    let since = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(client.status().state, State::Unhealthy, "for ever");
    let script = Arc::new(Script::default());
    let listener = tokio::net::UnixListener::bind(&path).expect("a free path");
    let before = since.elapsed();
    let service =
        hookgate_proto::plugin::v1::plugin_service_server::PluginServiceServer::new(Process::new(&script));
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    client.until_ready().await;
    assert!(since.elapsed() - before <= Duration::from_secs(5), "{:?}", since.elapsed() - before);
}

#[tokio::test]
async fn shutdown_is_told_to_the_plugin_and_ends_its_calls() {
    for wire in WIRES {
        let (place, script) = (Place::new(wire), Arc::new(Script::default()));
        let _running = place.start(Process::new(&script));
        let client = Client::new(&registered(place.endpoint()));
        assert!(client.initialised_at().is_none());
        client.until_ready().await;
        assert!(client.initialised_at().is_some());
        client.shutdown(SECOND).await;
        assert_eq!(*script.shut_down.lock().expect("unpoisoned"), ["gateway-1"]);
        assert_eq!((client.status().state, client.status().why), (State::Draining, Why::ShuttingDown));
        assert_eq!(client.tool_call(SECOND).await.expect_err("draining").reason, Reason::NotReady);
        assert_eq!(script.executions(), 0);
    }
}

#[tokio::test]
async fn plugin_that_ignores_shutdown_is_not_waited_for_beyond_its_limit() {
    let place = Place::new(Wire::Tcp);
    let silent = Arc::new(Script { slow_shutdown: true, ..Script::default() });
    let _running = place.start(Process::new(&silent));
    let mut plugin = registered(place.endpoint());
    plugin.limits.shutdown = Span(Duration::from_millis(100));
    let client = Client::new(&plugin);
    client.until_ready().await;
    let since = std::time::Instant::now();
    client.shutdown(SOON).await;
    assert!(since.elapsed() >= Duration::from_millis(100) && since.elapsed() < SOON / 2);
    assert_eq!(silent.shut_down.lock().expect("unpoisoned").len(), 1);
}

#[tokio::test]
async fn panic_of_a_built_in_is_its_own_failure() {
    let script = Arc::new(Script::calling(|_| async { panic!("a bug in the plugin") }));
    let client = Client::built_in(&script, |_| {});
    client.until_ready().await;
    let failure = client.tool_call(SECOND).await.expect_err("it panicked");
    assert_eq!(failure.reason, Reason::RpcError, "{failure}");
    assert_eq!(client.tool_call(SECOND).await.expect_err("again").reason, Reason::RpcError);
}

#[tokio::test]
async fn call_beyond_the_message_limit_is_not_sent() {
    let script = Arc::new(Script::default());
    let client = Client::built_in(&script, |_| {});
    client.until_ready().await;
    let args = bytes::Bytes::from(vec![b'1'; (5 << 20) + 1]);
    let payload = hookgate_proto::types::v1::BeforeToolCallPayload { args, ..Default::default() };
    let point = crate::core::point::Point::BeforeToolCall;
    let (call, meta) = Default::default();
    let failure = client.call(point, call, Arc::new(payload), meta, SECOND).await.expect_err("too large");
    assert_eq!((failure.reason, script.executions()), (Reason::TooLarge, 0));
}

/// Collects log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_state_are_logged_once_and_without_secrets() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .with_max_level(tracing::Level::INFO);
    // The built-in plugin and the client's tasks run on this thread.
    let _logged = tracing::subscriber::set_default(subscriber.finish());
    let logged = |event: &str| {
        let text = String::from_utf8(lines.0.lock().expect("unpoisoned").clone()).expect("UTF-8");
        assert!(!text.contains("s3cr3t"), "{text}");
        text.lines().filter(|line| line.contains(&format!("\"event\":\"{event}\""))).count()
    };
    let secret = |plugin: &mut crate::config::Plugin| {
        plugin.config.insert("key".into(), "s3cr3t".into());
    };
    let good = Client::built_in(&Arc::new(Script::default()), secret);
    good.until_ready().await;
    assert_eq!((logged("plugin.connected"), logged("plugin.initialized")), (1, 1));
    let refusing = Script::initializing(|| std::future::ready(Err(tonic::Status::internal("no"))));
    let bad = Client::built_in(&Arc::new(refusing), secret);
    bad.until(|status| status.state == State::Refused).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(logged("plugin.refused") >= 1);
    assert_eq!(logged("plugin.refused"), 1, "asked again ten times, refused for the same reason");
}

#[test]
fn a_change_of_state_is_logged_before_its_watchers_learn_of_it() {
    let (changes, watcher) = watch::channel(0);
    let seen_at_the_log = Arc::new(Mutex::new(Vec::new()));
    let (seen, at_the_log) = (Arc::clone(&seen_at_the_log), watcher.clone());
    let writer = move || {
        let has_changed = at_the_log.has_changed().expect("the cell is alive");
        seen.lock().expect("unpoisoned").push(has_changed);
        io::sink()
    };
    let cell = StatusCell::new("guard".into(), "unix:///guard".into(), Why::Initializing, changes);
    tracing::subscriber::with_default(tracing_subscriber::fmt().with_writer(writer).finish(), || {
        cell.set(Why::Refused(Refusal::ConfigRefused), "no such member");
    });
    assert_eq!(*seen_at_the_log.lock().expect("unpoisoned"), [false]);
    assert!(watcher.has_changed().expect("the cell is alive"));
}
