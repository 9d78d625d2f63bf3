//! Agents that call the gateway over HTTP and gRPC and return the answers as they are on the wire. Every
//! HTTP answer is checked against docs/openapi.json.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use hookgate_proto::{
    gateway::v1::{ChainReport, extension_point_service_client::ExtensionPointServiceClient},
    types::v1::ExtensionPoint,
};
use http::HeaderMap;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use tonic_types::{StatusExt as _, pb::Status as RpcStatus};

use crate::openapi::{self, Asked, Port};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path of a point.
pub fn path(point: ExtensionPoint) -> &'static str {
    match point {
        ExtensionPoint::BeforeLlmRequest => "/v1/before-llm-request",
        ExtensionPoint::BeforeToolCall => "/v1/before-tool-call",
        ExtensionPoint::AfterToolResult => "/v1/after-tool-result",
        ExtensionPoint::BeforeResponse => "/v1/before-response",
        ExtensionPoint::Unspecified => panic!("no point, no path"),
    }
}

/// Calls over HTTP.
#[derive(Debug, Clone)]
pub struct HttpAgent {
    client: reqwest::Client,
    base: String,
    /// The gateway's port; `None` for other servers.
    port: Option<Port>,
    token: Option<String>,
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body as it was received.
    pub text: String,
    /// The body as JSON; null if it isn't JSON.
    pub body: Value,
}

impl HttpAnswer {
    /// A header's value, if the header is there exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok();
        value.filter(|_| values.next().is_none())
    }

    /// Parses all answers that an HTTP/1.1 connection returned, in order.
    ///
    /// # Panics
    /// Unless the text consists of complete answers with a content length.
    pub fn all(mut text: &str) -> Vec<HttpAnswer> {
        let mut answers = Vec::new();
        while !text.is_empty() {
            let (head, rest) = text.split_once("\r\n\r\n").expect("a head ends");
            let mut lines = head.lines();
            let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
            let headers: HeaderMap = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
                .collect();
            let length = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
            let (body, rest) = rest.split_at(length.expect("an answer has a length"));
            answers.push(HttpAnswer {
                status: status.expect("an answer has a status"),
                headers,
                text: body.to_owned(),
                body: serde_json::from_str(body).unwrap_or(Value::Null),
            });
            text = rest;
        }
        answers
    }
}

