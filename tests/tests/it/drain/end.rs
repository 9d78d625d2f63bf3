//! Tests that after SIGTERM the process exits within the drain's time, whatever hangs (G26).

use std::time::Duration;

use hookgate_tests::{
    agent::path,
    collector::Collector,
    fake::{Act, FakePlugin},
    gateway::{Gateway, Line, Setup},
    proxy::Proxy,
    token::token,
};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    time::Instant,
};

use crate::edge::support::{POINT, payload};

/// After the calls are given up: observers, Shutdown, telemetry.
const LAST: Duration = Duration::from_secs(4);
/// The tolerance of the guarantee.
const MARGIN: Duration = Duration::from_millis(500);
/// More than sockets buffer.
const LARGE: usize = 16 << 20;

/// Makes everything hang that can hang. Returns the time from SIGTERM to the exit.
async fn end_of_everything_stuck(setup: Setup) -> Duration {
    let hanging = FakePlugin::named("hanging").at(POINT, Act::hang()).start().await;
    let observer = FakePlugin::named("observer").at(POINT, Act::hang()).start().await;
    let lost = [FakePlugin::named("lost-a").start().await, FakePlugin::named("lost-b").start().await];
    let networks = [Proxy::before(&lost[0].endpoint()).await, Proxy::before(&lost[1].endpoint()).await];
    let collector = Collector::start().await;
    let mut setup = setup
        .tenant("acme")
        .tenant("echo")
        .plugin(&hanging)
        .plugin(&observer)
        .binding_with("hanging", 10, &json!({ "tenant": "acme", "timeout": "60s" }))
        .binding_with("observer", 20, &json!({ "mode": "observe", "timeout": "60s" }))
        .set("/limits/budget", "60s")
        .set("/limits/request", "16MiB")
        .set("/observers/bytes", "64MiB")
        .set("/telemetry/otlp_endpoint", collector.endpoint());
    for (priority, (plugin, network)) in (1..).zip(lost.iter().zip(&networks)) {
        let endpoint = json!({ "endpoint": network.endpoint("http"), "limits": { "shutdown": "30s" } });
        setup = setup.plugin_with(plugin, &endpoint).binding_with(
            plugin.name(),
            priority,
            &json!({ "tenant": "acme" }),
        );
    }
    let gateway = setup.start().await;

    let agent = gateway.http(&token("acme"));
    let stuck = tokio::spawn(async move { agent.call(POINT, payload()).await });
    hanging.wait_until(|counts| counts.calls == 1).await;
    let reader = caller_that_never_reads(&gateway).await;
    observer.wait_until(|counts| counts.calls >= 1).await; // the caller that never reads
    collector.hang(true);
    networks.iter().for_each(Proxy::lose);

    let began = Instant::now();
    gateway.terminate();
    let exit = gateway.exited().await;
    let took = began.elapsed();
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    let answer = stuck.await.unwrap();
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("DRAINING")), "{answer:?}");
    let silent = |line: &Line| line.message() == Some("the plugin did not answer Shutdown");
    let silent: Vec<_> = exit.log.lines().into_iter().filter(silent).collect();
    let names = silent.iter().filter_map(|line| line.field("plugin").and_then(|name| name.as_str()));
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    assert_eq!(names, ["lost-a", "lost-b"], "{}", exit.log);
    let told = [hanging.counts().shutdowns, observer.counts().shutdowns];
    assert_eq!(told, [1, 1], "those that answer are not held up by those that don't");
    drop(reader);
    took
}

/// A caller whose answer has begun and is never read.
async fn caller_that_never_reads(gateway: &Gateway) -> TcpStream {
    let args = "a".repeat(LARGE - 64);
    let body = format!(r#"{{"payload":{{"tool_name":"t","args":"{args}"}}}}"#);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        path(POINT),
        token("echo"),
        body.len()
    );
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(gateway.data_addr()).await.unwrap();
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    stream.readable().await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_stuck_at_once_ends_within_the_drains_time() {
    let setup = Gateway::with().set("/drain/grace", "200ms").set("/drain/finish", "500ms");
    let took = end_of_everything_stuck(setup).await;
    let most = Duration::from_millis(700) + LAST + MARGIN;
    assert!(took <= most, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_stuck_at_once_ends_within_29_seconds_by_default() {
    let setup = Gateway::with().set("/drain", json!({}));
    let took = end_of_everything_stuck(setup).await;
    assert!(took <= Duration::from_secs(29) + MARGIN, "{took:?}");
    assert!(took >= Duration::from_secs(25), "the call had its time: {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_does_not_keep_the_process() {
    let setup = Gateway::with().tenant("acme");
    let setup = setup.set("/drain/grace", "100ms").set("/drain/finish", "100ms");
    let gateway = setup.start().await;
    let log = gateway.log().clone();
    log.pause();
    // Each is a line of about 350 bytes, and the pipe holds 64 KiB.
    let agent = gateway.http("nonsense");
    for _ in 0..300 {
        assert_eq!(agent.call(POINT, payload()).await.status, 401);
    }
    let began = Instant::now();
    gateway.terminate();
    let code = gateway.ended().await;
    let took = began.elapsed();
    assert_eq!(code, Some(0));
    assert!(took <= Duration::from_millis(200) + LAST + MARGIN, "{took:?}");
    log.resume();
}
