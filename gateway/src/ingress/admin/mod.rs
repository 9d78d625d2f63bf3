//! The admin port: how the gateway, its plugins and a tenant's chains are, for operators (docs/status.md). Read-only,
//! HTTP, a token for everything, but for whom the admin socket let in. Nothing here passes a chain, asks a plugin, or counts as a call under way: it shows
//! what is known.
//!
//! A token that names a tenant sees that tenant's plan, explained too, and nothing else, as if the rest did not exist:
//! other tenants and plugins, with their addresses, are the operator's. No configuration is ever shown, only digests of
//! it and names of its keys: somebody may have written a secret into it.

mod explain;
mod plan;
mod plugin;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, Uri, request::Parts};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use self::plugin::Registered;
use super::{
    answer,
    arrival::Arrival,
    call::{Gateway, InForce},
    local::LocalUser,
    overview::Overview,
};
use crate::{
    auth::{Operator, Port, Refusal, is_tenant_id},
    config::Detail,
    error::{Code, Error},
    invoke,
    point::Point,
    registry::operations::Operations,
    routing::TenantRoute,
};

/// What every path begins with.
const PREFIX: &str = "/admin/v1/";

/// What the admin port shows.
pub struct Admin {
    gateway: Arc<Gateway>,
    overview: Arc<Overview>,
    /// None: the file alone says what is in force.
    operations: Option<Operations>,
}

/// What a path stands for.
enum Shown {
    Status,
    Plugins,
    Plugin(Registered),
    Plan(String),
    Explain(String),
}

impl Admin {
    /// The port that shows what `overview` looks at, its plugins one by one, and the registry.
    pub fn new(overview: Arc<Overview>, operations: Option<Operations>) -> Self {
        Admin { gateway: Arc::clone(&overview.gateway), overview, operations }
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let arrival = Arrival::now();
        let (head, _) = request.into_parts();
        answer::http_question(&arrival, self.ask(&arrival, &head).await, Detail::Full)
    }

    /// The token comes first: without one, nobody learns which paths there are.
    async fn ask(&self, arrival: &Arrival, head: &Parts) -> Result<Bytes, Error> {
        let turned_away = |refusal: Refusal| {
            self.gateway.telemetry.turned_away(Port::Admin, arrival.request_id, &refusal);
            Error::from(refusal)
        };
        let in_force = self.gateway.in_force();
        let operator = operator(&in_force, head).await.map_err(turned_away)?;
        let reader = operator.reader().map_err(turned_away)?;
        let (request_id, method, path) = (arrival.request_id, &head.method, head.uri.path());
        tracing::debug!(operator = %operator.author(), %request_id, %method, path, "an operator asks");
        let reader = reader.map(|tenant| &**tenant);
        let shown = find(&in_force, head.uri.path(), reader).ok_or_else(nothing)?;
        if head.method != Method::GET {
            return Err(Error::new(Code::MethodNotAllowed, "This path takes GET"));
        }
        match shown {
            Shown::Status => Ok(json(&self.overview.status())),
            Shown::Plugins => {
                let plugins = Registered::all(&in_force);
                let plugins: Vec<_> = plugins.iter().map(|plugin| self.plugin(plugin)).collect();
                Ok(json(&Plugins { plugins }))
            }
            Shown::Plugin(plugin) => Ok(json(&self.plugin(&plugin))),
            Shown::Plan(tenant) => {
                let table = &in_force.invoker.routes().table;
                match table.tenant(&tenant) {
                    TenantRoute::Known(plans) => {
                        Ok(json(&plan::view(&tenant, table.revision(), plans, point(&head.uri)?)))
                    }
                    TenantRoute::Disabled => {
                        Err(Error::new(Code::NotFound, "The tenant is switched off: it has no plan"))
                    }
                    TenantRoute::Unknown => Err(nothing()),
                }
            }
            Shown::Explain(tenant) => {
                let question = explain::question(&head.uri, &tenant)?;
                let InForce { config, invoker, .. } = &*in_force;
                let said = invoke::explain::explain(config, &invoker.routes().table, true, &question);
                Ok(json(&if reader.is_some() { explain::for_tenant(said) } else { said }))
            }
        }
    }

    fn plugin(&self, plugin: &Registered) -> plugin::View {
        plugin.view(|point| self.gateway.telemetry.totals(plugin.name(), point))
    }
}

/// Who asks: whom the admin socket let in, else whoever the token says.
async fn operator(in_force: &InForce, head: &Parts) -> Result<Operator, Refusal> {
    match head.extensions.get::<LocalUser>() {
        Some(user) => Ok(Operator::Local { uid: user.uid }),
        None => in_force.auth.authenticate_at(Port::Admin, &head.headers).await.map(Operator::Token),
    }
}

/// What `path` stands for; none where there is nothing that `reader` (none: everybody's) may see.
fn find(in_force: &InForce, path: &str, reader: Option<&str>) -> Option<Shown> {
    let parts = path.strip_prefix(PREFIX)?.split('/').map(|part| percent_decode_str(part).decode_utf8());
    let parts: Vec<_> = parts.collect::<Result<_, _>>().ok()?;
    let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
    match (parts.as_slice(), reader) {
        (["tenants", id, "plan"], None) if is_tenant_id(id) => Some(Shown::Plan((*id).to_owned())),
        (["tenants", id, "plan"], Some(own)) if *id == own => Some(Shown::Plan((*id).to_owned())),
        (["tenants", id, "explain"], None) if is_tenant_id(id) => Some(Shown::Explain((*id).to_owned())),
        (["tenants", id, "explain"], Some(own)) if *id == own => Some(Shown::Explain((*id).to_owned())),
        (_, Some(_)) => None,
        (["status"], None) => Some(Shown::Status),
        (["plugins"], None) => Some(Shown::Plugins),
        (["plugins", name], None) => {
            let mut plugins = Registered::all(in_force).into_iter();
            plugins.find(|plugin| plugin.name() == *name).map(Shown::Plugin)
        }
        _ => None,
    }
}

#[derive(Serialize)]
struct Plugins {
    plugins: Vec<plugin::View>,
}

/// The same for what isn't there and for what is not the reader's to see.
fn nothing() -> Error {
    Error::new(Code::NotFound, "There is nothing here that you may see")
}

/// `?point=NAME`; none: all of them.
fn point(uri: &Uri) -> Result<Option<Point>, Error> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(None) };
    let point = query.strip_prefix("point=").and_then(Point::named);
    let names = Point::ALL.map(Point::as_str).join(", ");
    point.map(Some).ok_or_else(|| {
        Error::new(Code::PayloadInvalid, format!("The query must be `point=` and one of {names}"))
    })
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("names, numbers and lists of them are JSON").into()
}
