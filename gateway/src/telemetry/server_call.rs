//! One request on the data port or the host port: its server span, and its duration, by the semantic conventions.

use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use opentelemetry::{
    Context, KeyValue,
    trace::{SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use tokio::time::Instant;

use super::{
    Inner, Telemetry,
    names::{
        CONVENTION_OTHER, ERROR_TYPE, HTTP_METHOD, HTTP_ROUTE, HTTP_STATUS, RPC_METHOD, RPC_STATUS,
        RPC_SYSTEM, URL_SCHEME,
    },
    trace::{self, InContext},
};
use crate::core::error::grpc_name;
use std::sync::Arc;

/// HTTP paths of the data port.
const KNOWN_ROUTES: [&str; 14] = [
    "/v1/before-llm-request",
    "/v1/before-tool-call",
    "/v1/after-tool-result",
    "/v1/before-response",
    "/v1/tools",
    "/v1/whoami",
    "/openai/v1/chat/completions",
    "/openai/v1/responses",
    "/openai/v1/embeddings",
    "/openai/v1/models",
    "/anthropic/v1/messages",
    "/anthropic/v1/messages/count_tokens",
    "/anthropic/v1/models",
    "/openapi.json",
];

/// HTTP paths that a model's name follows, and their routes.
const MODEL_ROUTES: [(&str, &str); 2] = [
    ("/openai/v1/models/", "/openai/v1/models/{model}"),
    ("/anthropic/v1/models/", "/anthropic/v1/models/{model}"),
];

/// Full gRPC method names of the extension points and of the services for plugins.
const KNOWN_METHODS: [&str; 17] = [
    "hookgate.gateway.v1.ExtensionPointService/BeforeLlmRequest",
    "hookgate.gateway.v1.ExtensionPointService/BeforeToolCall",
    "hookgate.gateway.v1.ExtensionPointService/AfterToolResult",
    "hookgate.gateway.v1.ExtensionPointService/BeforeResponse",
    "hookgate.gateway.v1.HookService/RunHook",
    "hookgate.gateway.v1.ToolService/ListTools",
    "hookgate.host.v1.StorageService/Get",
    "hookgate.host.v1.StorageService/GetMany",
    "hookgate.host.v1.StorageService/List",
    "hookgate.host.v1.StorageService/Put",
    "hookgate.host.v1.StorageService/Delete",
    "hookgate.host.v1.StorageService/Add",
    "hookgate.host.v1.StorageService/Transact",
    "hookgate.host.v1.LogService/WriteLog",
    "hookgate.host.v1.EventService/EmitEvent",
    "hookgate.host.v1.TokenService/RenewToken",
    "hookgate.host.v1.RegistrationService/Register",
];

/// What is called. Holds no text of the caller's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Http { scheme: &'static str, method: &'static str, route: Option<&'static str> },
    Rpc { method: &'static str },
}

impl CallKind {
    fn by_http<B>(request: &Request<B>, scheme: &'static str) -> Self {
        let path = request.uri().path();
        let is_hook =
            path.strip_prefix("/v1/hooks/").is_some_and(|hook| !hook.is_empty() && !hook.contains('/'));
        let known = KNOWN_ROUTES.into_iter().find(|route| *route == path);
        let has_model = |prefix: &str| path.strip_prefix(prefix).is_some_and(|model| !model.is_empty());
        let of_model = MODEL_ROUTES.into_iter().find(|(prefix, _)| has_model(prefix));
        let route = match known {
            None if is_hook => Some("/v1/hooks/{hook}"),
            None => of_model.map(|(_, route)| route),
            known => known,
        };
        CallKind::Http { scheme, method: method(request.method()), route }
    }

    /// Returns `None` for health and reflection, which are not measured.
    fn by_grpc<B>(request: &Request<B>) -> Option<Self> {
        let path = request.uri().path().trim_start_matches('/');
        if path.starts_with("grpc.health.") || path.starts_with("grpc.reflection.") {
            return None;
        }
        let method = KNOWN_METHODS.into_iter().find(|method| *method == path);
        Some(CallKind::Rpc { method: method.unwrap_or(CONVENTION_OTHER) })
    }

    fn span_name(self) -> String {
        match self {
            CallKind::Http { method, route: Some(route), .. } => format!("{method} {route}"),
            CallKind::Http { method, route: None, .. } => method.to_owned(),
            CallKind::Rpc { method } => method.to_owned(),
        }
    }

    fn attributes(self) -> Vec<KeyValue> {
        match self {
            CallKind::Http { scheme, method, route } => {
                let known = [KeyValue::new(HTTP_METHOD, method), KeyValue::new(URL_SCHEME, scheme)];
                known.into_iter().chain(route.map(|route| KeyValue::new(HTTP_ROUTE, route))).collect()
            }
            CallKind::Rpc { method } => {
                vec![KeyValue::new(RPC_SYSTEM, "grpc"), KeyValue::new(RPC_METHOD, method)]
            }
        }
    }
}

/// Known methods by name, as the semantic conventions require.
fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        "OPTIONS" => "OPTIONS",
        "TRACE" => "TRACE",
        "PATCH" => "PATCH",
        _ => CONVENTION_OTHER,
    }
}

