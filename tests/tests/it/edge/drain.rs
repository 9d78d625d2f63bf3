//! Tests the drain from SIGTERM to the exit: calls in flight finish, idle connections are closed, and stuck
//! calls are given up.

use std::{net::SocketAddr, time::Duration};

use hookgate_tests::{
    fake::{Act, FakePlugin, Gate},
    gateway::Gateway,
    token::token,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::edge::support::{POINT, assert_no_panic, payload, request};

const PATIENCE: Duration = Duration::from_secs(20);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("the gateway listens")
}

/// The next HTTP/2 frame: its type and content (RFC 9113, section 4.1).
async fn next_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    timeout(PATIENCE, stream.read_exact(&mut head)).await.expect("in time").ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut content = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut content)).await.expect("in time").ok()?;
    Some((head[3], content))
}

#[tokio::test]
async fn calls_in_flight_at_sigterm_end_with_their_decision() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("slow", 10).start().await;
    let token = token("acme");
    let http = gateway.http(&token);
    let http = tokio::spawn(async move { http.call(POINT, payload()).await });
    let mut grpc = gateway.grpc(&token).await.client;
    let grpc = tokio::spawn(async move { grpc.before_tool_call(request()).await });
    plugin.wait_until(|counts| counts.calls == 2).await;

    gateway.terminate();
    gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    gate.open();
    let http = http.await.unwrap();
    assert_eq!((http.status, http.header("hookgate-decision")), (200, Some("continue")), "{http:?}");
    grpc.await.unwrap().expect("the call was taken, so it is decided");
    let exit = gateway.exited().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert_eq!(plugin.counts().shutdowns, 1);
    assert!(!exit.log.to_string().contains("given up"), "{}", exit.log);
}

#[tokio::test]
async fn idle_connections_are_told_to_go() {
    let gateway = Gateway::with().tenant("acme").set("/drain/finish", "60s").start().await;
    let mut http2 = connect(gateway.data_addr()).await;
    http2.write_all(&[PREFACE, &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]].concat()).await.unwrap();
    assert_eq!(next_frame(&mut http2).await.map(|(kind, _)| kind), Some(SETTINGS));

    let mut kept_alive = connect(gateway.data_addr()).await;
    kept_alive.write_all(b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    kept_alive.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 404");
    let mut silent = connect(gateway.data_addr()).await;

    gateway.terminate();
    let goaway = loop {
        let (kind, content) = next_frame(&mut http2).await.expect("GOAWAY comes before the end");
        if kind == GOAWAY {
            break content;
        }
    };
    assert_eq!(&goaway[4..8], &[0; 4], "NO_ERROR");
    let mut rest = Vec::new();
    for connection in [&mut kept_alive, &mut silent] {
        timeout(PATIENCE, connection.read_to_end(&mut rest)).await.expect("it is closed").unwrap();
    }
    drop(http2);
    let exit = gateway.exited().await; // far sooner than drain.finish
    assert_eq!(exit.code, Some(0), "{}", exit.log);
}

#[tokio::test]
async fn no_connection_is_taken_once_the_grace_period_is_over() {
    let plugin = FakePlugin::named("stuck").at(POINT, Act::hang()).start().await;
    let observer = FakePlugin::named("observer").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&plugin)
        .plugin(&observer)
        .binding_with("stuck", 10, &json!({ "timeout": "60s" }))
        .binding_with("observer", 20, &json!({ "mode": "observe" }))
        .set("/limits/budget", "60s")
        .set("/drain/finish", "1s")
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    let stuck = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == 1).await;
    gateway.terminate();
    let refused = async {
        while TcpStream::connect(gateway.data_addr()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await; // only connecting shows it
        }
    };
    timeout(PATIENCE, refused).await.expect("the port is closed");
    // the call that never ends is given up and answered
    let answer = stuck.await.unwrap();
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("DRAINING")), "{answer:?}");
    assert_eq!(gateway.exited().await.code, Some(0));
    let told = observer.seen().into_iter().filter_map(|seen| seen.call.chain_result?.code);
    assert_eq!(Vec::from_iter(told), ["DRAINING"], "only the gateway ended it");
}

#[tokio::test]
async fn half_a_request_does_not_hold_the_exit_up_beyond_the_drain() {
    let gateway = Gateway::with().tenant("acme").set("/drain/finish", "500ms").start().await;
    let mut half = connect(gateway.data_addr()).await;
    half.write_all(b"POST /v1/before-tool-call HTTP/1.1\r\nhost: x\r\ncontent-").await.unwrap();
    let mut preface = connect(gateway.data_addr()).await;
    preface.write_all(&PREFACE[..5]).await.unwrap();
    // an answer on a later connection shows that the two earlier ones were accepted
    assert_eq!(gateway.http(&token("acme")).call(POINT, payload()).await.status, 200);
    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert!(!exit.log.to_string().contains("panicked"), "{}", exit.log);
}

#[tokio::test]
async fn a_second_signal_ends_a_drain_at_once() {
    let gateway = Gateway::with().tenant("acme").set("/drain/grace", "1h").start().await;
    gateway.terminate();
    gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_no_panic(&gateway);
    assert_eq!(gateway.stop().await.code, Some(0));
}
