//! Tests `hookgate probe` with a gateway that starts, serves, drains and exits, and with other servers.

use std::time::{Duration, Instant};

use hookgate_tests::{fake::FakePlugin, gateway::Gateway};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::cli::support::{CommandOutput, Folder};

async fn probe(address: impl ToString, live: bool) -> CommandOutput {
    let address = address.to_string();
    let mut args = vec!["probe", "--addr", &address];
    args.extend(live.then_some("--live"));
    Folder::new().run(&args).await
}

#[tokio::test]
async fn the_exit_code_follows_readiness_and_liveness() {
    let mut plugin = FakePlugin::named("needed").start().await;
    plugin.stop().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin).binding("needed", 10);
    let gateway = setup.set("/drain/grace", "60s").start_unready().await;
    let ops = gateway.ops_addr();
    let not_ready =
        |reason: &str| format!("hookgate: http://{ops}/readyz answers 503: not ready: {reason}\n");

    let starting = probe(ops, false).await;
    let reason = "the start is not finished";
    assert_eq!((starting.code, starting.stderr), (Some(1), not_ready(reason)));
    assert_eq!(probe(ops, true).await.code, Some(0));

    plugin.start().await;
    gateway.wait_until_ready().await;
    for live in [false, true] {
        let ready = probe(ops, live).await;
        assert_eq!((ready.code, ready.stdout + &ready.stderr), (Some(0), String::new()));
    }

    gateway.terminate();
    let unready = async {
        // Polling is the only way to learn of readiness.
        while gateway.ops().get("/readyz").await.unwrap().status == 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), unready).await.expect("it drains");
    let draining = probe(ops, false).await;
    assert_eq!((draining.code, draining.stderr), (Some(1), not_ready("draining")));
    assert_eq!(probe(ops, true).await.code, Some(0));

    gateway.kill().await;
    let gone = probe(ops, true).await;
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.starts_with(&format!("hookgate: no answer from http://{ops}: ")), "{gone:?}");
}

#[tokio::test]
async fn who_takes_the_connection_and_says_nothing_is_given_up_after_3_seconds() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let holding = tokio::spawn(async move {
        let connection = silent.accept().await;
        std::future::pending::<()>().await;
        drop(connection);
    });
    let started = Instant::now();
    let ran = probe(address, false).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("within 3s"), "{ran:?}");
    assert!(started.elapsed() >= Duration::from_secs(3));
    holding.abort();
}

#[tokio::test]
async fn an_answer_of_something_else_is_shown_short_and_plain() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = other.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).await.unwrap();
        let body = format!("\u{1b}[31m{}\nsecond", "x".repeat(1_000));
        let answer = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let _ = stream.read(&mut request).await;
    });
    let ran = probe(address, false).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("answers 404:  [31mxxx"), "{ran:?}");
    assert!(ran.stderr.len() < 320 && ran.stderr.lines().count() == 1, "{ran:?}");
}