impl HttpAgent {
    /// An agent for a data port, without a token. Each agent has its own connections.
    pub fn new(address: SocketAddr) -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
        let client = client.expect("an HTTP client needs nothing from the machine");
        HttpAgent { client, base: format!("http://{address}"), port: Some(Port::Data), token: None }
    }

    /// An agent for a data port with TLS, configured by [`crate::ca::Ca::client`].
    pub fn over_tls(address: SocketAddr, tls: rustls::ClientConfig) -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).tls_backend_preconfigured(tls);
        let client = client.build().expect("an HTTP client needs nothing from the machine");
        HttpAgent { client, base: format!("https://{address}"), port: Some(Port::Data), token: None }
    }

    /// An agent for an admin socket, without a token.
    pub fn over_socket(path: &Path) -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).unix_socket(path).build();
        let client = client.expect("an HTTP client needs nothing from the machine");
        HttpAgent { client, base: "http://localhost".into(), port: Some(Port::Admin), token: None }
    }

    /// The same agent for another port.
    #[must_use]
    pub fn of(self, port: Port) -> Self {
        HttpAgent { port: Some(port), ..self }
    }

    /// The same agent with this token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.into());
        self
    }

    /// A request to complete and pass to [`HttpAgent::send`].
    pub fn request(&self, method: http::Method, path: &str) -> reqwest::RequestBuilder {
        // The fragment is never sent. It tells `send` which port answers.
        let port = self.port.map_or(String::new(), |port| format!("#{}", port.as_str()));
        let request = self.client.request(method, format!("{}{path}{port}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Calls a point with this payload.
    pub async fn call(&self, point: ExtensionPoint, payload: Value) -> HttpAnswer {
        self.post(point, &json!({ "payload": payload })).await
    }

    /// Calls a point with this complete body.
    pub async fn post(&self, point: ExtensionPoint, body: &Value) -> HttpAnswer {
        self.post_text(point, body.to_string()).await
    }

    /// Calls a point with a body of these bytes, declared as JSON.
    pub async fn post_text(&self, point: ExtensionPoint, body: impl Into<reqwest::Body>) -> HttpAnswer {
        let request = self.request(http::Method::POST, path(point));
        let request = request.header("content-type", "application/json").body(body);
        Self::send(request).await.expect("the gateway answers")
    }

    /// Gets a path.
    ///
    /// # Errors
    /// If no answer comes.
    pub async fn get(&self, path: &str) -> reqwest::Result<HttpAnswer> {
        Self::send(self.request(http::Method::GET, path)).await
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// If no complete answer comes.
    ///
    /// # Panics
    /// If the answer, or an accepted request, violates docs/openapi.json.
    pub async fn send(request: reqwest::RequestBuilder) -> reqwest::Result<HttpAnswer> {
        let (client, request) = request.build_split();
        let request = request?;
        let asked = asked(&request);
        let response = client.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        let answer = HttpAnswer { status, headers, text, body };
        if let Some(asked) = asked {
            openapi::check(&asked, &answer);
        }
        Ok(answer)
    }
}

/// The request as the checker needs it; `None` if it isn't for a gateway.
fn asked(request: &reqwest::Request) -> Option<Asked> {
    let url = request.url();
    let port = Port::ALL.into_iter().find(|port| url.fragment() == Some(port.as_str()))?;
    let query = url.query().map_or(String::new(), |query| format!("?{query}"));
    Some(Asked {
        port,
        method: request.method().clone(),
        path: format!("{}{query}", url.path()),
        headers: request.headers().clone(),
        body: request.body().and_then(reqwest::Body::as_bytes).map(<[u8]>::to_vec),
    })
}

/// The generated gRPC client, with a token.
pub type GrpcClient = ExtensionPointServiceClient<InterceptedService<Channel, Bearer>>;

/// Adds the token to every request's metadata.
#[derive(Debug, Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// This token, or none.
    pub fn new(token: Option<&str>) -> Self {
        Bearer(token.map(|token| format!("Bearer {token}").parse().expect("tokens are ASCII")))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Calls over gRPC.
#[derive(Debug, Clone)]
pub struct GrpcAgent {
    /// The generated client.
    pub client: GrpcClient,
    /// The connection, for other services on the same port.
    pub channel: Channel,
}

impl GrpcAgent {
    /// Connects.
    pub async fn dial(address: SocketAddr, token: Option<&str>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address makes a URL");
        GrpcAgent::with(endpoint.connect().await.expect("the gateway listens"), token)
    }

    /// Connects over TLS, configured by [`crate::ca::Ca::client`].
    ///
    /// # Errors
    /// The TLS error. In TLS 1.3, a rejected client certificate fails only the first call.
    pub async fn dial_tls(
        address: SocketAddr,
        mut tls: rustls::ClientConfig,
        token: Option<&str>,
    ) -> Result<Self, tonic::transport::Error> {
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let (connector, name) =
            (TlsConnector::from(Arc::new(tls)), ServerName::IpAddress(address.ip().into()));
        let connect = tower::service_fn(move |_| {
            let (connector, name) = (connector.clone(), name.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        });
        // Only the connector knows about TLS.
        let uri = |scheme| format!("{scheme}://{address}").parse().expect("an address makes a URL");
        let endpoint = Endpoint::from(uri("http")).origin(uri("https"));
        Ok(GrpcAgent::with(endpoint.connect_with_connector(connect).await?, token))
    }

    fn with(channel: Channel, token: Option<&str>) -> Self {
        let client = ExtensionPointServiceClient::with_interceptor(channel.clone(), Bearer::new(token));
        GrpcAgent { client: client.max_decoding_message_size(17 << 20), channel }
    }
}

/// The status, and the reason of its `ErrorInfo` if the domain is the gateway's.
pub fn reason(status: &Status) -> (Code, Option<String>) {
    let info = status.get_details_error_info().filter(|info| info.domain == "hookgate");
    (status.code(), info.map(|info| info.reason))
}

/// The chain report in a status.
///
/// # Panics
/// If its details can't be decoded.
pub fn chain_report(status: &Status) -> Option<ChainReport> {
    let details = RpcStatus::decode(status.details()).expect("details are a google.rpc.Status").details;
    let report =
        details.into_iter().find(|any| any.type_url.ends_with("/hookgate.gateway.v1.ChainReport"))?;
    Some(ChainReport::decode(&*report.value).expect("it is one"))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };
    use tonic_types::ErrorDetails;

    use super::*;

    /// Takes one request, answers `response`, and returns the request.
    async fn answer_once(listener: TcpListener, response: &'static str) -> String {
        let (mut stream, _) = listener.accept().await.expect("the agent connects");
        let mut taken = Vec::new();
        while !taken.ends_with(b"}}") {
            assert_ne!(
                stream.read_buf(&mut taken).await.expect("the agent sends"),
                0,
                "the body ends in two braces"
            );
        }
        stream.write_all(response.as_bytes()).await.expect("the agent reads");
        String::from_utf8(taken).expect("the request is text")
    }

    #[tokio::test]
    async fn an_http_call_carries_token_and_payload_and_shows_the_whole_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let response = "HTTP/1.1 403 Forbidden\r\nx-once: 1\r\nx-twice: 1\r\nx-twice: 2\r\n\
                        content-length: 7\r\n\r\n{\"a\":1}";
        let server = tokio::spawn(answer_once(listener, response));
        let agent = HttpAgent { port: None, ..HttpAgent::new(address) }.with_token("t");
        let answer = agent.call(ExtensionPoint::BeforeResponse, json!({ "content": "hi" })).await;
        let taken = server.await.expect("the server does not panic");

        assert!(taken.starts_with("POST /v1/before-response HTTP/1.1\r\n"), "{taken}");
        assert!(taken.contains("authorization: Bearer t\r\n"), "{taken}");
        assert!(taken.ends_with(r#"{"payload":{"content":"hi"}}"#), "{taken}");
        assert_eq!((answer.status, &answer.body), (403, &json!({ "a": 1 })));
        assert_eq!(
            (answer.header("x-once"), answer.header("x-twice"), answer.header("x-none")),
            (Some("1"), None, None)
        );
    }

    #[test]
    fn reasons_are_read_from_our_own_error_info() {
        for (domain, expected) in [("hookgate", Some("LOOP".to_owned())), ("else", None)] {
            let details = ErrorDetails::with_error_info("LOOP", domain, []);
            let status = Status::with_error_details(Code::FailedPrecondition, "m", details);
            assert_eq!(reason(&status), (Code::FailedPrecondition, expected));
        }
    }
}
