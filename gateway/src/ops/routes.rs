//! The routes of the ops port: liveness, readiness, metrics and the status page. The port is plaintext and
//! needs no token. Its requests pass no chain and contact no plugin.

use crate::snapshot::readiness::Waits;
use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};

use crate::{
    dataplane::http::OPENAPI,
    ops::{page, status::StatusSource},
};

/// The media type of the Prometheus text format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes of the ops port.
pub fn router(overview: Arc<StatusSource>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(overview)
}

async fn metrics(State(overview): State<Arc<StatusSource>>) -> Response {
    match overview.gateway.telemetry.prometheus() {
        Ok(text) => ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn readyz(State(overview): State<Arc<StatusSource>>) -> (StatusCode, String) {
    match overview.readiness.waiting_for() {
        None => (StatusCode::OK, "ok\n".into()),
        Some(Waits { what, .. }) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {what}\n")),
    }
}
