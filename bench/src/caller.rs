//! A caller: one connection to the gateway, or to what stands in its place, over gRPC or HTTP/1.1.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hookgate_proto::{
    gateway::v1::{
        extension_point_service_client::ExtensionPointServiceClient, hook_service_client::HookServiceClient,
    },
    types::v1::Decision,
};
use http::{
    StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tower::util::MapRequest;

use crate::{
    BenchError, gateway_config,
    payload::{self, GatewayRequest, Payload, TENANT},
};

/// The deadline of a call, which no call comes near.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Between the first requests of two callers, so that they begin with different requests and tenants.
const STRIDE: usize = 7919;

/// How callers reach what they call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Grpc,
    /// gRPC to Envoy, in requests that don't have the content type of gRPC. Envoy answers itself, and to a
    /// request with that content type it never sends a body of its own.
    GrpcToEnvoy,
    /// JSON over HTTP/1.1, with the connection kept open.
    Http,
}

/// What to call, and with what.
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) protocol: Protocol,
    pub(crate) payload: Payload,
    /// The callers take turns with these.
    pub(crate) tokens: Vec<String>,
    /// The CA of the called process in PEM, if it serves TLS.
    pub(crate) ca: Option<Vec<u8>>,
}

/// Whether a call was answered with "continue", or a hook as expected, or refused for lack of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Continued,
    Refused,
}

impl Target {
    /// Tool calls of the tenant, without TLS, to a gateway at `address`.
    pub(crate) fn tool_calls(address: &str, protocol: Protocol) -> Result<Self, BenchError> {
        Ok(Target {
            address: address.to_owned(),
            protocol,
            payload: Payload::ToolCall,
            tokens: vec![gateway_config::token(TENANT)?],
            ca: None,
        })
    }

    /// Opens `count` connections, each of a caller of its own.
    pub(crate) async fn callers(&self, count: usize) -> Result<Vec<Caller>, BenchError> {
        let mut callers = Vec::with_capacity(count);
        for number in 0..count {
            callers.push(match self.protocol {
                Protocol::Grpc => Caller::Grpc(self.grpc_caller(number, unchanged).await?),
                Protocol::GrpcToEnvoy => Caller::Grpc(self.grpc_caller(number, as_post).await?),
                Protocol::Http => Caller::Http(self.http_caller(number).await?),
            });
        }
        Ok(callers)
    }

    /// Opens one gRPC connection, which `count` callers share.
    pub(crate) async fn callers_of_one_connection(&self, count: usize) -> Result<Vec<Caller>, BenchError> {
        let first = self.grpc_caller(0, unchanged).await?;
        let share = |number| Caller::Grpc(GrpcCaller { next: number * STRIDE, ..first.clone() });
        Ok((0..count).map(share).collect())
    }

    async fn grpc_caller(
        &self,
        number: usize,
        change: fn(HttpRequest) -> HttpRequest,
    ) -> Result<GrpcCaller, BenchError> {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address))?.tcp_nodelay(true);
        if let Some(ca) = &self.ca {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
            endpoint = endpoint.tls_config(tls)?;
        }
        let channel = MapRequest::new(endpoint.connect().await?, change);
        let parse = |token: &String| format!("Bearer {token}").parse::<MetadataValue<Ascii>>();
        let tokens = self.tokens.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(GrpcCaller { channel, tokens, requests: self.payload.requests(), next: number * STRIDE })
    }

    async fn http_caller(&self, number: usize) -> Result<HttpCaller, BenchError> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The calls that it interrupts report how it ended.
        tokio::spawn(async move { drop(connection.await) });
        let token = &self.tokens[number % self.tokens.len()];
        let host = self.address.clone();
        Ok(HttpCaller {
            sender,
            host,
            bearer: format!("Bearer {token}"),
            request: self.payload.http_request(),
        })
    }
}

/// Makes calls over its own connection.
pub(crate) enum Caller {
    Grpc(GrpcCaller),
    Http(HttpCaller),
}

impl Caller {
    /// Makes the next call, and returns when its latency ended. Any answer other than "continue", or of a hook the
    /// expected one, is an error.
    pub(crate) async fn call(&mut self) -> Result<Instant, BenchError> {
        match self {
            Caller::Grpc(grpc) => match grpc.next_call().await? {
                CallOutcome::Continued => Ok(Instant::now()),
                CallOutcome::Refused => Err("a call was refused".into()),
            },
            Caller::Http(http) => http.call().await,
        }
    }
}

/// A request as it is sent.
type HttpRequest = http::Request<tonic::body::Body>;
type GatewayChannel = MapRequest<Channel, fn(HttpRequest) -> HttpRequest>;

fn unchanged(request: HttpRequest) -> HttpRequest {
    request
}

