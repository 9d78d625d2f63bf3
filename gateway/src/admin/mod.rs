//! The admin API: shows the gateway's status, its plugins and tenants' plans to operators (docs/status.md),
//! and lets them change the registry (docs/registry.md). HTTP is here; `grpc` offers the same over gRPC.
//! Every request needs a token, unless it came over the admin socket.
//!
//! Admin requests pass no chain and don't count as calls in flight. They show what the process already
//! knows and contact nobody, except in `process_ops`, which describes plugins again, makes test calls and
//! checks upstreams.
//!
//! A token that names a tenant sees that tenant, its plans and explanations, the bindings for it and its
//! calls' events. Everything else answers as if it did not exist: other tenants, plugins and their
//! addresses are for operators. Plugin-level config is shown with its references only, never with texts or
//! numbers, because it may contain secrets.

mod events;
mod explain;
pub mod grpc;
mod plan;
mod plugin;
pub mod process_ops;
mod query;
mod registry;
mod writes;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use hookgate_proto::HookName;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, request::Parts};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::writes::WriteTracker;
use self::{
    events::EventsAnswer,
    plugin::ActivePlugin,
    registry::{RegistryCaller, RegistryRoute},
};
use crate::{
    admin::process_ops::{ReloadRequest, Upkeep},
    auth::{AuthRefusal, Operator, Port, is_tenant_id},
    config::Detail,
    core::{
        call_site::CallSite,
        error::{Code, Error},
        point::Point,
    },
    dataplane::call::Gateway,
    edge::{request_meta::RequestMeta, response},
    invoke::{
        self,
        explain::{ExplainQuery, Explanation, LlmExplanation},
    },
    net::unix_listener::LocalUser,
    ops::status::StatusSource,
    registry::operations::Operations,
    routing::TenantRoute,
    snapshot::ConfigSnapshot,
};

const PATH_PREFIX: &str = "/admin/v1/";

pub struct Admin {
    gateway: Arc<Gateway>,
    overview: Arc<StatusSource>,
    operations: Arc<Operations>,
    upkeep: Upkeep,
    writes: WriteTracker,
    /// Cancelled at the end of the process; ends streams and waits.
    ended: CancellationToken,
}

/// The target of a path that only shows something.
enum ReadRoute {
    Status,
    Events,
    Plan(String),
    Explain(String),
}

/// The target of any path.
enum AdminRoute {
    Shown(ReadRoute),
    Registry(RegistryRoute),
    Upkeep(process_ops::routes::ProcessRoute),
}

