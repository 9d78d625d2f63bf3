//! Tests a silent network to a plugin (G11): calls end by their own timeout, and a dead connection is
//! detected and replaced.

use std::{net::SocketAddr, time::Duration};

use futures::future::join_all;
use hookgate_tests::{fake::FakePlugin, proxy::Flow};
use serde_json::json;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};

use crate::{
    failure_matrix::rig::Transport,
    proxy::support::{POINT, Rig, TRANSPORTS, assert_skipped, assert_stopped, body, call, executions},
};

/// What a call may take beyond its timeout while other tests run. It is less than any other limit, of which
/// Describe's 5 s is the shortest.
const SLACK: Duration = Duration::from_secs(3);
/// The timeout for a plugin to be back.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_half_open_connection_is_found_and_replaced_while_calls_end_by_their_own_time() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    join_all(TRANSPORTS.map(|transport| async move {
        let rig = Rig::start(transport, FakePlugin::named("shaky"), "2s", json!({})).await;
        assert_eq!(rig.strict.post_text(POINT, body("before")).await.status, 200);
        rig.proxy.lose();
        let lost = Instant::now();
        let mut failed = 0;
        loop {
            let began = Instant::now();
            let ids = [format!("s{failed}"), format!("l{failed}")];
            let answers = tokio::join!(call(&rig.strict, &ids[0]), call(&rig.lenient, &ids[1]));
            assert!(began.elapsed() < TIMEOUT + SLACK, "{:?} after {:?}", began.elapsed(), lost.elapsed());
            let (strict, lenient) = (answers.0.unwrap(), answers.1.unwrap());
            if (strict.status, &lenient.body["steps"][0]["outcome"]) == (200, &json!("continued")) {
                break;
            }
            failed += 1;
            // 504 while nobody answers; 503 for calls in flight when the connection is given up, and for
            // calls beside the one that tests whether the plugin is back
            assert!([200, 503, 504].contains(&strict.status), "{strict:?}");
            assert_eq!(lenient.status, 200, "{lenient:?}");
            assert!(lost.elapsed() < Duration::from_secs(40), "the dead connection is still in use");
        }
        assert!(failed > 0, "the connection was never lost");
        assert_eq!(rig.plugin.counts().connections, 2, "replaced once");
        for call in (0..=failed).flat_map(|round| [format!("s{round}"), format!("l{round}")]) {
            assert!(executions(&rig.plugin, &call) <= 1, "{call} was executed twice");
        }
        rig.wait_until_idle().await;
    }))
    .await;
}

#[tokio::test]
async fn calls_on_a_connection_without_a_reader_end_by_their_own_timeout() {
    join_all(TRANSPORTS.map(|transport| async move {
        let rig = Rig::start(transport, FakePlugin::named("shaky"), "400ms", json!({})).await;
        rig.proxy.both(Flow::Stop);
        rig.proxy.reset();
        rig.wait_until_logged("plugin.disconnected", 1).await;
        // accepted by the system but never read: neither connecting nor Describe completes
        for round in 0..3 {
            let began = Instant::now();
            let answers = tokio::join!(call(&rig.strict, "s"), call(&rig.lenient, "l"));
            assert_stopped(&answers.0.unwrap(), 503, "PLUGIN_UNAVAILABLE");
            assert_skipped(&answers.1.unwrap(), "PLUGIN_UNAVAILABLE", "l");
            assert!(began.elapsed() < Duration::from_millis(400) + SLACK, "{round}: {:?}", began.elapsed());
        }
        assert_eq!(rig.plugin.counts().connections, 1, "nothing reaches it");
        rig.wait_until_idle().await;

        rig.proxy.both(Flow::Pass);
        let back = async { while rig.strict.post_text(POINT, body("back")).await.status != 200 {} };
        timeout(PATIENCE, back).await.expect("Describe has 5 s, the next dial 5 s at most");
    }))
    .await;
}

/// Binds the address and connects to itself until the system no longer answers, so that connecting hangs.
async fn black_hole(address: SocketAddr) -> (tokio::net::TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut fill = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        fill.push(stream.unwrap());
    }
    (listener, fill)
}

#[tokio::test]
async fn a_dial_that_hangs_ends_with_the_limit_of_connecting() {
    let connect = Duration::from_millis(300);
    let limits = json!({ "limits": { "connect": "300ms" } });
    let mut rig = Rig::start(Transport::Tcp, FakePlugin::named("shaky"), "10s", limits).await;
    let address = rig.proxy.endpoint("http").trim_start_matches("http://").parse().unwrap();
    rig.proxy.refuse().await;
    let hole = black_hole(address).await;
    rig.proxy.reset();
    rig.wait_until_logged("plugin.disconnected", 1).await;
    let began = Instant::now();
    let answer = rig.strict.post_text(POINT, body("s")).await;
    assert_stopped(&answer, 503, "PLUGIN_UNAVAILABLE");
    let took = began.elapsed();
    assert!(took < 2 * connect + SLACK, "one try and one more, of a step of 10 s: {took:?}");
    let log = rig.gateway.log();
    let why = |line: &hookgate_tests::gateway::Line| line.field("reason") == Some(&json!("connect_timeout"));
    log.wait_for(why).await;

    drop(hole);
    rig.proxy.listen().await;
    let back = async { while rig.strict.post_text(POINT, body("back")).await.status != 200 {} };
    timeout(PATIENCE, back).await.expect("it is dialled again");
}
