//! `GET /v1/whoami`: how the gateway reads a token of the data port, and which steps are in its tenant's
//! chains (docs/protocol.md, section 4). For people who wonder why a call is rejected or what it passes. It
//! needs no scope, so that it also works for a token without `hookgate:invoke`.
//!
//! It passes no chain, contacts no plugin, and doesn't count as a call in flight.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
};
use bytes::Bytes;
use hookgate_proto::HookName;
use http::{HeaderMap, Method, Response};
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    auth::{AuthRefusal, Port, VerifiedToken},
    config::Detail,
    core::{
        call_site::CallSite,
        context::Identity,
        error::{Code, Error},
        point::Point,
        step::Mode,
    },
    dataplane::call::Gateway,
    edge::{request_meta::RequestMeta, response},
    routing::{Plan, TenantPlans},
    snapshot::ConfigSnapshot,
};

/// The path.
pub const PATH: &str = "/v1/whoami";

/// Answers one request at [`PATH`].
pub async fn answer(State(gateway): State<Arc<Gateway>>, request: Request) -> Response<Body> {
    let arrival = RequestMeta::now();
    let snapshot = gateway.snapshots.current();
    let mut detail = snapshot.limits.detail;
    let asked = match *request.method() {
        Method::GET => ask(&gateway, &snapshot, &arrival, request.headers(), &mut detail).await,
        _ => Err(Error::new(Code::MethodNotAllowed, "This path takes GET")),
    };
    response::http_question(&arrival, asked, detail)
}

async fn ask(
    gateway: &Gateway,
    snapshot: &ConfigSnapshot,
    arrival: &RequestMeta,
    headers: &HeaderMap,
    detail: &mut Detail,
) -> Result<Bytes, Error> {
    let turned_away = |refusal: AuthRefusal| {
        gateway.telemetry.record_auth_failure(Port::Data, arrival.request_id, &refusal);
        Error::from(refusal)
    };
    let verified = snapshot.auth.authenticate(headers).await.map_err(turned_away)?;
    let identity = verified.caller().map_err(turned_away)?;
    let table = &snapshot.invoker.routes().table;
    let plans = snapshot.tenant(identity)?;
    *detail = plans.detail;
    let view = WhoamiView::new(&verified, identity, table.revision(), plans);
    Ok(serde_json::to_vec(&view).expect("names, numbers and lists of them are JSON").into())
}

#[derive(Serialize)]
struct WhoamiView<'a> {
    tenant: &'a str,
    operator: &'a str,
    /// The token's scopes, as far as its issuer may grant them.
    scopes: Vec<&'static str>,
    /// The token's `exp`, in RFC 3339.
    expires: String,
    issuer: &'a str,
    revision: u64,
    points: BTreeMap<Point, WhoamiChain<'a>>,
    /// The hooks with any step; absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hooks: BTreeMap<&'a HookName, WhoamiChain<'a>>,
}

#[derive(Serialize)]
struct WhoamiChain<'a> {
    plan_digest: &'a str,
    step_count: usize,
    /// Absent with `answer.detail: minimal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<WhoamiStep<'a>>>,
}

#[derive(Serialize)]
struct WhoamiStep<'a> {
    binding: &'a str,
    plugin: &'a str,
    mode: Mode,
}

impl<'a> WhoamiView<'a> {
    fn new(
        verified: &'a VerifiedToken,
        identity: &'a Identity,
        revision: u64,
        plans: &'a TenantPlans,
    ) -> Self {
        let chain = |site: CallSite| WhoamiChain::new(plans.plan_at(&site), plans.detail);
        WhoamiView {
            tenant: &identity.tenant,
            operator: &identity.operator,
            scopes: verified.scopes.names().collect(),
            expires: rfc3339(verified.expires()),
            issuer: &verified.issuer,
            revision,
            points: Point::ALL.into_iter().map(|point| (point, chain(point.into()))).collect(),
            hooks: plans.hooks().map(|hook| (hook, chain(hook.clone().into()))).collect(),
        }
    }
}

impl<'a> WhoamiChain<'a> {
    fn new(plan: &'a Plan, detail: Detail) -> Self {
        let steps = plan.steps.iter().map(|step| WhoamiStep {
            binding: &step.binding,
            plugin: &step.plugin_name,
            mode: step.mode,
        });
        WhoamiChain {
            plan_digest: &plan.digest,
            step_count: plan.steps.len(),
            steps: (detail == Detail::Full).then(|| steps.collect()),
        }
    }
}

/// Seconds since 1970 as RFC 3339. A verified token's times are at most in the year 9999.
fn rfc3339(seconds: u64) -> String {
    let at =
        i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    at.and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expiry_that_a_token_may_have_can_be_written() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(253_402_300_799), "9999-12-31T23:59:59Z");
    }
}
