//! A provider of models for tests: a real HTTP server that answers by a script, and records every request byte for byte.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// A request that reached the provider.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// Below the server's root.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ProviderRequest {
    /// The body as JSON.
    ///
    /// # Panics
    /// It is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a request is JSON")
    }
}

/// What the provider does with a request.
#[derive(Debug, Clone)]
pub enum ProviderAct {
    /// Answers with status, headers and body.
    Answer(u16, Vec<(&'static str, String)>, Bytes),
    /// Never answers.
    Hang,
}

impl ProviderAct {
    /// A chat completion with this JSON.
    pub fn json(body: &Value) -> Self {
        Self::text(200, &body.to_string())
    }

    /// Status and JSON text.
    pub fn text(status: u16, body: &str) -> Self {
        let headers =
            vec![("content-type", "application/json".to_owned()), ("x-request-id", "req-1".to_owned())];
        ProviderAct::Answer(status, headers, Bytes::copy_from_slice(body.as_bytes()))
    }

    /// A chat completion that says this.
    pub fn says(content: &str) -> Self {
        Self::json(&completion(&json!([choice(json!({ "role": "assistant", "content": content }), "stop")])))
    }

    /// A chat completion that calls these tools, each a name and the text of its arguments.
    pub fn calls(calls: &[(&str, &str)]) -> Self {
        let calls = calls.iter().enumerate().map(|(at, (name, arguments))| {
            let function = json!({ "name": name, "arguments": arguments });
            json!({ "id": format!("call_{at}"), "type": "function", "function": function })
        });
        let message =
            json!({ "role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>() });
        Self::json(&completion(&json!([choice(message, "tool_calls")])))
    }
}

/// A chat completion with these choices.
pub fn completion(choices: &Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5-2025-08-07", "choices": choices,
        "usage": { "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 },
    })
}

fn choice(message: Value, finish_reason: &str) -> Value {
    json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason })
}

type Script = Arc<dyn Fn(&ProviderRequest) -> ProviderAct + Send + Sync>;

/// A running provider. It stops on drop.
pub struct FakeProvider {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ProviderRequest>>>,
    serving: JoinHandle<()>,
}

impl FakeProvider {
    /// A provider that does the same with every request.
    pub async fn always(act: ProviderAct) -> Self {
        Self::start(move |_| act.clone()).await
    }

    /// A provider that follows a script.
    pub async fn start(script: impl Fn(&ProviderRequest) -> ProviderAct + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::<Mutex<Vec<ProviderRequest>>>::default();
        let (seen, script): (_, Script) = (Arc::clone(&requests), Arc::new(script));
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                let service =
                    service_fn(move |request| answer(request, Arc::clone(&seen), Arc::clone(&script)));
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A client that goes away is part of some tests.
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        FakeProvider { address, requests, serving }
    }

    /// For `base_url` of an upstream.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<ProviderRequest> {
        self.requests.lock().expect("no holder of this lock panics").clone()
    }

    /// The only request.
    ///
    /// # Panics
    /// There is none, or another one.
    pub fn request(&self) -> ProviderRequest {
        let [request] = <[ProviderRequest; 1]>::try_from(self.requests()).expect("one request");
        request
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<ProviderRequest>>>,
    script: Script,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let request = ProviderRequest { path: head.uri.path().to_owned(), headers: head.headers, body };
    seen.lock().expect("no holder of this lock panics").push(request.clone());
    match script(&request) {
        ProviderAct::Answer(status, headers, body) => {
            let mut answer = Response::new(Full::new(body));
            *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
            for (name, value) in headers {
                answer.headers_mut().insert(name, value.parse().expect("a header's value"));
            }
            Ok(answer)
        }
        ProviderAct::Hang => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(Response::new(Full::default()))
        }
    }
}
