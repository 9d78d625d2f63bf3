//! Tests callers over TLS: both protocols, client certificates, and starts with an invalid pair.

use std::{fs, net::SocketAddr, sync::Arc};

use hookgate_tests::{
    agent::{GrpcAgent, HttpAgent},
    ca::{Ca, Pair},
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    metrics::Scrape,
    token::token,
};
use rustls::{ClientConfig, HandshakeKind, pki_types::ServerName};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::edge::support::{payload, request};

fn setup(plugin: &FakePlugin) -> Setup {
    Gateway::with().tenant("acme").plugin(plugin).binding(plugin.name(), 1)
}

/// The status of a call over HTTP; `None` if TLS failed.
async fn http(address: SocketAddr, tls: &ClientConfig) -> Option<u16> {
    let agent = HttpAgent::over_tls(address, tls.clone()).with_token(&token("acme"));
    let request = agent.request(http::Method::POST, "/v1/before-tool-call");
    let request = request.header("content-type", "application/json");
    let answer = HttpAgent::send(request.body(json!({ "payload": payload() }).to_string())).await;
    answer.ok().map(|answer| answer.status)
}

/// The same over gRPC: whether it was answered.
async fn grpc(address: SocketAddr, tls: &ClientConfig) -> bool {
    match GrpcAgent::dial_tls(address, tls.clone(), Some(&token("acme"))).await {
        Ok(mut agent) => agent.client.before_tool_call(request()).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn calls_over_tls_are_answered_over_both_protocols() {
    let (ca, guard) = (Ca::new(), FakePlugin::named("guard").start().await);
    let files = ca.pair(&["127.0.0.1"]).files();
    let gateway = setup(&guard).set("/server/tls", files.members(&json!({}))).start().await;
    let address = gateway.data_addr();

    let mut tls = ca.client(None);
    assert_eq!(http(address, &tls).await, Some(200), "HTTP/1.1");
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    assert_eq!(http(address, &tls).await, Some(200), "HTTP/2");
    assert!(grpc(address, &tls).await);
    assert_eq!(guard.counts().calls, 3);
    assert_eq!(http(address, &Ca::new().client(None)).await, None, "the agent knows another CA alone");
    assert!(gateway.http(&token("acme")).get("/").await.is_err(), "the port speaks TLS alone");
    assert_eq!(guard.counts().calls, 3);

    let scrape = Scrape::of(&gateway).await;
    let left = scrape.sum("hookgate_certificate_expiry_seconds", &[("hookgate_certificate", "server")]);
    assert!(left > 1e9, "{left}");
    let labels = [("url_scheme", "https"), ("http_response_status_code", "200")];
    assert!(scrape.sum("http_server_request_duration_seconds_count", &labels) >= 2.0, "{}", scrape.text);
    assert_eq!(gateway.stop().await.code, Some(0));
}

#[tokio::test]
async fn callers_show_a_certificate_of_the_ca_or_are_turned_away() {
    let (ca, callers, guard) = (Ca::new(), Ca::new(), FakePlugin::named("guard").start().await);
    let files = ca.pair(&["127.0.0.1"]).files();
    let tls = files.members(&json!({ "client_ca_file": callers.file() }));
    let gateway = setup(&guard).set("/server/tls", tls).start().await;
    let address = gateway.data_addr();

    let refused: [(&str, Option<Pair>); 3] = [
        ("none", None),
        ("another CA's", Some(Ca::new().pair(&["agent"]))),
        ("one that has ended", Some(callers.ended_pair(&["agent"]))),
    ];
    for (certificate, pair) in refused {
        let tls = ca.client(pair.as_ref());
        assert_eq!(http(address, &tls).await, None, "{certificate}");
        assert!(!grpc(address, &tls).await, "{certificate}");
    }
    assert_eq!(guard.counts().calls, 0);
    let tls = ca.client(Some(&callers.pair(&["agent"])));
    assert_eq!(http(address, &tls).await, Some(200));
    assert!(grpc(address, &tls).await);
}

/// Connects, sends a request and reads the beginning of the answer. Returns the kind of handshake.
async fn handshake(address: SocketAddr, tls: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    let mut stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    stream.get_ref().1.handshake_kind()
}

#[tokio::test]
async fn a_connection_is_not_resumed_where_callers_show_who_they_are() {
    let (ca, guard) = (Ca::new(), FakePlugin::named("guard").start().await);
    let files = ca.pair(&["127.0.0.1"]).files();
    let tls = Arc::new(ca.client(Some(&ca.pair(&["agent"]))));
    for (members, second) in
        [(json!({}), HandshakeKind::Resumed), (json!({ "client_ca_file": ca.file() }), HandshakeKind::Full)]
    {
        let gateway = setup(&guard).set("/server/tls", files.members(&members)).start().await;
        let address = gateway.data_addr();
        let kinds = [handshake(address, &tls).await, handshake(address, &tls).await];
        assert_eq!(kinds, [Some(HandshakeKind::Full), Some(second)], "{members}");
    }
}

#[tokio::test]
async fn handshakes_that_never_end_delay_no_other_connection() {
    let (ca, guard) = (Ca::new(), FakePlugin::named("guard").start().await);
    let files = ca.pair(&["127.0.0.1"]).files();
    let gateway = setup(&guard).set("/server/tls", files.members(&json!({}))).start().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(gateway.data_addr()).await.unwrap());
    }
    assert_eq!(http(gateway.data_addr(), &ca.client(None)).await, Some(200));
    // All of them are closed in the end, without an answer.
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
}

#[tokio::test]
async fn a_pair_that_is_none_refuses_the_start_with_the_line_the_key_and_the_file() {
    let (ca, guard) = (Ca::new(), FakePlugin::named("guard").start().await);
    let (one, other) = (ca.pair(&["127.0.0.1"]), ca.pair(&["127.0.0.1"]));
    let files = one.files();
    files.write(&files.key(), &other.key);
    let exit = setup(&guard).set("/server/tls", files.members(&json!({}))).run_to_the_end().await;
    let log = exit.log.to_string();
    assert_eq!(exit.code, Some(2), "{log}");
    let key = files.key().display().to_string();
    for words in ["/server/tls", "`key_file`", &*key, "is not the key of the certificate", ":"] {
        assert!(log.contains(words), "no {words} in:\n{log}");
    }

    let half = &one.key[..one.key.len() / 2];
    files.write(&files.key(), half);
    let members =
        json!({ "endpoint": "https://127.0.0.1:1", "tls": files.members(&json!({ "ca_file": ca.file() })) });
    let exit = Gateway::with().tenant("acme").plugin_with(&guard, &members).run_to_the_end().await;
    let log = exit.log.to_string();
    assert_eq!(exit.code, Some(2), "{log}");
    for words in ["/plugins/0", "plugin `guard`", "`tls.key_file`", &*key, "incomplete PEM file"] {
        assert!(log.contains(words), "no {words} in:\n{log}");
    }
    assert!(!log.contains(half.lines().nth(1).unwrap_or("-")), "what a key file holds is not shown:\n{log}");

    fs::remove_file(ca.file()).unwrap();
    let members = json!({ "endpoint": "https://127.0.0.1:1", "tls": { "ca_file": ca.file() } });
    let exit = Gateway::with().tenant("acme").plugin_with(&guard, &members).run_to_the_end().await;
    assert_eq!(exit.code, Some(2));
    assert!(exit.log.to_string().contains("`tls.ca_file`"), "{}", exit.log);
}
