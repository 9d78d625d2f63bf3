//! The reference plugin `webhook` as a process, between a gateway and an HTTP service, as docs/reference-plugins.md
//! describes it.

use std::{
    convert::Infallible,
    process::Stdio,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use hookgate_proto::types::v1::ExtensionPoint::BeforeToolCall;
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::{Gateway, Setup},
    repository,
    token::{SECRET, token},
};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpListener, process::Command};

use super::{
    process::{PluginProcess, unix},
    reference_page::{example, section},
};
use crate::docs::pages::{parts, read};

const WEBHOOK_SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// An HTTP service that answers as it is told, and keeps what it gets.
struct DecidingService {
    port: u16,
    answer: Arc<Mutex<(u16, String)>>,
    requests: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

impl DecidingService {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = DecidingService {
            port: listener.local_addr().unwrap().port(),
            answer: Arc::new(Mutex::new((204, String::new()))),
            requests: Arc::default(),
        };
        let (answer, requests) = (Arc::clone(&service.answer), Arc::clone(&service.requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                let respond = service_fn(move |request: Request<Incoming>| {
                    let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.expect("the body arrives").to_bytes();
                        requests.lock().unwrap().push((head.headers, body));
                        let (status, text) = answer.lock().unwrap().clone();
                        let response = Response::builder().status(status).body(Full::new(Bytes::from(text)));
                        Ok::<_, Infallible>(response.expect("a valid response"))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), respond));
            }
        });
        service
    }

    fn answers(&self, status: u16, body: impl ToString) {
        *self.answer.lock().unwrap() = (status, body.to_string());
    }

    fn requests(&self) -> Vec<(HeaderMap, Bytes)> {
        self.requests.lock().unwrap().clone()
    }

    /// The page's configuration, with this service.
    async fn gateway(&self, plugin: &PluginProcess) -> Gateway {
        let mut file = example("webhook");
        file["plugins"][0]["endpoint"] = json!(plugin.address);
        let config = &mut file["plugins"][0]["config"];
        config["url"] = json!(format!("http://127.0.0.1:{}/decide", self.port));
        config["allow_http"] = json!(true);
        config["egress"] = json!({ "cidrs": ["127.0.0.1"] });
        file["server"] = json!({ "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" });
        file["drain"] = json!({ "grace": "0ms", "finish": "5s" });
        file["log"] = json!({ "format": "json" });
        let setup = Setup::file(&file.to_string()).environment("JWT_SECRET", SECRET);
        setup.environment("WEBHOOK_SECRET", WEBHOOK_SECRET).start().await
    }
}

async fn refund(gateway: &Gateway) -> HttpAnswer {
    let body = json!({
        "context": { "session_id": "s-1", "agent_id": "support" },
        "payload": { "tool_name": "orders.refund", "args": { "order": 4711, "amount": 250.00 } },
    });
    gateway.http(&token("acme")).post(BeforeToolCall, &body).await
}

#[tokio::test]
async fn webhook_lets_a_service_decide_and_on_error_decides_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = PluginProcess::reference("webhook", &unix(folder.path(), "webhook"), &[]).await;
    let service = DecidingService::start().await;
    let gateway = service.gateway(&plugin).await;
    assert_eq!(refund(&gateway).await.status, 200, "204 lets a call pass");

    // The page's answer, and its notice.
    let (_, shown) = section("webhook");
    let [request, cancel, notice] = &shown[..] else { panic!("the section shows three things: {shown:?}") };
    service.answers(200, cancel);
    let blocked = refund(&gateway).await;
    assert_eq!((blocked.status, &blocked.body["block"]["code"]), (403, &cancel["code"]), "{blocked:?}");
    assert_eq!(&blocked.body["block"]["message"], &cancel["message"]);
    assert_eq!(blocked.body["notices"], json!([notice]), "{blocked:?}");
    assert_eq!(blocked.body["block"]["retry_after_ms"], cancel["retry_after_ms"], "{blocked:?}");

    // The page's request, apart from what is never the same.
    let (_, body) = service.requests().pop().expect("the service was asked");
    let mut got: Value = serde_json::from_slice(&body).unwrap();
    for changing in ["id", "timestamp", "request_id"] {
        assert!(got[changing].is_string(), "{got}");
        got[changing] = request[changing].clone();
    }
    assert_eq!(&got, request, "the page should show this request");

    service.answers(500, "canary");
    let failed = refund(&gateway).await;
    assert_eq!((failed.status, &failed.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{failed:?}");
    service.answers(200, "canary");
    let failed = refund(&gateway).await;
    assert_eq!((failed.status, &failed.body["code"]), (502, &json!("PLUGIN_ERROR")), "{failed:?}");
    let exit = gateway.stop().await;
    let log = exit.log.to_string();
    assert!(log.contains("the webhook service 127.0.0.1 answered 500"), "{log}");
    assert!(!log.contains(WEBHOOK_SECRET) && !log.contains("canary"), "{log}");
}

/// Whether the page's program accepts a request with this body.
async fn accepts(headers: &HeaderMap, body: &[u8]) -> bool {
    let page = read(&repository::root().join("docs/reference-plugins.md"));
    let (_, rest) = page.split_once("\n## webhook\n").expect("the page has the section");
    let blocks = parts(rest.split("\n## ").next().unwrap_or_default()).1;
    let (_, program) = blocks.into_iter().find(|(language, _)| language == "python").expect("a program");
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: Value = names.iter().map(|name| (*name, headers[*name].to_str().unwrap())).collect();
    let call =
        format!("import sys\nprint(is_genuine('{WEBHOOK_SECRET}', {headers}, sys.stdin.buffer.read()))");
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{program}\n{call}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("Python runs");
    child.stdin.take().expect("standard input is piped").write_all(body).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success());
    output.stdout == b"True\n"
}

#[tokio::test]
async fn the_pages_program_accepts_a_request_of_webhook_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = PluginProcess::reference("webhook", &unix(folder.path(), "webhook"), &[]).await;
    let service = DecidingService::start().await;
    let gateway = service.gateway(&plugin).await;
    assert_eq!(refund(&gateway).await.status, 200);
    let (headers, body) = service.requests().pop().expect("the service was asked");
    assert!(accepts(&headers, &body).await);
    assert!(!accepts(&headers, &[&body[..], b" "].concat()).await, "another body");
    let mut old = headers.clone();
    old.insert("webhook-timestamp", "1614265330".parse().unwrap());
    assert!(!accepts(&old, &body).await, "an old request");
}