impl Admin {
    /// Serves the status from `overview`, the registry through `operations`, and events until `ended`.
    /// Reload requests go to `asks`; `writes` tracks writes in flight.
    pub fn new(
        overview: Arc<StatusSource>,
        operations: Operations,
        asks: mpsc::Sender<ReloadRequest>,
        writes: WriteTracker,
        ended: CancellationToken,
    ) -> Self {
        let (gateway, operations) = (Arc::clone(&overview.gateway), Arc::new(operations));
        let upkeep = Upkeep::new(Arc::clone(&gateway), Arc::clone(&operations), asks);
        Admin { gateway, overview, operations, upkeep, writes, ended }
    }

    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let arrival = RequestMeta::now();
        let (head, body) = request.into_parts();
        let mut allow = "GET";
        let asked = match self.ask(&arrival, &head, body, &mut allow).await {
            Ok((_, EventsAnswer::Following(events))) => return response::http_events(&arrival, events),
            Ok((status, EventsAnswer::Kept(json))) => Ok((status, json)),
            Err(error) => Err(error),
        };
        response::http_asked(&arrival, asked, allow, Detail::Full)
    }

    /// Checks the token first: without one, a caller must not learn which paths exist. Sets `allow` to the
    /// path's methods once the path is known.
    async fn ask(
        &self,
        arrival: &RequestMeta,
        head: &Parts,
        body: Body,
        allow: &mut &'static str,
    ) -> Result<(StatusCode, EventsAnswer), Error> {
        let snapshot = self.gateway.snapshots.current();
        let (operator, reader) = self.let_in(arrival, &snapshot, head).await?;
        let (method, path, reader) = (&head.method, head.uri.path(), reader.as_deref());
        let found = find(path, method, reader).ok_or_else(nothing)?;
        match &found {
            AdminRoute::Shown(_) => {}
            AdminRoute::Registry(route) => *allow = route.allow(),
            AdminRoute::Upkeep(_) => *allow = "POST",
        }
        if !allow.split(", ").any(|allowed| allowed == method.as_str()) {
            return Err(Error::new(Code::MethodNotAllowed, format!("This path takes {allow}")));
        }
        let route = match found {
            AdminRoute::Registry(route) => route,
            AdminRoute::Shown(shown) => {
                let told = self.show(&snapshot, &shown, &operator, reader, head)?;
                return Ok((StatusCode::OK, told));
            }
            AdminRoute::Upkeep(route) => {
                self.check_administers(arrival, &operator)?;
                // Drop the snapshot: while held, it would count as a call in flight.
                drop(snapshot);
                let (status, json) = self.keep_up(route, arrival, &operator, head, body).await?;
                return Ok((status, EventsAnswer::Kept(json)));
            }
        };
        self.check_scope(arrival, &route, method, &operator)?;
        let asking = RegistryCaller { operator: &operator, tenant: reader };
        let (status, json) = self.registry(&snapshot, route, asking, head, body).await?;
        Ok((status, EventsAnswer::Kept(json)))
    }

    /// Authorizes the caller. Returns the operator, and the tenant that it is confined to, if any.
    async fn let_in(
        &self,
        arrival: &RequestMeta,
        snapshot: &ConfigSnapshot,
        head: &Parts,
    ) -> Result<(Operator, Option<Arc<str>>), Error> {
        let turned_away = |refusal| self.reject_caller(arrival, refusal);
        let local = head.extensions.get::<LocalUser>().copied();
        let operator = operator(snapshot, local, &head.headers).await.map_err(turned_away)?;
        let reader = operator.reader().map_err(turned_away)?.cloned();
        let (request_id, method, path) = (arrival.request_id, &head.method, head.uri.path());
        tracing::debug!(operator = %operator.author(), %request_id, %method, path, "an operator asks");
        Ok((operator, reader))
    }

    fn reject_caller(&self, arrival: &RequestMeta, refusal: AuthRefusal) -> Error {
        self.gateway.telemetry.record_auth_failure(Port::Admin, arrival.request_id, &refusal);
        Error::from(refusal)
    }

    /// Checks that `operator`'s scope permits `method` on `route`.
    fn check_scope(
        &self,
        arrival: &RequestMeta,
        route: &RegistryRoute,
        method: &Method,
        operator: &Operator,
    ) -> Result<(), Error> {
        if route.is_administration(method) { self.check_administers(arrival, operator) } else { Ok(()) }
    }

    fn check_administers(&self, arrival: &RequestMeta, operator: &Operator) -> Result<(), Error> {
        operator.administers().map_err(|refusal| self.reject_caller(arrival, refusal))
    }

    fn follows<'a>(
        &'a self,
        head: &'a Parts,
        operator: &'a Operator,
        reader: Option<&'a str>,
    ) -> events::EventsRequest<'a> {
        events::EventsRequest { gateway: &self.gateway, head, operator, reader, ended: &self.ended }
    }

    /// Answers a request that only shows something.
    fn show(
        &self,
        snapshot: &ConfigSnapshot,
        shown: &ReadRoute,
        operator: &Operator,
        reader: Option<&str>,
        head: &Parts,
    ) -> Result<EventsAnswer, Error> {
        match shown {
            ReadRoute::Status => Ok(json(&self.overview.status())),
            ReadRoute::Events => events::answer(self.follows(head, operator, reader)),
            ReadRoute::Plan(tenant) => Ok(json(&plan_of(snapshot, reader, tenant, || site(&head.uri))?)),
            ReadRoute::Explain(tenant) => match explain::question(&head.uri, tenant)? {
                explain::Question::Call(question) => Ok(json(&explained(snapshot, reader, &question))),
                explain::Question::Llm => Ok(json(&explained_llm(snapshot, reader, tenant))),
            },
        }
    }

    fn plugin(&self, plugin: &ActivePlugin) -> plugin::ProcessPluginView {
        plugin.view(|kind| self.gateway.telemetry.totals(plugin.name(), kind))
    }
}

/// The plans of `tenant` at `site`, or at all points and hooks. `reader` is the tenant that the caller is confined
/// to, if any.
fn plan_of<'a>(
    snapshot: &'a ConfigSnapshot,
    reader: Option<&str>,
    tenant: &'a str,
    site: impl FnOnce() -> Result<Option<CallSite>, Error>,
) -> Result<plan::PlanView<'a>, Error> {
    let table = &snapshot.invoker.routes().table;
    match table.tenant(tenant) {
        TenantRoute::Known(plans) => {
            let (bypasses, is_operator) = (&snapshot.config.bypasses, reader.is_none());
            Ok(plan::view(tenant, table.revision(), plans, bypasses, is_operator, site()?.as_ref()))
        }
        TenantRoute::Disabled => Err(Error::new(Code::NotFound, "The tenant is disabled: it has no plan")),
        TenantRoute::Unknown => Err(nothing()),
    }
}

