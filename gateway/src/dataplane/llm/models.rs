//! The models of the caller's tenant, in the form of OpenAI's API. No provider is asked.

use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;

use crate::{
    auth::{AuthRefusal, Port},
    config::Detail,
    core::error::Error,
    dataplane::{call::Gateway, llm::exchange::unknown_model},
    edge::request_meta::RequestMeta,
    llm::Llm,
    routing::TenantPlans,
    snapshot::ConfigSnapshot,
};

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelView<'a>>,
}

#[derive(Serialize)]
struct ModelView<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'a str,
}

impl<'a> ModelView<'a> {
    fn new(id: &'a str, upstream: &'a str) -> Self {
        // The providers' times aren't known here.
        ModelView { id, object: "model", created: 0, owned_by: upstream }
    }
}

/// `GET /models`.
pub(super) async fn list(
    gateway: &Gateway,
    snapshot: &ConfigSnapshot,
    llm: &Llm,
    meta: &RequestMeta,
    headers: &HeaderMap,
    detail: &mut Detail,
) -> Result<Bytes, Error> {
    let tenant = tenant(gateway, snapshot, meta, headers, detail).await?;
    let models = llm.routes.models(tenant.models.as_deref());
    let data = models.iter().map(|(id, upstream)| ModelView::new(id, upstream)).collect();
    Ok(json(&ModelList { object: "list", data }))
}

/// `GET /models/{model}`.
pub(super) async fn one(
    gateway: &Gateway,
    snapshot: &ConfigSnapshot,
    llm: &Llm,
    meta: &RequestMeta,
    (headers, model): (&HeaderMap, &str),
    detail: &mut Detail,
) -> Result<Bytes, Error> {
    let tenant = tenant(gateway, snapshot, meta, headers, detail).await?;
    let upstream = llm.routes.upstream_name(model, tenant.models.as_deref());
    Ok(json(&ModelView::new(model, upstream.ok_or_else(|| unknown_model(model))?)))
}

async fn tenant<'s>(
    gateway: &Gateway,
    snapshot: &'s ConfigSnapshot,
    meta: &RequestMeta,
    headers: &HeaderMap,
    detail: &mut Detail,
) -> Result<&'s TenantPlans, Error> {
    let turned_away = |refusal: AuthRefusal| {
        gateway.telemetry.record_auth_failure(Port::Data, meta.request_id, &refusal);
        Error::from(refusal)
    };
    let verified = snapshot.auth.authenticate(headers).await.map_err(turned_away)?;
    let tenant = snapshot.tenant(verified.invoker().map_err(turned_away)?)?;
    *detail = tenant.detail;
    Ok(tenant)
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("names and numbers are JSON").into()
}
