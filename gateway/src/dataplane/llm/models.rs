//! The models of the caller's tenant, in the form of the client's API. No provider is asked.

use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;

use crate::{
    auth::{AuthRefusal, Port},
    config::Detail,
    core::{api_format::ApiFormat, error::Error},
    dataplane::{
        call::Gateway,
        llm::{
            exchange::{authenticate, unknown_model},
            reply::Client,
        },
    },
    llm::Llm,
    routing::TenantPlans,
    snapshot::ConfigSnapshot,
};

/// The lists of both APIs.
#[derive(Serialize)]
#[serde(untagged)]
enum ModelList<'a> {
    OpenAi {
        object: &'static str,
        data: Vec<ModelView<'a>>,
    },
    /// All models are on one page.
    Anthropic {
        data: Vec<ModelView<'a>>,
        first_id: Option<&'a str>,
        has_more: bool,
        last_id: Option<&'a str>,
    },
}

/// A model. The providers' times aren't known here.
#[derive(Serialize)]
#[serde(untagged)]
enum ModelView<'a> {
    OpenAi { id: &'a str, object: &'static str, created: u64, owned_by: &'a str },
    Anthropic { r#type: &'static str, id: &'a str, display_name: &'a str, created_at: &'static str },
}

impl<'a> ModelView<'a> {
    fn new(api: ApiFormat, id: &'a str, upstream: &'a str) -> Self {
        match api {
            ApiFormat::Openai => ModelView::OpenAi { id, object: "model", created: 0, owned_by: upstream },
            ApiFormat::Anthropic => ModelView::Anthropic {
                r#type: "model",
                id,
                display_name: id,
                created_at: "1970-01-01T00:00:00Z",
            },
        }
    }
}

/// `GET /models`.
pub(super) async fn list(
    gateway: &Gateway,
    snapshot: &ConfigSnapshot,
    llm: &Llm,
    client: Client<'_>,
    headers: &HeaderMap,
    detail: &mut Detail,
) -> Result<Bytes, Error> {
    let tenant = tenant(gateway, snapshot, client, headers, detail).await?;
    let models = llm.routes.models(client.api, tenant.models.as_deref());
    let data = models.iter().map(|(id, upstream)| ModelView::new(client.api, id, upstream)).collect();
    Ok(json(&match client.api {
        ApiFormat::Openai => ModelList::OpenAi { object: "list", data },
        ApiFormat::Anthropic => ModelList::Anthropic {
            data,
            first_id: models.keys().next().copied(),
            has_more: false,
            last_id: models.keys().next_back().copied(),
        },
    }))
}

/// `GET /models/{model}`.
pub(super) async fn one(
    gateway: &Gateway,
    snapshot: &ConfigSnapshot,
    llm: &Llm,
    client: Client<'_>,
    (headers, model): (&HeaderMap, &str),
    detail: &mut Detail,
) -> Result<Bytes, Error> {
    let tenant = tenant(gateway, snapshot, client, headers, detail).await?;
    let upstream = llm.routes.upstream_name(client.api, model, tenant.models.as_deref());
    Ok(json(&ModelView::new(client.api, model, upstream.ok_or_else(|| unknown_model(model))?)))
}

async fn tenant<'s>(
    gateway: &Gateway,
    snapshot: &'s ConfigSnapshot,
    client: Client<'_>,
    headers: &HeaderMap,
    detail: &mut Detail,
) -> Result<&'s TenantPlans, Error> {
    let turned_away = |refusal: AuthRefusal| {
        gateway.telemetry.record_auth_failure(Port::Data, client.meta.request_id, &refusal);
        Error::from(refusal)
    };
    let verified = authenticate(&snapshot.auth, client.api, headers).await.map_err(turned_away)?;
    let tenant = snapshot.tenant(verified.invoker().map_err(turned_away)?)?;
    *detail = tenant.detail;
    Ok(tenant)
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("names and numbers are JSON").into()
}