/// Explains a call. `reader` is the tenant that the caller is confined to, if any.
fn explained(snapshot: &ConfigSnapshot, reader: Option<&str>, question: &ExplainQuery) -> Explanation {
    let ConfigSnapshot { config, invoker, .. } = snapshot;
    let said = invoke::explain::explain(config, &invoker.routes().table, true, question);
    if reader.is_some() { explain::for_tenant(said) } else { said }
}

/// Explains what the LLM proxy does for `tenant`. `reader` is the tenant that the caller is confined to, if any.
fn explained_llm(snapshot: &ConfigSnapshot, reader: Option<&str>, tenant: &str) -> LlmExplanation {
    let ConfigSnapshot { config, invoker, llm, .. } = snapshot;
    let routes = llm.as_ref().map(|llm| &llm.routes);
    let mut said = invoke::explain::explain_llm(config, &invoker.routes().table, routes, true, tenant);
    if reader.is_some() {
        said.tenant.hint = None;
    }
    said
}

/// Identifies the caller: by the admin socket, or else by the token.
async fn operator(
    snapshot: &ConfigSnapshot,
    local: Option<LocalUser>,
    headers: &HeaderMap,
) -> Result<Operator, AuthRefusal> {
    match local {
        Some(user) => Ok(Operator::Local { uid: user.uid }),
        None => snapshot.auth.authenticate_at(Port::Admin, headers).await.map(Operator::Token),
    }
}

/// Resolves a path. Returns `None` if it doesn't exist, or if a caller confined to `reader` must not know
/// of it.
fn find(path: &str, method: &Method, reader: Option<&str>) -> Option<AdminRoute> {
    let parts = path.strip_prefix(PATH_PREFIX)?.split('/').map(|part| percent_decode_str(part).decode_utf8());
    let parts: Vec<_> = parts.collect::<Result<_, _>>().ok()?;
    let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
    let found = match *parts.as_slice() {
        ["events"] => AdminRoute::Shown(ReadRoute::Events),
        ["status"] => AdminRoute::Shown(ReadRoute::Status),
        ["tenants", id, "plan"] => AdminRoute::Shown(ReadRoute::Plan(id.to_owned())),
        ["tenants", id, "explain"] => AdminRoute::Shown(ReadRoute::Explain(id.to_owned())),
        ref parts => match process_ops::routes::ProcessRoute::find(parts) {
            Some(route) => AdminRoute::Upkeep(route),
            None => AdminRoute::Registry(RegistryRoute::find(parts)?),
        },
    };
    found.is_for(reader, method).then_some(found)
}

impl AdminRoute {
    /// Whether a caller confined to `reader` (`None`: unconfined) may know of this route and use `method`
    /// on it.
    fn is_for(&self, reader: Option<&str>, method: &Method) -> bool {
        match self {
            AdminRoute::Shown(ReadRoute::Events) => true,
            AdminRoute::Shown(ReadRoute::Status) => reader.is_none(),
            AdminRoute::Shown(ReadRoute::Plan(id) | ReadRoute::Explain(id)) => {
                is_tenant_id(id) && reader.is_none_or(|own| id == own)
            }
            AdminRoute::Upkeep(_) => reader.is_none(),
            AdminRoute::Registry(route) => reader.is_none_or(|own| route.is_for(own, method)),
        }
    }
}

/// One answer for a missing thing and for a hidden one, so that a caller can't tell them apart.
fn nothing() -> Error {
    Error::new(Code::NotFound, "There is nothing here that the token may see")
}

/// Reads `?point=NAME` or `?hook=NAME`; `None` means all points and hooks.
fn site(uri: &Uri) -> Result<Option<CallSite>, Error> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(None) };
    let point = query.strip_prefix("point=").and_then(Point::from_name).map(CallSite::Point);
    let hook = query.strip_prefix("hook=").and_then(|name| HookName::new(name).ok()).map(CallSite::Hook);
    let names = Point::ALL.map(Point::as_str).join(", ");
    point.or(hook).map(Some).ok_or_else(|| {
        let detail =
            format!("The query must be `point=` and one of {names}, or `hook=` and the name of a hook");
        Error::new(Code::PayloadInvalid, detail)
    })
}

fn json(value: &impl Serialize) -> EventsAnswer {
    EventsAnswer::Kept(bytes(value))
}

fn bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("names, numbers and lists of them are JSON").into()
}
