//! Tests unusual HTTP/1.1: pipelined, truncated, oversized and malformed requests. Nothing panics, nothing
//! hangs.

use std::time::Duration;

use hookgate_tests::{
    agent::{HttpAnswer, path},
    fake::FakePlugin,
    gateway::Gateway,
    openapi::{self, Asked, Port},
    token::token,
};
use http::{HeaderMap, Method};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::edge::support::{POINT, assert_no_panic, payload};

/// Longer than the gateway waits for headers.
const PATIENCE: Duration = Duration::from_secs(20);

struct Edge {
    plugin: FakePlugin,
    gateway: Gateway,
    token: String,
}

async fn edge() -> Edge {
    let plugin = FakePlugin::named("witness").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("witness", 10).start().await;
    Edge { plugin, gateway, token: token("acme") }
}

impl Edge {
    /// A complete good request with these further header lines.
    fn request(&self, session: &str, headers: &str) -> String {
        let body = json!({ "payload": payload(), "context": { "session_id": session } }).to_string();
        format!(
            "POST /v1/before-tool-call HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            self.token,
            body.len()
        )
    }

    /// Sends these bytes and reads until the gateway closes, as it does after `connection: close`.
    async fn say(&self, bytes: &[u8]) -> String {
        self.say_and(bytes, false).await
    }

    /// The same, but closes the sending side. For the gateway, the caller then went away.
    async fn say_and_end(&self, bytes: &[u8]) -> String {
        self.say_and(bytes, true).await
    }

    async fn say_and(&self, bytes: &[u8], end: bool) -> String {
        let mut stream = TcpStream::connect(self.gateway.data_addr()).await.expect("the gateway listens");
        // the gateway may close before it has read everything
        let _ = stream.write_all(bytes).await;
        if end {
            let _ = stream.shutdown().await;
        }
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the gateway hangs up in time");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Checks that it still serves and nothing panicked.
    async fn assert_well(&self) {
        let answer = self.gateway.http(&self.token).call(POINT, payload()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_no_panic(&self.gateway);
    }
}

fn statuses(answer: &str) -> Vec<&str> {
    answer.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect()
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let edge = edge().await;
    let bad = "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let all = [&edge.request("one", ""), bad, &edge.request("two", "connection: close\r\n")].concat();
    let answer = edge.say(all.as_bytes()).await;
    assert_eq!(statuses(&answer), ["200", "404", "200"], "{answer}");
    for (path, answer) in [path(POINT), "/nowhere", path(POINT)].into_iter().zip(HttpAnswer::all(&answer)) {
        let (method, headers) = (Method::POST, HeaderMap::new());
        openapi::check(&Asked { port: Port::Data, method, path: path.into(), headers, body: None }, &answer);
    }
    let sessions: Vec<_> =
        edge.plugin.seen().into_iter().filter_map(|seen| seen.call.context?.session_id).collect();
    assert_eq!(sessions, ["one", "two"]);
    edge.assert_well().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let edge = edge().await;
    let long = format!("x-long: {}\r\n", "a".repeat(64 << 10));
    let many: String = (0..200).map(|n| format!("x-{n}: {n}\r\n")).collect();
    for headers in [&long, &many] {
        let answer = edge.say(edge.request("large", headers).as_bytes()).await;
        assert_eq!(statuses(&answer), ["431"], "{answer}");
        assert!(!answer.to_lowercase().contains("hookgate-decision"), "{answer}");
    }
    let path = format!("POST /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(70_000));
    let answer = edge.say(path.as_bytes()).await;
    assert!(matches!(statuses(&answer)[..], ["414" | "431"]), "{answer}");
    assert_eq!(edge.plugin.counts().calls, 0);
    edge.assert_well().await;
}

#[tokio::test]
async fn a_head_as_large_as_a_token_may_be_is_taken() {
    let edge = edge().await;
    let long = format!("x-long: {}\r\nconnection: close\r\n", "a".repeat(20 << 10));
    let answer = edge.say(edge.request("fits", &long).as_bytes()).await;
    assert_eq!(statuses(&answer), ["200"], "{answer}");
}

#[tokio::test]
async fn garbage_is_refused_or_hung_up_on() {
    let edge = edge().await;
    let tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let noise: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let broken_frames = [&preface[..], &noise].concat();
    for bytes in [
        &b"\0\0\0\0"[..],
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/before-tool-call HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /v1/before-tool-call HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/before-tool-call HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/before-tool-call HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        tls_hello,
        &noise,
        &broken_frames,
    ] {
        let answer = edge.say_and_end(bytes).await;
        let refused = statuses(&answer).iter().all(|status| status.starts_with('4'));
        assert!(refused && !answer.to_lowercase().contains("hookgate-decision"), "{bytes:?}: {answer}");
    }
    assert_eq!(edge.plugin.counts().calls, 0);
    edge.assert_well().await;
}

#[tokio::test]
async fn half_a_request_reaches_no_plugin() {
    let edge = edge().await;
    let whole = edge.request("half", "");
    let head = whole.find("\r\n\r\n").expect("a head ends") + 4;
    for end in [1, 5, 30, head - 2, head, head + 1, whole.len() - 1] {
        let answer = edge.say_and_end(&whole.as_bytes()[..end]).await;
        assert!(statuses(&answer).iter().all(|status| status.starts_with('4')), "{end}: {answer}");
    }
    assert_eq!(edge.plugin.counts().calls, 0);
    edge.assert_well().await;
}

#[tokio::test]
async fn a_request_with_two_lengths_is_not_read_as_two() {
    let edge = edge().await;
    let hidden = edge.request("hidden", "");
    let outer = format!(
        "POST /v1/before-tool-call HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        edge.token,
        hidden.len() + 5,
    );
    let answer = edge.say_and_end(outer.as_bytes()).await;
    assert_eq!(statuses(&answer).first(), Some(&"400"), "{answer}");
    assert_eq!(edge.plugin.counts().calls, 0, "the hidden request isn't a request");
    edge.assert_well().await;
}
