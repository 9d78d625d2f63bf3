//! The LLM proxy: a client of OpenAI's or Anthropic's API calls its model through the gateway, which asks the tenant's plugins about everything
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
    core::{
        api_format::ApiFormat,
        error::{Code, Error},
    },
    dataplane::call::Gateway,
    edge::{admission::CallPermits, request_meta::RequestMeta},
    llm::{
        chat::ChatCompletions,
        embeddings::Embeddings,
        format::Format,
        messages::{CountTokens, Messages},
        responses::Responses,
    },
    net::tracked_body,
    records::exchange::ExchangeOutcome,
    telemetry::trace::in_request,
};

mod answer_windows;
mod chains;
mod client_stream;
mod error_body;
mod exchange;
mod model_answer;
mod models;
mod reply;
mod session;
mod stream_writer;
mod streamed_answer;
mod text_release;
mod units;
pub(super) mod unserved_path;

use client_stream::ClientStream;
use error_body::error_body;
use exchange::{ArrivedExchange, ExchangeContext, ExchangeEnd};
use reply::Client;

/// The paths of all routes, for the router.
pub(super) const PATHS: [&str; 2] = ["/openai/{*path}", "/anthropic/{*path}"];

/// The paths of both APIs for the models of a tenant, behind the API's prefix.
const MODELS: &str = "/models";

/// What a path is.
enum Route {
    Exchange(ExchangeRoute),
    Models,
    Model(String),
    Unknown,
}

/// A request to a model, in one of the formats.
#[derive(Clone, Copy)]
enum ExchangeRoute {
    ChatCompletions,
    Responses,
    Embeddings,
    Messages,
    CountTokens,
}

/// What the paths of an API begin with. A client's base URL ends with it, in Anthropic's API without `/v1`.
const fn prefix(api: ApiFormat) -> &'static str {
    match api {
        ApiFormat::Openai => "/openai/v1",
        ApiFormat::Anthropic => "/anthropic/v1",
    }
}

impl Route {
    fn of(path: &str) -> (ApiFormat, Route) {
        let api = if path.starts_with("/anthropic/") { ApiFormat::Anthropic } else { ApiFormat::Openai };
        let Some(path) = path.strip_prefix(prefix(api)) else { return (api, Route::Unknown) };
        let route = match (api, path) {
            (ApiFormat::Openai, "/chat/completions") => Route::Exchange(ExchangeRoute::ChatCompletions),
            (ApiFormat::Openai, "/responses") => Route::Exchange(ExchangeRoute::Responses),
            (ApiFormat::Openai, "/embeddings") => Route::Exchange(ExchangeRoute::Embeddings),
            (ApiFormat::Anthropic, "/messages") => Route::Exchange(ExchangeRoute::Messages),
            (ApiFormat::Anthropic, "/messages/count_tokens") => Route::Exchange(ExchangeRoute::CountTokens),
            (_, MODELS) => Route::Models,
            _ => match path.strip_prefix(MODELS).and_then(|rest| rest.strip_prefix('/')) {
                // A name may have a slash, which clients escape.
                Some(model) if !model.is_empty() => {
                    Route::Model(percent_decode_str(model).decode_utf8_lossy().into_owned())
                }
                _ => Route::Unknown,
            },
        };
        (api, route)
    }
}

/// Answers every request below the prefixes.
pub(super) async fn answer(State(gateway): State<Arc<Gateway>>, request: Request) -> Response<Body> {
    let meta = RequestMeta::now();
    let snapshot = gateway.snapshots.current();
    let (head, body) = request.into_parts();
    let Some(llm) = snapshot.llm.as_ref().map(Arc::clone) else {
        return super::http::unknown(&gateway, &head);
    };
    let mut detail = snapshot.limits.detail;
    let (api, route) = Route::of(head.uri.path());
    let client = Client { api, meta: &meta };
    match (route, &head.method) {
        (Route::Exchange(route), &Method::POST) => {
            let arrived = ArrivedExchange { gateway, snapshot, llm, meta, headers: head.headers };
            client_stream::respond(move |stream| {
                in_request(async move {
                    match route {
                        ExchangeRoute::ChatCompletions => {
                            exchange::<ChatCompletions>(arrived, body, stream).await
                        }
                        ExchangeRoute::Responses => exchange::<Responses>(arrived, body, stream).await,
                        ExchangeRoute::Embeddings => exchange::<Embeddings>(arrived, body, stream).await,
                        ExchangeRoute::Messages => exchange::<Messages>(arrived, body, stream).await,
                        ExchangeRoute::CountTokens => exchange::<CountTokens>(arrived, body, stream).await,
                    }
                })
            })
            .await
        }
        (Route::Models, &Method::GET) => {
            let listed = models::list(&gateway, &snapshot, &llm, client, &head.headers, &mut detail).await;
            reply::of_question(client, listed, detail)
        }
        (Route::Model(model), &Method::GET) => {
            let model =
                models::one(&gateway, &snapshot, &llm, client, (&head.headers, &model), &mut detail).await;
            reply::of_question(client, model, detail)
        }
        (Route::Unknown, _) => super::http::unknown(&gateway, &head),
        (Route::Exchange(_), _) => wrong_method(client, "POST", detail),
        (Route::Models | Route::Model(_), _) => wrong_method(client, "GET", detail),
    }
}

/// Runs an exchange to its end. Returns the answer, unless it has begun in `stream`.
async fn exchange<F: Format>(
    arrived: ArrivedExchange,
    body: Body,
    mut stream: ClientStream,
) -> Option<Response<Body>> {
    let ArrivedExchange { gateway, snapshot, meta, .. } = &arrived;
    let client = Client { api: F::API, meta };
    let mut detail = snapshot.limits.detail;
    let mut permits = CallPermits::default();
    let mut record = gateway.telemetry.exchange(meta.request_id, meta.received);
    let context = ExchangeContext {
        facts: &mut record.facts,
        permits: &mut permits,
        detail: &mut detail,
        stream: &mut stream,
    };
    // In a box of its own: it is most of a request's future, which would be copied with it.
    let work = Box::pin(arrived.run::<F>(body, context));
    let result = guarded(gateway, work).await;
    let upstream_status = record.facts.upstream_status;
    record.ended(&outcome(&result, upstream_status));
    if stream.has_begun() {
        match &result {
            Ok(_) => stream.end(),
            Err(error) => stream.fail(F::error_event(&error_body(client, error, detail))).await,
        }
        stream.keep(permits);
        return None;
    }
    let mut answer = reply::of_exchange(client, result, detail);
    tracked_body::hold(&mut answer, permits);
    Some(answer)
}

/// What the record says of a result.
fn outcome(result: &Result<ExchangeEnd, Error>, upstream_status: Option<u16>) -> ExchangeOutcome<'_> {
    match result {
        Ok(ExchangeEnd::Answer(answer)) if answer.status.as_u16() >= 400 => {
            ExchangeOutcome::ProviderError { status: upstream_status.unwrap_or(answer.status.as_u16()) }
        }
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

fn wrong_method(client: Client<'_>, allow: &'static str, detail: Detail) -> Response<Body> {
    let error = Error::new(Code::MethodNotAllowed, format!("This path takes {allow}"));
    let mut answer = reply::of_error(client, &error, detail);
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
