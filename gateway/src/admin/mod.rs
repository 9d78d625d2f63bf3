//! The admin port: how the gateway, its plugins and a tenant's chains are, for operators (docs/status.md), and the registry,
//! which they write (docs/registry.md). HTTP here, the same over gRPC in `grpc`; a token for everything, but for whom the
//! admin socket let in. Nothing here passes a chain or counts as a call under way. It shows what is known and asks no
//! plugin, but for `upkeep`, which has them described again and tried out.
//!
//! A token that names a tenant sees that tenant, its plan, explained too, the bindings for it and its calls' events, and
//! nothing else, as if the rest did not exist: other tenants and plugins, with their addresses, are the operator's. Of
//! plugin-level config only references are shown, texts and numbers never: somebody may have written a secret into it.

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
    admin::process_ops::{Ask, Upkeep},
    auth::{AuthRefusal, Operator, Port, is_tenant_id},
    config::Detail,
    core::{
        error::{Code, Error},
        point::Point,
    },
    dataplane::call::Gateway,
    edge::{request_meta::RequestMeta, response},
    invoke::{
        self,
        explain::{ExplainQuery, Explanation},
    },
    net::unix_listener::LocalUser,
    ops::status::StatusSource,
    registry::operations::Operations,
    routing::TenantRoute,
    snapshot::InForce,
};

/// What every path begins with.
const PATH_PREFIX: &str = "/admin/v1/";

/// What the admin port shows.
pub struct Admin {
    gateway: Arc<Gateway>,
    overview: Arc<StatusSource>,
    operations: Arc<Operations>,
    upkeep: Upkeep,
    writes: WriteTracker,
    /// Cancelled when everything is over, and with it what goes on.
    ended: CancellationToken,
}

/// What a path stands for.
enum ReadRoute {
    Status,
    Events,
    Plan(String),
    Explain(String),
}

/// The same, or a part of the registry.
enum AdminRoute {
    Shown(ReadRoute),
    Registry(RegistryRoute),
    Upkeep(process_ops::routes::ProcessRoute),
}

impl Admin {
    /// The port that shows what `overview` looks at, its plugins one by one, what happens until `ended`, and the registry.
    /// What is asked of the process itself goes to `asks`, and `writes` knows what is being written.
    pub fn new(
        overview: Arc<StatusSource>,
        operations: Operations,
        asks: mpsc::Sender<Ask>,
        writes: WriteTracker,
        ended: CancellationToken,
    ) -> Self {
        let (gateway, operations) = (Arc::clone(&overview.gateway), Arc::new(operations));
        let upkeep = Upkeep::new(Arc::clone(&gateway), Arc::clone(&operations), asks);
        Admin { gateway, overview, operations, upkeep, writes, ended }
    }

    /// Answers one request.
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

