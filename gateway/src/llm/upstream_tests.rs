//! Tests of the client over real sockets. The provider is written by hand, to close connections at chosen moments.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::*;
use crate::{config::LlmProxy, llm::routes::ModelRoutes};

const KEY: &str = "sk-of-the-provider";
const TIMEOUTS: UpstreamTimeouts = UpstreamTimeouts {
    first_byte: Duration::from_secs(20),
    idle: Duration::from_secs(20),
    total: Duration::from_secs(30),
};

/// Before each piece of an answer that comes bit by bit.
const PAUSE: Duration = Duration::from_millis(100);

/// What the provider does with a request.
enum Reaction {
    /// Writes these bytes and waits for the next request.
    Write(String),
    /// Writes these bytes and closes the connection.
    WriteAndClose(String),
    /// Writes these bytes and nothing more.
    WriteAndWait(String),
    /// Answers with these pieces, with a pause before each.
    Drip(Vec<&'static str>),
}

use Reaction::{Drip, Write, WriteAndClose, WriteAndWait};

/// A provider, which reacts to the request with this number, from 0.
struct Provider {
    address: SocketAddr,
    /// The requests as they came.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn start(react: impl Fn(usize) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Provider { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let (requests, react) = (Arc::clone(&provider.requests), Arc::new(react));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&requests), Arc::clone(&react)));
            }
        });
        provider
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn client(&self) -> LlmUpstream {
        client(json!({ "base_url": format!("http://{}/v1/", self.address), "credential": KEY }))
    }
}

async fn converse(
    mut stream: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
    react: Arc<impl Fn(usize) -> Reaction>,
) {
    while let Some(request) = read(&mut stream).await {
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        let reaction = react(number);
        let text = match &reaction {
            Write(text) | WriteAndClose(text) | WriteAndWait(text) => text.clone(),
            Drip(_) => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
        };
        stream.write_all(text.as_bytes()).await.unwrap();
        match reaction {
            Write(_) => {}
            WriteAndClose(_) => return,
            WriteAndWait(_) => std::future::pending().await,
            Drip(pieces) => {
                for piece in pieces {
                    sleep(PAUSE).await;
                    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
                    stream.write_all(chunk.as_bytes()).await.unwrap();
                }
                stream.write_all(b"0\r\n\r\n").await.unwrap();
            }
        }
    }
}

/// The next request; `None` at the end.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).await.ok()? {
            0 => return None,
            read => text += std::str::from_utf8(&buffer[..read]).unwrap(),
        }
    }
}

fn client(members: Value) -> LlmUpstream {
    LlmUpstream::new(Arc::new(entry(members))).unwrap()
}

fn entry(members: Value) -> ModelUpstream {
    let mut entry = json!({ "name": "openai" });
    entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(entry).unwrap()
}

