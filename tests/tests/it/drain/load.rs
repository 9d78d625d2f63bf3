//! Tests SIGTERM under load (G26): readiness goes off first, service goes on, and no call that began before
//! GOAWAY fails.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hookgate_tests::{
    agent::{GrpcClient, HttpAgent, HttpAnswer, path},
    fake::{Act, FakePlugin},
    gateway::{Gateway, Line},
    token::token,
};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};

use crate::edge::support::{POINT, payload, request};

const WORKERS: usize = 12;

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// When a line was written.
fn written(line: &Line) -> f64 {
    let text = line.field("timestamp").and_then(|time| time.as_str()).expect("lines have a time");
    let time = OffsetDateTime::parse(text, &Rfc3339).expect("a date and a time");
    time.unix_timestamp_nanos() as f64 / 1e9
}

/// A worker's call: when its request was sent, or when sending failed, which may be some time after it
/// began on a busy machine; and the error, if any.
type Made = (f64, Result<(), String>);

/// A client with its own connection.
trait Caller: Send + 'static {
    fn call(&mut self) -> impl Future<Output = Made> + Send;
}

/// Over gRPC, on one connection.
struct OverGrpc(GrpcClient);

impl Caller for OverGrpc {
    async fn call(&mut self) -> Made {
        let began = now();
        match self.0.before_tool_call(request()).await {
            Ok(_) => (began, Ok(())),
            Err(status) if is_unsent(&status) => (now(), Err(format!("{status:?}"))),
            Err(status) => (began, Err(format!("{status:?}"))),
        }
    }
}

/// Whether the client never sent it, because the connection received GOAWAY meanwhile, or sent it after GOAWAY: a client
/// that has a call queued answers the ping that comes with GOAWAY first. The last GOAWAY then says that the call was not
/// taken (RFC 9113, section 6.8).
fn is_unsent(status: &tonic::Status) -> bool {
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(error) = source {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let not_taken = |error: &h2::Error| {
            error.is_remote() && error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)
        };
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
            || error.downcast_ref::<io::Error>().is_some_and(refused)
            || error.downcast_ref::<h2::Error>().is_some_and(not_taken)
        {
            return true;
        }
        source = error.source();
    }
    false
}

/// Over HTTP/1.1, on a connection that is kept until an answer says that it closes.
struct OverHttp {
    address: SocketAddr,
    request: String,
    kept: Option<TcpStream>,
}

impl OverHttp {
    fn new(address: SocketAddr, token: &str) -> Self {
        let body = json!({ "payload": payload() }).to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            path(POINT),
            body.len()
        );
        OverHttp { address, request, kept: None }
    }

    async fn send(&mut self) -> io::Result<TcpStream> {
        let mut stream = match self.kept.take() {
            Some(kept) => kept,
            None => TcpStream::connect(self.address).await?,
        };
        stream.write_all(self.request.as_bytes()).await?;
        Ok(stream)
    }
}

impl Caller for OverHttp {
    async fn call(&mut self) -> Made {
        let sent = self.send().await;
        let at = now();
        let answered = async {
            let mut stream = sent?;
            let answer = answer(&mut stream).await?;
            self.kept = answer.header("connection").is_none().then_some(stream);
            Ok::<_, io::Error>(answer)
        };
        match answered.await {
            Ok(answer) if answer.status == 200 => (at, Ok(())),
            Ok(answer) => (at, Err(format!("{answer:?}"))),
            Err(error) => (at, Err(format!("{error:?}"))),
        }
    }
}

/// Reads one answer with a content length.
async fn answer(stream: &mut TcpStream) -> io::Result<HttpAnswer> {
    let mut taken = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&taken);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_some_and(|length| length.parse() == Ok(body.len())) {
            return Ok(HttpAnswer::all(&text).remove(0));
        }
        if stream.read_buf(&mut taken).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Calls one after another until one fails or the gateway has exited.
async fn work(ended: watch::Receiver<bool>, mut caller: impl Caller) -> Vec<Made> {
    let mut made = Vec::new();
    while !*ended.borrow() && made.last().is_none_or(|(_, result): &Made| result.is_ok()) {
        made.push(caller.call().await);
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_begun_before_goaway_fails_and_service_goes_on_until_then() {
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().after(Duration::from_millis(3)));
    let plugin = plugin.start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("slow", 10);
    let gateway = gateway.set("/drain/grace", "2s").start().await;
    let ended = watch::Sender::new(false);
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (token, ended) = (token("acme"), ended.subscribe());
        workers.push(if worker % 3 == 0 {
            tokio::spawn(work(ended, OverGrpc(gateway.grpc(&token).await.client)))
        } else {
            tokio::spawn(work(ended, OverHttp::new(gateway.data_addr(), &token)))
        });
    }
    let ops = gateway.ops();
    plugin.wait_until(|counts| counts.calls > 200).await;
    gateway.terminate();
    let draining = gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_eq!(ops.get("/readyz").await.unwrap().status, 503);
    let goaway =
        gateway.log().wait_for(|line| line.message() == Some("draining: no new calls are accepted")).await;
    let exit = gateway.exited().await;
    ended.send_replace(true);
    let (draining, goaway) = (written(&draining), written(&goaway));
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    for worker in workers {
        let made = worker.await.unwrap();
        let (before, after): (Vec<_>, Vec<_>) = made.into_iter().partition(|(sent, _)| *sent < goaway);
        let lost = before.iter().filter_map(|(sent, made)| Some((goaway - sent, made.as_ref().err()?)));
        let lost: Vec<_> = lost.collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert!(before.iter().any(|(sent, _)| *sent > draining), "service went on");
        assert!(after.len() < before.len(), "and ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_plugin_is_blamed_for_the_end_by_those_who_connect_anew_for_each_call() {
    let plugin = FakePlugin::named("quick").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("quick", 10);
    let gateway = Arc::new(gateway.set("/drain/grace", "300ms").start().await);
    let (ended, address, token) = (watch::Sender::new(false), gateway.data_addr(), token("acme"));
    let mut workers = Vec::new();
    // Few, so that at times there is no connection.
    for _ in 0..2 {
        let (ended, token) = (ended.subscribe(), token.clone());
        workers.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            while !*ended.borrow() {
                // A new client makes a new connection.
                let agent = HttpAgent::new(address).with_token(&token);
                let request = agent.request(http::Method::POST, path(POINT));
                let request = request.header("content-type", "application/json");
                let answer = HttpAgent::send(request.body(json!({ "payload": payload() }).to_string())).await;
                answers.extend(answer);
            }
            answers
        }));
    }
    plugin.wait_until(|counts| counts.calls > 20).await;
    let exit = gateway.stop().await;
    ended.send_replace(true);
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    for worker in workers {
        for answer in worker.await.unwrap() {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
}
