//! The ops port: is the process alive, should it get traffic, what do its metrics say, and all of it at a glance. Plaintext and without a
//! token, for probes and people; it passes no chain and asks no plugin.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwapOption;
use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};
use serde::{Serialize, Serializer};
use tokio_util::sync::CancellationToken;

use super::{call::Gateway, http::OPENAPI, overview::Overview, page};

/// Media type of the Prometheus text format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the gateway should get traffic (docs/protocol.md, section 2): the start is finished, every issuer has
/// keys, and it is not draining. Plugin health never changes it.
pub struct Readiness {
    gateway: Arc<Gateway>,
    started: AtomicBool,
    /// The plugin of the registry that a start waits for while it serves already.
    missing: ArcSwapOption<String>,
    draining: CancellationToken,
}

/// What is being waited for.
pub struct Waits {
    /// For everybody.
    pub what: &'static str,
    /// Whom it is about and why, for operators.
    pub which: Option<Arc<String>>,
}

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.which {
            Some(which) => serializer.collect_str(&format_args!("{}: {which}", self.what)),
            None => serializer.serialize_str(self.what),
        }
    }
}

impl Readiness {
    /// Not ready yet; never again once `draining` is cancelled.
    pub fn new(gateway: Arc<Gateway>, draining: CancellationToken) -> Arc<Self> {
        let (started, missing) = (AtomicBool::new(false), ArcSwapOption::empty());
        Arc::new(Readiness { gateway, started, missing, draining })
    }

    /// Listeners are bound, the table is published, the file's required plugins are there; `missing`: one of the registry
    /// isn't, and why.
    pub fn started(&self, missing: Option<String>) {
        self.missing.store(missing.map(Arc::new));
        self.started.store(true, Ordering::Release);
    }

    /// What is being waited for; none: ready.
    pub fn waits_for(&self) -> Option<Waits> {
        let alone = |what| Some(Waits { what, which: None });
        if self.draining.is_cancelled() {
            alone("draining")
        } else if !self.started.load(Ordering::Acquire) {
            alone("the start is not finished")
        } else if self.gateway.in_force().is_absent {
            alone("the store can't be reached, and there is no last good table")
        } else if let Some(missing) = self.missing.load_full() {
            Some(Waits { what: "a plugin that the registry requires is not there", which: Some(missing) })
        } else if !self.gateway.in_force().auth.ready() {
            alone("an issuer has no keys")
        } else {
            None
        }
    }
}

/// The routes of the ops port.
pub fn router(overview: Arc<Overview>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(overview)
}

async fn metrics(State(overview): State<Arc<Overview>>) -> Response {
    match overview.gateway.telemetry.prometheus() {
        Ok(text) => ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn readyz(State(overview): State<Arc<Overview>>) -> (StatusCode, String) {
    match overview.readiness.waits_for() {
        None => (StatusCode::OK, "ok\n".into()),
        Some(Waits { what, .. }) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {what}\n")),
    }
}