fn answer(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

async fn send(client: &LlmUpstream, timeouts: UpstreamTimeouts) -> Result<UpstreamAnswer, UpstreamError> {
    let body = Bytes::from_static(b"{\"model\":\"gpt-5\"}");
    client.send("chat/completions", &HeaderMap::new(), body, None, timeouts).await
}

async fn collect(mut answer: UpstreamAnswer, limit: usize) -> Result<Bytes, UpstreamError> {
    let mut body = Vec::new();
    while let Some(piece) = answer.piece(body.len(), limit).await? {
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

async fn body(client: &LlmUpstream) -> Result<Bytes, UpstreamError> {
    collect(send(client, TIMEOUTS).await?, 1024).await
}

#[tokio::test]
async fn a_request_has_the_listed_headers_and_the_credential() {
    let provider = Provider::start(|_| Write(answer("", "{}"))).await;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-type", "application/json"),
        ("openai-beta", "a"),
        ("openai-beta", "b"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "a,b"),
        ("user-agent", "OpenAI/Python 3"),
        ("traceparent", "00-1-1-00"),
        ("authorization", "Bearer the-agents-token"),
        ("x-api-key", "the-agents-token"),
        ("cookie", "a=b"),
        ("openai-organization", "org"),
        ("x-stainless-lang", "python"),
        ("x-forwarded-for", "10.0.0.1"),
        ("accept-encoding", "gzip"),
        ("host", "hookgate"),
        ("connection", "upgrade"),
    ] {
        headers.append(name, value.parse().unwrap());
    }
    let client = provider.client();
    let sent = client.send("chat/completions", &headers, Bytes::from_static(b"{ }"), None, TIMEOUTS);
    assert_eq!(collect(sent.await.unwrap(), 1024).await.unwrap(), "{}");
    let request = provider.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().skip(1).collect();
    lines.sort_unstable();
    let host = format!("host: {}", provider.address);
    assert_eq!(
        lines,
        [
            "accept-encoding: identity",
            "accept: */*",
            "anthropic-beta: a,b",
            "anthropic-version: 2023-06-01",
            &format!("authorization: Bearer {KEY}"),
            "content-length: 3",
            "content-type: application/json",
            &host,
            "openai-beta: a",
            "openai-beta: b",
            "traceparent: 00-1-1-00",
            "user-agent: OpenAI/Python 3",
        ]
    );
    assert_eq!((head.lines().next().unwrap(), body), ("POST /v1/chat/completions HTTP/1.1", "{ }"));
}

#[tokio::test]
async fn a_credential_for_anthropic_s_api_is_its_key() {
    let provider = Provider::start(|_| {
        Write(answer("request-id: req_2\r\nanthropic-ratelimit-tokens-limit: 9\r\n", "{}"))
    })
    .await;
    let url = format!("http://{}", provider.address);
    let client = client(json!({ "base_url": url, "format": "anthropic", "credential": KEY }));
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "Bearer the-agents-token".parse().unwrap());
    headers.insert("x-api-key", "the-agents-token".parse().unwrap());
    let answer = client.send("v1/messages", &headers, Bytes::new(), None, TIMEOUTS).await.unwrap();
    let request = provider.requests().remove(0);
    assert!(
        request.starts_with("POST /v1/messages ") && request.contains(&format!("x-api-key: {KEY}\r\n")),
        "{request}"
    );
    assert!(!request.contains("authorization") && !request.contains("the-agents-token"), "{request}");
    assert_eq!(answer.request_id().unwrap(), "req_2");
    assert_eq!(answer.passed_headers()["anthropic-ratelimit-tokens-limit"], "9");
}

#[tokio::test]
async fn an_upstream_without_a_credential_gets_none() {
    let provider = Provider::start(|_| Write(answer("", "{}"))).await;
    let client = client(json!({ "base_url": format!("http://{}", provider.address) }));
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "Bearer the-agents-token".parse().unwrap());
    client.send("chat/completions", &headers, Bytes::new(), None, TIMEOUTS).await.unwrap();
    assert!(!provider.requests()[0].contains("authorization"), "{}", provider.requests()[0]);
    assert!(provider.requests()[0].starts_with("POST /chat/completions "));
}

#[tokio::test]
async fn an_answer_has_the_listed_headers_and_its_status() {
    let headers = "content-type: application/json\r\nretry-after: 3\r\nretry-after-ms: 3000\r\nx-should-retry: false\r\n\
        x-ratelimit-remaining-tokens: 5\r\nopenai-processing-ms: 7\r\nx-request-id: req_1\r\nset-cookie: a=b\r\n\
        openai-organization: org\r\ncf-ray: 1\r\nserver: x\r\n";
    let text = answer(headers, "{\"error\":{}}").replace("200 OK", "429 Too Many Requests");
    let provider = Provider::start(move |_| Write(text.clone())).await;
    let answer = send(&provider.client(), TIMEOUTS).await.unwrap();
    assert_eq!(answer.status, 429);
    assert_eq!(answer.request_id().unwrap(), "req_1");
    let passed = answer.passed_headers();
    let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "content-type",
            "openai-processing-ms",
            "retry-after",
            "retry-after-ms",
            "x-ratelimit-remaining-tokens",
            "x-should-retry",
        ]
    );
    assert_eq!(collect(answer, 1024).await.unwrap(), "{\"error\":{}}");
}

#[tokio::test]
async fn an_answer_over_the_limit_is_too_large() {
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n6\r\n123456\r\n0\r\n\r\n";
    for text in [answer("", "12345678901"), chunked.to_owned()] {
        let provider = Provider::start(move |_| Write(text.clone())).await;
        let client = provider.client();
        let collected = collect(send(&client, TIMEOUTS).await.unwrap(), 10).await;
        assert_eq!(collected, Err(UpstreamError::TooLarge));
        assert_eq!(collect(send(&client, TIMEOUTS).await.unwrap(), 11).await.unwrap().len(), 11);
    }
}

#[tokio::test]
async fn a_silent_provider_is_given_up() {
    let silent = Provider::start(|_| WriteAndWait(String::new())).await;
    let short = Duration::from_millis(50);
    let late = |late| Some(UpstreamError::Timeout(late));
    let sent = send(&silent.client(), UpstreamTimeouts { first_byte: short, ..TIMEOUTS }).await;
    assert_eq!(sent.err(), late(UpstreamTimeout::FirstByte));
    let sent = send(&silent.client(), UpstreamTimeouts { total: short, ..TIMEOUTS }).await;
    assert_eq!(sent.err(), late(UpstreamTimeout::Total));
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123";
    let slow = Provider::start(|_| WriteAndWait(begun.to_owned())).await;
    let timeouts = UpstreamTimeouts { total: Duration::from_millis(500), ..TIMEOUTS };
    let collected = collect(send(&slow.client(), timeouts).await.unwrap(), 1024).await;
    assert_eq!(collected.err(), late(UpstreamTimeout::Total));
    let timeouts = UpstreamTimeouts { idle: short, ..TIMEOUTS };
    let mut answer = send(&slow.client(), timeouts).await.unwrap();
    assert_eq!(answer.piece(0, 1024).await.unwrap().unwrap(), "123");
    assert_eq!(answer.piece(3, 1024).await.err(), late(UpstreamTimeout::Idle));
}

