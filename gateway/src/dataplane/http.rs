//! The HTTP side of the data port: a path per extension point and hook, JSON in and out; [`tools`]; [`whoami`]; and the
//! OpenAPI document.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn},
    response::Response,
    routing::{any, get, post_service},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, header, request::Parts};

use crate::{
    config::Detail,
    core::error::{Code, Error},
    dataplane::{
        call::Gateway,
        llm,
        protocol::{HookInPath, Protocol},
        stack::call,
        tools, whoami,
    },
    edge::{
        header::single,
        request_meta::RequestMeta,
        response::{self, InvocationResult},
    },
    invoke::{AfterToolResult, AgentCall, BeforeLlmRequest, BeforeResponse, BeforeToolCall, Hook},
    transcode,
};

/// The OpenAPI 3.1 description of every HTTP answer of all ports. The tests check every answer against it.
pub const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// The routes of the four points, of the hooks, of [`tools`] and of [`whoami`]. All other paths answer with a problem document.
pub fn router(gateway: Arc<Gateway>) -> Router {
    let hooks = post_service(call::<Hook, JsonProtocol>(&gateway)).layer(from_fn(name_hook));
    Router::new()
        .route("/v1/before-llm-request", post_service(call::<BeforeLlmRequest, JsonProtocol>(&gateway)))
        .route("/v1/before-tool-call", post_service(call::<BeforeToolCall, JsonProtocol>(&gateway)))
        .route("/v1/after-tool-result", post_service(call::<AfterToolResult, JsonProtocol>(&gateway)))
        .route("/v1/before-response", post_service(call::<BeforeResponse, JsonProtocol>(&gateway)))
        .route("/v1/hooks/{hook}", hooks)
        .route(tools::PATH, any(tools::answer))
        .route(whoami::PATH, any(whoami::answer))
        .route(llm::PATHS[0], any(llm::answer))
        .route(llm::PATHS[1], any(llm::answer))
        .route("/openapi.json", get(openapi))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .with_state(gateway)
}

/// JSON over HTTP.
pub(super) struct JsonProtocol;

impl<P> Protocol<P> for JsonProtocol
where
    P: AgentCall,
    P::Payload: transcode::Changes,
    P::Request: transcode::HttpRequestMessage,
    P::Response: transcode::CallAnswer,
{
    const FRAMING_BYTES: usize = 0;

    fn check(head: &Parts) -> Result<(), Error> {
        check_content(&head.headers)
    }

    fn decode(body: Bytes, _limit: usize, hook: Option<&str>) -> Result<P::Request, Error> {
        transcode::decode_at(&body, hook).map_err(Error::invalid)
    }

    fn respond(result: InvocationResult<P>) -> Response {
        response::http(result)
    }

    fn refuse(meta: &RequestMeta, error: &Error, detail: Detail) -> Response {
        response::http_refusal(meta, error, detail)
    }
}

/// Hands the hook that the path names to the call.
async fn name_hook(mut request: Request, next: Next) -> Response {
    // Without decoding: no name of a hook has a character that a path must escape.
    let hook = request.uri().path().rsplit('/').next().unwrap_or_default().into();
    request.extensions_mut().insert(HookInPath(hook));
    next.run(request).await
}

/// Bodies are JSON and not compressed (docs/protocol.md, section 1).
pub(super) fn check_content(headers: &HeaderMap) -> Result<(), Error> {
    let text = |name: HeaderName| -> Result<_, Error> {
        Ok(single(headers, name.as_str())?.map_or(Some(""), |value| value.to_str().ok()))
    };
    let media_type = text(header::CONTENT_TYPE)?.and_then(|value| value.split(';').next()).map(str::trim);
    if !media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/json")) {
        return Err(Error::new(Code::ContentType, "Header `content-type` must be application/json"));
    }
    match text(header::CONTENT_ENCODING)? {
        Some("" | "identity") => Ok(()),
        Some(_) | None => Err(Error::new(
            Code::ContentType,
            "Compressed requests are not supported: omit `content-encoding`",
        )),
    }
}

/// Needs no token, because it reveals nothing about this gateway.
async fn openapi() -> Response {
    response::http_json(&RequestMeta::now(), Bytes::from_static(OPENAPI.as_bytes()))
}

async fn wrong_method(State(gateway): State<Arc<Gateway>>) -> Response {
    refuse(&gateway, &Error::new(Code::MethodNotAllowed, "This path requires the method that `Allow` names"))
}

async fn unknown_path(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    unknown(&gateway, &request.into_parts().0)
}

/// The answer at a path that isn't served.
pub(super) fn unknown(gateway: &Gateway, head: &Parts) -> Response {
    llm::unserved_path::answer(gateway, head).unwrap_or_else(|| {
        let detail = "No such path: the extension points are /v1/before-llm-request, /v1/before-tool-call, \
                      /v1/after-tool-result and /v1/before-response; hooks are /v1/hooks/NAME; /v1/tools lists the tools of plugins; \
                      /v1/whoami describes a token; models are below /openai/v1 and /anthropic";
        refuse(gateway, &Error::new(Code::NotFound, detail))
    })
}

fn refuse(gateway: &Gateway, error: &Error) -> Response {
    response::http_refusal(&RequestMeta::now(), error, gateway.snapshots.current().limits.detail)
}