fn as_post(mut request: HttpRequest) -> HttpRequest {
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    request
}

#[derive(Clone)]
pub(crate) struct GrpcCaller {
    channel: GatewayChannel,
    tokens: Vec<MetadataValue<Ascii>>,
    requests: Vec<GatewayRequest>,
    next: usize,
}

impl GrpcCaller {
    /// Makes the next call without waiting for earlier ones: clones of it share the connection.
    pub(crate) fn next_call(
        &mut self,
    ) -> impl Future<Output = Result<CallOutcome, BenchError>> + Send + 'static {
        let token = self.tokens[self.next % self.tokens.len()].clone();
        let message = self.requests[self.next % self.requests.len()].clone();
        self.next += 1;
        let channel = self.channel.clone();
        async move { CallOutcome::of(send(channel, message, token).await) }
    }
}

impl CallOutcome {
    fn of(answer: Result<Decision, Status>) -> Result<Self, BenchError> {
        match answer {
            Ok(Decision::Continue) => Ok(CallOutcome::Continued),
            Ok(decision) => Err(format!("an answer that is not to be measured: {decision:?}").into()),
            Err(status) if matches!(status.code(), Code::ResourceExhausted | Code::Unavailable) => {
                Ok(CallOutcome::Refused)
            }
            Err(status) => Err(status.into()),
        }
    }
}

async fn send(
    channel: GatewayChannel,
    message: GatewayRequest,
    token: MetadataValue<Ascii>,
) -> Result<Decision, Status> {
    let mut client = ExtensionPointServiceClient::new(channel.clone());
    match message {
        GatewayRequest::BeforeLlmRequest(message) => {
            let answer = client.before_llm_request(authorized(message, token)).await?;
            Ok(answer.into_inner().decision())
        }
        GatewayRequest::BeforeToolCall(message) => {
            let answer = client.before_tool_call(authorized(message, token)).await?;
            Ok(answer.into_inner().decision())
        }
        GatewayRequest::AfterToolResult(message) => {
            let answer = client.after_tool_result(authorized(message, token)).await?;
            Ok(answer.into_inner().decision())
        }
        GatewayRequest::BeforeResponse(message) => {
            let answer = client.before_response(authorized(message, token)).await?;
            Ok(answer.into_inner().decision())
        }
        GatewayRequest::RunHook(message, expected) => {
            let answer = HookServiceClient::new(channel).run_hook(authorized(message, token)).await?;
            match answer.into_inner().contributions.len() {
                count if count == expected => Ok(Decision::Continue),
                count => Err(Status::internal(format!("{count} contributions, not {expected}"))),
            }
        }
    }
}

fn authorized<T>(message: T, token: MetadataValue<Ascii>) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", token);
    request.set_timeout(CALL_DEADLINE);
    request
}

pub(crate) struct HttpCaller {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
    bearer: String,
    request: payload::HttpRequest,
}

impl HttpCaller {
    async fn call(&mut self) -> Result<Instant, BenchError> {
        let mut answer = self.begin().await?;
        let at_mark = Instant::now();
        answer.read_until(None).await?;
        answer.expect(self.request.mark)?;
        Ok(self.request.timed_to.map_or_else(Instant::now, |_| at_mark))
    }

    /// Makes a call and reads the answer up to where the call's latency ends, if that is before the answer's end.
    pub(crate) async fn begin(&mut self) -> Result<HttpAnswer, BenchError> {
        let request = http::Request::post(self.request.path)
            .header("host", &self.host)
            .header("authorization", &self.bearer)
            .header("content-type", "application/json")
            .body(Full::new(self.request.body.clone()))?;
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let mut answer = HttpAnswer { status: head.status, body, text: Vec::new() };
        if let Some(mark) = self.request.timed_to {
            answer.read_until(Some(mark)).await?;
            answer.expect(mark)?;
        }
        Ok(answer)
    }
}

/// An answer as far as it is read.
pub(crate) struct HttpAnswer {
    status: StatusCode,
    body: Incoming,
    text: Vec<u8>,
}

impl HttpAnswer {
    /// Reads on until this is there, or to the end.
    async fn read_until(&mut self, mark: Option<&[u8]>) -> Result<(), BenchError> {
        while !mark.is_some_and(|mark| self.has(mark)) {
            let Some(frame) = self.body.frame().await else { break };
            if let Some(data) = frame?.data_ref() {
                self.text.extend_from_slice(data);
            }
        }
        Ok(())
    }

    fn has(&self, mark: &[u8]) -> bool {
        self.text.windows(mark.len()).any(|part| part == mark)
    }

    fn expect(&self, mark: &[u8]) -> Result<(), BenchError> {
        if self.status.is_success() && self.has(mark) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.text);
        Err(format!("an answer that is not to be measured: {} {text}", self.status).into())
    }
}
