//! The end of the process after SIGTERM (G26): whatever hangs, it comes within the drain's time.

use std::{
    io::{BufRead, BufReader, Write as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

use hookgate_tests::{
    agent::{HttpAgent, path},
    collector::Collector,
    fake::{Act, FakePlugin},
    gateway::{Gateway, Line, Setup, binary},
    proxy::Proxy,
    token::{AUDIENCE, ISSUER, SECRET, token},
};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};

use super::edge_support::{POINT, payload};

/// After the calls are given up: observers, Shutdown, telemetry.
const LAST: Duration = Duration::from_secs(4);
/// What the promise leaves open.
const MARGIN: Duration = Duration::from_millis(500);
/// More than sockets hold.
const LARGE: usize = 16 << 20;

/// Everything that can hang at once; the time from SIGTERM to the exit.
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
    observer.wait_until(|counts| counts.calls >= 1).await; // told of the caller that never reads
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

/// Its answer is begun and never taken.
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

/// A gateway whose log nobody reads after its start. Dropped, it is killed.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended, which is what is tested
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_does_not_keep_the_process() {
    let config = json!({
        "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" },
        "auth": { "issuers": [{
            "issuer": ISSUER, "audience": AUDIENCE, "keys": [{ "alg": "HS256", "secret": SECRET }], "tenants": "*",
        }] },
        "tenants": { "list": [{ "id": "acme" }] },
        "drain": { "grace": "100ms", "finish": "100ms" },
        "log": { "format": "json", "level": "info" },
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(config.to_string().as_bytes()).unwrap();
    let mut command = Command::new(tokio::task::spawn_blocking(binary).await.unwrap());
    command.args(["serve", "--config"]).arg(file.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut gateway = Unread(command.spawn().unwrap());
    let mut log = BufReader::with_capacity(1, gateway.0.stderr.take().unwrap());
    let mut address = None;
    while address.is_none() {
        let mut line = String::new();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended");
        let line = Line::parse(&line);
        address = line.field("data_addr").and_then(|address| address.as_str()?.parse().ok());
    }

    // Every refused token is a line; when no answer comes any more, the pipe is full and its writers wait.
    let agent = HttpAgent::new(address.unwrap()).with_token("nonsense");
    while timeout(Duration::from_secs(2), agent.call(POINT, payload())).await.is_ok() {}
    let began = Instant::now();
    let id = gateway.0.id();
    assert!(Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status().unwrap().success());
    let ended = tokio::task::spawn_blocking(move || gateway.0.wait());
    let most = Duration::from_millis(200) + LAST + MARGIN;
    let ended = timeout(most, ended).await;
    assert!(ended.is_ok(), "it still runs after {:?}", began.elapsed());
    drop(log);
}
