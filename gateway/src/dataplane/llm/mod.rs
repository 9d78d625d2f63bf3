//! The LLM proxy: a client of OpenAI's API calls its model through the gateway, which asks the tenant's plugins about everything
//! that passes (docs/llm-proxy.md).
//!
//! [`exchange`] has the order of things, [`chains`] asks plugins, [`units`] judges the parts of a conversation, [`model_answer`] those
//! of an answer, [`streamed_answer`] streams it, and [`reply`] writes what the client gets. What the bytes mean is in [`crate::llm`].

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
};
use futures::FutureExt;
use http::{HeaderValue, Method, Response, StatusCode, header};
use percent_encoding::percent_decode_str;

use crate::{
    config::Detail,
    core::error::{Code, Error},
    dataplane::call::Gateway,
    edge::{admission::CallPermits, request_meta::RequestMeta},
    llm::chat::error_event,
    net::tracked_body,
    records::exchange::ExchangeOutcome,
    telemetry::trace::in_request,
};

mod chains;
mod client_stream;
mod exchange;
mod model_answer;
mod models;
mod reply;
mod session;
mod streamed_answer;
mod units;

use client_stream::ClientStream;
use exchange::{ArrivedExchange, ExchangeContext, ExchangeEnd};

/// What the paths begin with. A client's base URL ends with it.
pub(super) const PREFIX: &str = "/openai/v1";

/// The path of all routes, for the router.
pub(super) const PATHS: &str = "/openai/{*path}";

const CHAT_COMPLETIONS: &str = "/chat/completions";
const MODELS: &str = "/models";

/// What a path is.
enum Route {
    ChatCompletions,
    Models,
    Model(String),
    Unknown,
}

impl Route {
    fn of(path: &str) -> Route {
        let Some(path) = path.strip_prefix(PREFIX) else { return Route::Unknown };
        match path {
            CHAT_COMPLETIONS => Route::ChatCompletions,
            MODELS => Route::Models,
            _ => match path.strip_prefix(MODELS).and_then(|rest| rest.strip_prefix('/')) {
                // A name may have a slash, which clients escape.
                Some(model) if !model.is_empty() => {
                    Route::Model(percent_decode_str(model).decode_utf8_lossy().into_owned())
                }
                _ => Route::Unknown,
            },
        }
    }
}

/// Answers every request below `/openai`.
pub(super) async fn answer(State(gateway): State<Arc<Gateway>>, request: Request) -> Response<Body> {
    let meta = RequestMeta::now();
    let snapshot = gateway.snapshots.current();
    let Some(llm) = snapshot.llm.as_ref().map(Arc::clone) else {
        return super::http::unknown(&gateway);
    };
    let (head, body) = request.into_parts();
    let mut detail = snapshot.limits.detail;
    match (Route::of(head.uri.path()), &head.method) {
        (Route::ChatCompletions, &Method::POST) => {
            let arrived = ArrivedExchange { gateway, snapshot, llm, meta, headers: head.headers };
            client_stream::respond(|stream| in_request(chat_completion(arrived, body, stream))).await
        }
        (Route::Models, &Method::GET) => {
            let listed = models::list(&gateway, &snapshot, &llm, &meta, &head.headers, &mut detail).await;
            reply::of_question(&meta, listed, detail)
        }
        (Route::Model(model), &Method::GET) => {
            let model =
                models::one(&gateway, &snapshot, &llm, &meta, (&head.headers, &model), &mut detail).await;
            reply::of_question(&meta, model, detail)
        }
        (Route::Unknown, _) => reply::of_error(&meta, &Error::new(Code::NotFound, UNKNOWN_PATH), detail),
        (Route::ChatCompletions, _) => wrong_method(&meta, "POST", detail),
        (Route::Models | Route::Model(_), _) => wrong_method(&meta, "GET", detail),
    }
}

/// Runs an exchange to its end. Returns the answer, unless it has begun in `stream`.
async fn chat_completion(
    arrived: ArrivedExchange,
    body: Body,
    mut stream: ClientStream,
) -> Option<Response<Body>> {
    let ArrivedExchange { gateway, snapshot, meta, .. } = &arrived;
    let mut detail = snapshot.limits.detail;
    let mut permits = CallPermits::default();
    let mut record = gateway.telemetry.exchange(meta.request_id, meta.received);
    let context = ExchangeContext {
        facts: &mut record.facts,
        permits: &mut permits,
        detail: &mut detail,
        stream: &mut stream,
    };
    // In a box: it is most of a request's future.
    let result = Box::pin(guarded(gateway, arrived.run(body, context))).await;
    record.ended(&outcome(&result));
    if stream.has_begun() {
        if let Err(error) = &result {
            stream.fail(error_event(&reply::error_body(meta, error, detail))).await;
        }
        stream.keep(permits);
        return None;
    }
    let mut answer = reply::of_exchange(meta, result, detail);
    tracked_body::hold(&mut answer, permits);
    Some(answer)
}

/// What the record says of a result.
fn outcome(result: &Result<ExchangeEnd, Error>) -> ExchangeOutcome<'_> {
    match result {
        Ok(ExchangeEnd::Answer(answer)) => {
            ExchangeOutcome::Answer { status: answer.status.as_u16(), is_blocked: answer.is_blocked }
        }
        Ok(ExchangeEnd::Streamed { is_blocked }) => {
            ExchangeOutcome::Answer { status: StatusCode::OK.as_u16(), is_blocked: *is_blocked }
        }
        Ok(ExchangeEnd::Block(block)) => ExchangeOutcome::Block(block),
        Err(error) => ExchangeOutcome::Error(error),
    }
}

const UNKNOWN_PATH: &str = "The gateway serves /openai/v1/chat/completions and /openai/v1/models only: what passes elsewhere could not \
                            be judged";

fn wrong_method(meta: &RequestMeta, allow: &'static str, detail: Detail) -> Response<Body> {
    let error = Error::new(Code::MethodNotAllowed, format!("This path takes {allow}"));
    let mut answer = reply::of_error(meta, &error, detail);
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    answer
}

/// Ends with DRAINING when the gateway gives up its calls, and with INTERNAL where the work panics.
async fn guarded<T>(gateway: &Gateway, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let draining =
        || Error::new(Code::Draining, "The gateway is shutting down").retry_after(Duration::from_secs(1));
    tokio::select! {
        biased;
        () = gateway.abort.cancelled() => Err(draining()),
        result = AssertUnwindSafe(work).catch_unwind() => {
            result.unwrap_or_else(|_| Err(Error::new(Code::Internal, Code::Internal.meaning())))
        }
    }
}