    /// The token comes first: without one, nobody learns which paths there are. `allow` says what the path takes, once
    /// that is known.
    async fn ask(
        &self,
        arrival: &RequestMeta,
        head: &Parts,
        body: Body,
        allow: &mut &'static str,
    ) -> Result<(StatusCode, EventsAnswer), Error> {
        let in_force = self.gateway.snapshots.in_force();
        let (operator, reader) = self.let_in(arrival, &in_force, head).await?;
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
                let told = self.show(&in_force, &shown, &operator, reader, head)?;
                return Ok((StatusCode::OK, told));
            }
            AdminRoute::Upkeep(route) => {
                self.check_administers(arrival, &operator)?;
                // Kept, it would be taken for a call under way.
                drop(in_force);
                let (status, json) = self.keep_up(route, arrival, &operator, head, body).await?;
                return Ok((status, EventsAnswer::Kept(json)));
            }
        };
        self.check_scope(arrival, &route, method, &operator)?;
        let asking = RegistryCaller { operator: &operator, tenant: reader };
        let (status, json) = self.registry(&in_force, route, asking, head, body).await?;
        Ok((status, EventsAnswer::Kept(json)))
    }

    /// Who asks, and whom he is confined to, if he may see anything at all.
    async fn let_in(
        &self,
        arrival: &RequestMeta,
        in_force: &InForce,
        head: &Parts,
    ) -> Result<(Operator, Option<Arc<str>>), Error> {
        let turned_away = |refusal| self.reject_caller(arrival, refusal);
        let local = head.extensions.get::<LocalUser>().copied();
        let operator = operator(in_force, local, &head.headers).await.map_err(turned_away)?;
        let reader = operator.reader().map_err(turned_away)?.cloned();
        let (request_id, method, path) = (arrival.request_id, &head.method, head.uri.path());
        tracing::debug!(operator = %operator.author(), %request_id, %method, path, "an operator asks");
        Ok((operator, reader))
    }

    fn reject_caller(&self, arrival: &RequestMeta, refusal: AuthRefusal) -> Error {
        self.gateway.telemetry.record_auth_failure(Port::Admin, arrival.request_id, &refusal);
        Error::from(refusal)
    }

    /// Whether `operator` may do with `route` what `method` stands for.
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

    /// Who asks for events.
    fn follows<'a>(
        &'a self,
        head: &'a Parts,
        operator: &'a Operator,
        reader: Option<&'a str>,
    ) -> events::EventsRequest<'a> {
        events::EventsRequest { gateway: &self.gateway, head, operator, reader, ended: &self.ended }
    }

    /// How things are.
    fn show(
        &self,
        in_force: &InForce,
        shown: &ReadRoute,
        operator: &Operator,
        reader: Option<&str>,
        head: &Parts,
    ) -> Result<EventsAnswer, Error> {
        match shown {
            ReadRoute::Status => Ok(json(&self.overview.status())),
            ReadRoute::Events => events::answer(self.follows(head, operator, reader)),
            ReadRoute::Plan(tenant) => Ok(json(&plan_of(in_force, reader, tenant, || point(&head.uri))?)),
            ReadRoute::Explain(tenant) => {
                let question = explain::question(&head.uri, tenant)?;
                Ok(json(&explained(in_force, reader, &question)))
            }
        }
    }

    fn plugin(&self, plugin: &ActivePlugin) -> plugin::ProcessPluginView {
        plugin.view(|point| self.gateway.telemetry.totals(plugin.name(), point))
    }
}

/// The plans of `tenant` at `point`, or at all of them, for `reader` (none: for whoever may see everything).
fn plan_of<'a>(
    in_force: &'a InForce,
    reader: Option<&str>,
    tenant: &'a str,
    point: impl FnOnce() -> Result<Option<Point>, Error>,
) -> Result<plan::PlanView<'a>, Error> {
    let table = &in_force.invoker.routes().table;
    match table.tenant(tenant) {
        TenantRoute::Known(plans) => {
            let (bypasses, is_operator) = (&in_force.config.bypasses, reader.is_none());
            Ok(plan::view(tenant, table.revision(), plans, bypasses, is_operator, point()?))
        }
        TenantRoute::Disabled => Err(Error::new(Code::NotFound, "The tenant is disabled: it has no plan")),
        TenantRoute::Unknown => Err(nothing()),
    }
}

/// The answer to `question` for `reader` (none: for whoever may see everything).
fn explained(in_force: &InForce, reader: Option<&str>, question: &ExplainQuery) -> Explanation {
    let InForce { config, invoker, .. } = in_force;
    let said = invoke::explain::explain(config, &invoker.routes().table, true, question);
    if reader.is_some() { explain::for_tenant(said) } else { said }
}

/// Who asks: whom the admin socket let in, else whoever the token says.
async fn operator(
    in_force: &InForce,
    local: Option<LocalUser>,
    headers: &HeaderMap,
) -> Result<Operator, AuthRefusal> {
    match local {
        Some(user) => Ok(Operator::Local { uid: user.uid }),
        None => in_force.auth.authenticate_at(Port::Admin, headers).await.map(Operator::Token),
    }
}

/// What `path` stands for; none where there is nothing that `reader` (none: everybody's) may see.
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
    /// Whether `reader` (none: everybody's) may learn that there is such a thing, and do with it what `method` stands for.
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

/// The same for what isn't there and for what is not the reader's to see.
fn nothing() -> Error {
    Error::new(Code::NotFound, "There is nothing here that the token may see")
}

/// `?point=NAME`; none: all of them.
fn point(uri: &Uri) -> Result<Option<Point>, Error> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(None) };
    let point = query.strip_prefix("point=").and_then(Point::from_name);
    let names = Point::ALL.map(Point::as_str).join(", ");
    point.map(Some).ok_or_else(|| {
        Error::new(Code::PayloadInvalid, format!("The query must be `point=` and one of {names}"))
    })
}

fn json(value: &impl Serialize) -> EventsAnswer {
    EventsAnswer::Kept(bytes(value))
}

fn bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("names, numbers and lists of them are JSON").into()
}