#[tokio::test]
async fn a_provider_that_goes_on_may_take_longer_than_it_may_be_silent() {
    let provider = Provider::start(|_| Drip(vec!["ab"; 8])).await;
    let timeouts = UpstreamTimeouts { idle: 4 * PAUSE, ..TIMEOUTS };
    let began = Instant::now();
    let collected = collect(send(&provider.client(), timeouts).await.unwrap(), 1024).await.unwrap();
    assert_eq!(collected, "abababababababab");
    assert!(began.elapsed() > timeouts.idle);
}

#[tokio::test]
async fn an_upstream_that_can_t_be_reached_is_unavailable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client(json!({ "base_url": format!("http://{free}"), "credential": KEY }));
    match send(&client, TIMEOUTS).await.err() {
        Some(UpstreamError::Unavailable(text)) => {
            assert!(text.contains("refused") && !text.contains(KEY) && !text.contains("http://"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_denied_address_is_refused_before_any_call() {
    for url in ["http://169.254.169.254", "http://2852039166/v1", "http://[fe80::1]"] {
        let refused = LlmUpstream::new(Arc::new(entry(json!({ "base_url": url })))).unwrap_err();
        assert!(refused.contains("never connects"), "{refused}");
    }
}

#[test]
fn the_credential_is_in_no_text() {
    let client = client(json!({ "base_url": "http://127.0.0.1:1", "credential": KEY }));
    assert_eq!(format!("{client:?}"), "LlmUpstream { name: \"openai\", .. }");
    let broken = entry(json!({ "base_url": "http://127.0.0.1:1", "credential": format!("{KEY}\n") }));
    assert!(!LlmUpstream::new(Arc::new(broken)).unwrap_err().contains(KEY));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let provider = Provider::start(|_| Write(answer("", "{}"))).await;
    let client = provider.client();
    for _ in 0..3 {
        body(&client).await.unwrap();
    }
    assert_eq!(provider.requests().len(), 3);
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_no_request() {
    let provider = Provider::start(|_| WriteAndClose(answer("", "{}"))).await;
    let client = provider.client();
    for _ in 0..50 {
        body(&client).await.unwrap();
    }
    assert_eq!(provider.requests().len(), 50);
}

#[tokio::test]
async fn a_request_that_the_provider_has_read_is_not_sent_again() {
    let provider = Provider::start(|number| match number {
        0 => Write(answer("", "{}")),
        _ => WriteAndClose(String::new()),
    })
    .await;
    let client = provider.client();
    body(&client).await.unwrap();
    for number in 2..4 {
        assert!(matches!(body(&client).await, Err(UpstreamError::Unavailable(_))));
        assert_eq!(provider.requests().len(), number);
    }
}

#[tokio::test]
async fn an_answer_that_ends_early_is_no_answer() {
    let provider =
        Provider::start(|_| WriteAndClose("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123".into())).await;
    assert!(matches!(body(&provider.client()).await, Err(UpstreamError::Unavailable(_))));
}

#[tokio::test]
async fn what_is_no_answer_of_an_api_is_refused() {
    for (text, why) in [
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "status 302",
        ),
        (answer("content-encoding: gzip\r\n", "{}"), "compressed"),
        ("SSH-2.0-OpenSSH_9\r\n\r\n".to_owned(), ""),
    ] {
        let provider = Provider::start(move |_| WriteAndClose(text.clone())).await;
        match body(&provider.client()).await {
            Err(UpstreamError::BadAnswer(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_the_request() {
    let provider = Provider::start(|_| WriteAndWait(String::new())).await;
    let client = provider.client();
    tokio::select! {
        _ = send(&client, TIMEOUTS) => panic!("there is no answer"),
        () = async { while provider.requests().is_empty() { sleep(Duration::from_millis(5)).await } } => {}
    }
}

/// The `authorization` headers of the provider's requests.
fn authorizations(provider: &Provider) -> Vec<String> {
    let lines = |request: String| {
        let own = request.lines().filter(|line| line.to_ascii_lowercase().starts_with("authorization:"));
        own.map(str::to_owned).collect::<Vec<_>>().join(" and ")
    };
    provider.requests().into_iter().map(lines).collect()
}

#[tokio::test]
async fn a_tenant_s_own_credential_is_sent_instead_of_the_upstream_s() {
    let provider = Provider::start(|_| Write(answer("", "{}"))).await;
    let mut config: LlmProxy = serde_json::from_value(json!({
        "upstreams": [
            { "name": "openai", "base_url": format!("http://{}", provider.address), "credential": KEY },
            { "name": "open", "base_url": format!("http://{}", provider.address) },
        ],
        "models": [{ "match": "gpt-*", "upstream": "openai" }, { "match": "*", "upstream": "open" }],
    }))
    .unwrap();
    let own = |upstream: &str, key: &str| BTreeMap::from([(upstream.to_owned(), key.into())]);
    config.tenant_credentials = BTreeMap::from([
        ("acme".to_owned(), own("openai", "sk-of-acme")),
        ("initech".to_owned(), own("open", "sk-of-initech")),
    ]);
    let routes = ModelRoutes::build(&config, &[]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "Bearer the-agents-token".parse().unwrap());
    headers.insert("x-api-key", "the-agents-token".parse().unwrap());
    for (tenant, model) in
        [("acme", "gpt-5"), ("globex", "gpt-5"), ("initech", "gpt-5"), ("acme", "x"), ("initech", "x")]
    {
        let route = routes.route(ApiFormat::Openai, model, tenant, None).unwrap();
        let sent = route.send("chat/completions", &headers, Bytes::from_static(b"{}"), TIMEOUTS).await;
        collect(sent.unwrap(), 1024).await.unwrap();
    }
    assert_eq!(
        authorizations(&provider),
        [
            "authorization: Bearer sk-of-acme",
            &format!("authorization: Bearer {KEY}"),
            &format!("authorization: Bearer {KEY}"),
            "",
            "authorization: Bearer sk-of-initech",
        ]
    );
    assert!(provider.requests().iter().all(|request| !request.contains("the-agents-token")));
    let acme = routes.route(ApiFormat::Openai, "gpt-5", "acme", None).unwrap();
    let globex = routes.route(ApiFormat::Openai, "gpt-5", "globex", None).unwrap();
    assert!(Arc::ptr_eq(acme.upstream, globex.upstream), "they share the connections");
    assert!(!format!("{routes:?} {acme:?}").contains("sk-"));
}

#[tokio::test]
async fn a_credential_that_no_header_carries_is_a_problem_without_it() {
    let mut config: LlmProxy = serde_json::from_value(json!({
        "upstreams": [{ "name": "openai", "base_url": "http://127.0.0.1:1" }],
        "models": [],
    }))
    .unwrap();
    let own = BTreeMap::from([("openai".to_owned(), "sk-of-acme\n".into())]);
    config.tenant_credentials = BTreeMap::from([("acme".to_owned(), own)]);
    let problems = ModelRoutes::build(&config, &[]).unwrap_err();
    assert!(problems[0].message.contains("acme") && !problems[0].message.contains("sk-of"), "{problems:?}");
}

#[tokio::test]
async fn the_demo_model_answers_as_a_provider_does() {
    let client = client(json!({ "builtin": "demo-model" }));
    let request = |stream| {
        json!({ "model": "m", "messages": [{ "role": "user", "content": "a b" }], "stream": stream })
            .to_string()
            .into()
    };
    let sent =
        client.send("chat/completions", &HeaderMap::new(), request(false), None, TIMEOUTS).await.unwrap();
    assert_eq!(sent.status, 200);
    assert!(sent.request_id().is_some());
    assert_eq!(sent.passed_headers()["content-type"], "application/json");
    let whole: Value = serde_json::from_slice(&collect(sent, 1024).await.unwrap()).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "You said: a b");
    let headers = HeaderMap::new();
    let send = |timeouts| client.send("chat/completions", &headers, request(true), None, timeouts);
    let streamed = collect(send(TIMEOUTS).await.unwrap(), 4096).await.unwrap();
    assert!(streamed.ends_with(b"data: [DONE]\n\n"));
    assert_eq!(collect(send(TIMEOUTS).await.unwrap(), 600).await, Err(UpstreamError::TooLarge));
    let short = UpstreamTimeouts { total: Duration::from_millis(30), ..TIMEOUTS };
    let late = UpstreamError::Timeout(UpstreamTimeout::Total);
    assert_eq!(collect(send(short).await.unwrap(), 4096).await, Err(late));
    let wrong =
        client.send("chat/completions", &HeaderMap::new(), Bytes::new(), None, TIMEOUTS).await.unwrap();
    assert_eq!(wrong.status, 400);
}