/// A request that is being answered. Dropping it before [`ServerCall::answered`] means that the caller is
/// gone.
#[must_use = "dropped, it records that the caller went away"]
pub struct ServerCall {
    inner: Arc<Inner>,
    called: CallKind,
    context: Context,
    started: Instant,
    is_answered: bool,
}

impl Telemetry {
    /// Starts measuring an HTTP request that has just arrived.
    pub fn http_call<B>(&self, request: &Request<B>) -> ServerCall {
        ServerCall::new(self, CallKind::by_http(request, self.0.scheme), request.headers())
    }

    /// Starts measuring a gRPC request that has just arrived. Returns `None` for requests that are not
    /// measured.
    pub fn grpc_call<B>(&self, request: &Request<B>) -> Option<ServerCall> {
        Some(ServerCall::new(self, CallKind::by_grpc(request)?, request.headers()))
    }
}

impl ServerCall {
    fn new(telemetry: &Telemetry, called: CallKind, headers: &HeaderMap) -> Self {
        let inner = Arc::clone(&telemetry.0);
        let parent = trace::extract(headers);
        let context = match &inner.tracer {
            None => parent,
            Some(tracer) => {
                let span = tracer.span_builder(called.span_name()).with_kind(SpanKind::Server);
                let span = span.with_attributes(called.attributes());
                parent.with_span(span.start_with_context(tracer, &parent))
            }
        };
        ServerCall { inner, called, context, started: Instant::now(), is_answered: false }
    }

    /// Runs the future that answers the request within the request's trace.
    pub fn wrap<F: Future>(&self, answer: F) -> InContext<F> {
        InContext::new(self.context.clone(), answer)
    }

    /// Records the answer.
    pub fn answered(mut self, answer: &Response<Body>) {
        self.is_answered = true;
        match self.called {
            CallKind::Http { .. } => {
                let status = answer.status();
                let failed = status.is_server_error().then(|| text(status));
                self.record(Some(KeyValue::new(HTTP_STATUS, i64::from(status.as_u16()))), failed);
            }
            CallKind::Rpc { .. } => {
                // The status of a unary error is in the headers.
                let code = answer
                    .headers()
                    .get("grpc-status")
                    .map_or(tonic::Code::Ok, |value| tonic::Code::from_bytes(value.as_bytes()));
                let name = grpc_name(code);
                let failed = (code != tonic::Code::Ok).then_some(name);
                self.record(Some(KeyValue::new(RPC_STATUS, name)), failed.map(Into::into));
            }
        }
    }

    fn record(&self, status: Option<KeyValue>, error: Option<opentelemetry::StringValue>) {
        let span = self.context.span();
        if let Some(error) = &error {
            span.set_status(Status::error(""));
            span.set_attribute(KeyValue::new(ERROR_TYPE, error.clone()));
        }
        let mut attributes = self.called.attributes();
        attributes.extend(status.clone());
        attributes.extend(error.map(|error| KeyValue::new(ERROR_TYPE, error)));
        span.set_attributes(status);
        span.end();
        let histogram = match self.called {
            CallKind::Http { .. } => &self.inner.instruments.http_server,
            CallKind::Rpc { .. } => &self.inner.instruments.rpc_server,
        };
        histogram.record(self.started.elapsed().as_secs_f64(), &attributes);
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        if !self.is_answered {
            let status = match self.called {
                CallKind::Http { .. } => None,
                CallKind::Rpc { .. } => Some(KeyValue::new(RPC_STATUS, "CANCELLED")),
            };
            self.record(status, Some("CANCELLED".into()));
        }
    }
}

fn text(status: StatusCode) -> opentelemetry::StringValue {
    status.as_str().to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).expect("a request")
    }

    #[test]
    fn nothing_of_a_callers_path_or_method_becomes_an_attribute() {
        let called = CallKind::by_http(&request("SECRET", "/v1/secret?secret"), "https");
        assert_eq!(called, CallKind::Http { scheme: "https", method: "_OTHER", route: None });
        let called = CallKind::by_http(&request("POST", "/v1/before-tool-call?secret"), "http");
        assert_eq!(
            called,
            CallKind::Http { scheme: "http", method: "POST", route: Some("/v1/before-tool-call") }
        );
        let called = CallKind::by_grpc(&request("POST", "/secret/Secret"));
        assert_eq!(called, Some(CallKind::Rpc { method: "_OTHER" }));
    }

    #[test]
    fn probes_over_grpc_are_no_calls() {
        for path in
            ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]
        {
            assert_eq!(CallKind::by_grpc(&request("POST", path)), None);
        }
    }
}
