//! The gRPC side of the data port: the extension points, the hooks, the list of tools, health and reflection.
//!
//! Messages of the extension points and hooks are unframed here and not by tonic's server. So a message that is
//! undecodable, too large or compressed gets an answer with a code of ours, and not just a bare status.

use std::{convert::Infallible, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, header, request::Parts};
use prost::Message;
use tower::ServiceExt;

use crate::{
    config::Detail,
    core::error::{Code, Error},
    dataplane::{
        call::Gateway,
        protocol::Protocol,
        stack::{HttpService, call},
        tools,
    },
    edge::{
        body::{SizeLimit, too_large},
        common_services::{CommonServices, is_common},
        header::single,
        request_meta::RequestMeta,
        response::{self, InvocationResult},
    },
    grpc::framing::{FramingError, PREFIX_BYTES, unframe},
    invoke::{AfterToolResult, AgentCall, BeforeLlmRequest, BeforeResponse, BeforeToolCall, Hook},
    payload::Validate,
    transcode,
};

/// The services of the package `hookgate.gateway.v1`.
const SERVICES: [&str; 3] = ["ExtensionPointService/", "HookService/", "ToolService/"];

/// All gRPC services of the data port: one per extension point, one for the hooks, and those that every port has.
pub(super) struct GrpcRouter<L, C, R, A, H> {
    gateway: Arc<Gateway>,
    before_llm_request: L,
    before_tool_call: C,
    after_tool_result: R,
    before_response: A,
    run_hook: H,
    /// These take no token and pass no chain.
    common: CommonServices,
}

impl GrpcRouter<(), (), (), (), ()> {
    /// Adds the extension points and the hooks to `common`.
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        common: CommonServices,
    ) -> GrpcRouter<impl HttpService, impl HttpService, impl HttpService, impl HttpService, impl HttpService>
    {
        GrpcRouter {
            gateway: Arc::clone(gateway),
            before_llm_request: call::<BeforeLlmRequest, GrpcProtocol>(gateway),
            before_tool_call: call::<BeforeToolCall, GrpcProtocol>(gateway),
            after_tool_result: call::<AfterToolResult, GrpcProtocol>(gateway),
            before_response: call::<BeforeResponse, GrpcProtocol>(gateway),
            run_hook: call::<Hook, GrpcProtocol>(gateway),
            common,
        }
    }
}

impl<L: HttpService, C: HttpService, R: HttpService, A: HttpService, H: HttpService>
    GrpcRouter<L, C, R, A, H>
{
    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path();
        let Some(method) = path.strip_prefix("/hookgate.gateway.v1.") else {
            return Ok(match is_common(path) {
                true => self.common.answer(request).await,
                false => self.refuse("No such service"),
            });
        };
        match method {
            "ExtensionPointService/BeforeLlmRequest" => {
                self.before_llm_request.clone().oneshot(request).await
            }
            "ExtensionPointService/BeforeToolCall" => self.before_tool_call.clone().oneshot(request).await,
            "ExtensionPointService/AfterToolResult" => self.after_tool_result.clone().oneshot(request).await,
            "ExtensionPointService/BeforeResponse" => self.before_response.clone().oneshot(request).await,
            "HookService/RunHook" => self.run_hook.clone().oneshot(request).await,
            "ToolService/ListTools" => Ok(tools::answer_grpc(&self.gateway, request).await),
            _ if SERVICES.iter().any(|service| method.starts_with(service)) => {
                Ok(self.refuse("No such method"))
            }
            _ => Ok(self.refuse("No such service")),
        }
    }

    fn refuse(&self, detail: &str) -> Response<Body> {
        let error = Error::new(Code::NotFound, detail);
        let meta = RequestMeta::now();
        response::grpc_refusal(&meta, &error, self.gateway.snapshots.current().limits.detail)
    }
}

/// Unary calls over gRPC.
pub(super) struct GrpcProtocol;

impl<P> Protocol<P> for GrpcProtocol
where
    P: AgentCall,
    P::Payload: transcode::Changes,
{
    const FRAMING_BYTES: usize = PREFIX_BYTES;

    fn check(head: &Parts) -> Result<(), Error> {
        check(head)
    }

    fn decode(body: Bytes, limit: usize, _hook: Option<&str>) -> Result<P::Request, Error> {
        let request: P::Request = message(&body, SizeLimit::with_key(limit, "limits.request"))?;
        let violations = request.violations("");
        if violations.is_empty() { Ok(request) } else { Err(Error::invalid(violations)) }
    }

    fn respond(result: InvocationResult<P>) -> Response<Body> {
        response::grpc(result)
    }

    fn refuse(meta: &RequestMeta, error: &Error, detail: Detail) -> Response<Body> {
        response::grpc_refusal(meta, error, detail)
    }
}

/// Checks that a request has the form of a unary call.
///
/// # Errors
/// METHOD_NOT_ALLOWED, CONTENT_TYPE, PAYLOAD_INVALID.
pub(crate) fn check(head: &Parts) -> Result<(), Error> {
    if head.method != Method::POST {
        return Err(Error::new(Code::MethodNotAllowed, "This path takes POST"));
    }
    let content_type = single(&head.headers, header::CONTENT_TYPE.as_str())?.map(|value| value.as_bytes());
    if !matches!(content_type, Some(b"application/grpc" | b"application/grpc+proto")) {
        return Err(Error::new(Code::ContentType, "Messages are protobuf: application/grpc"));
    }
    Ok(())
}

/// Takes the one message, which is within `limit`, out of a unary request's body.
///
/// # Errors
/// PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, and CONTENT_TYPE for one that is compressed.
pub(crate) fn message<M: Message + Default>(body: &Bytes, limit: SizeLimit) -> Result<M, Error> {
    let invalid = |detail: &str| Error::new(Code::PayloadInvalid, detail);
    let message = unframe(body, limit.bytes).map_err(|error| match error {
        FramingError::Empty | FramingError::PartialPrefix => invalid("The request holds no message"),
        FramingError::Compressed => Error::new(Code::ContentType, "Compressed messages are not supported"),
        FramingError::TooLarge(_) => too_large(limit),
        FramingError::CutShort | FramingError::Surplus => {
            invalid("The request holds no single whole message")
        }
    })?;
    M::decode(message).map_err(|error| invalid(&format!("The message cannot be decoded: {error}")))
}
