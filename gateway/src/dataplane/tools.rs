//! `GET /v1/tools` and `ToolService.ListTools`: the tools that the tenant's plugins provide (docs/protocol.md,
//! section 10).
//!
//! Passes no chain and calls no plugin. It counts as a call in flight and in the tenant's rate: a list may be large.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
};
use hookgate_proto::gateway::v1::{ListToolsRequest, ListToolsResponse, ListedTool};
use http::{HeaderMap, Method, Response};
use prost::Message as _;
use tokio::time::timeout_at;

use crate::{
    auth::{AuthRefusal, Port},
    config::Detail,
    core::{
        error::{Code, Error},
        point::Point,
    },
    dataplane::{call::Gateway, grpc},
    edge::{admission::CallPermits, body::SizeLimit, request_meta::RequestMeta, response},
    grpc::framing::{PREFIX_BYTES, frame},
    net::tracked_body,
    routing::{PlanTool, PlanTools, TenantPlans},
    transcode,
};

/// The path.
pub const PATH: &str = "/v1/tools";

/// Largest request message over gRPC, in bytes. It has no fields.
const MAX_REQUEST_BYTES: usize = 1 << 10;

/// Answers one request at [`PATH`].
pub async fn answer(State(gateway): State<Arc<Gateway>>, request: Request) -> Response<Body> {
    let meta = RequestMeta::now();
    let mut call = ListCall::new(&gateway);
    let listed = match *request.method() {
        Method::GET => call.run(&gateway, &meta, request.headers()).await,
        _ => Err(Error::new(Code::MethodNotAllowed, "This path takes GET")),
    };
    let mut answer =
        response::http_question(&meta, listed.map(|tools| transcode::encode(&tools)), call.detail);
    tracked_body::hold(&mut answer, call.permits);
    answer
}

/// Answers one call of `ToolService.ListTools`.
pub(super) async fn answer_grpc(gateway: &Gateway, request: Request) -> Response<Body> {
    let meta = RequestMeta::now();
    let mut call = ListCall::new(gateway);
    let (head, body) = request.into_parts();
    let listed = async {
        grpc::check(&head)?;
        let listed = call.run(gateway, &meta, &head.headers).await?;
        let end = gateway.snapshots.current().invoker.budget(meta.received, None).end();
        let body = timeout_at(end, to_bytes(body, MAX_REQUEST_BYTES + PREFIX_BYTES)).await;
        let body = body.map_err(|_| {
            Error::new(Code::BudgetExhausted, "The body was not received within the invocation's time")
        })?;
        let body =
            body.map_err(|_| Error::new(Code::PayloadTooLarge, "A request for the list has no fields"))?;
        let ListToolsRequest {} = grpc::message(&body, SizeLimit::without_key(MAX_REQUEST_BYTES))?;
        Ok(listed)
    };
    let mut answer = match listed.await {
        Ok(tools) => response::grpc_asked(&meta, Ok(frame(&tools))),
        Err(error) => response::grpc_refusal(&meta, &error, call.detail),
    };
    tracked_body::hold(&mut answer, call.permits);
    answer
}

/// One request for the list.
struct ListCall {
    detail: Detail,
    /// Kept until the answer is written.
    permits: CallPermits,
}

impl ListCall {
    fn new(gateway: &Gateway) -> Self {
        ListCall { detail: gateway.snapshots.current().limits.detail, permits: CallPermits::default() }
    }

    async fn run(
        &mut self,
        gateway: &Gateway,
        meta: &RequestMeta,
        headers: &HeaderMap,
    ) -> Result<ListToolsResponse, Error> {
        let snapshot = gateway.snapshots.current();
        let turned_away = |refusal: AuthRefusal| {
            gateway.telemetry.record_auth_failure(Port::Data, meta.request_id, &refusal);
            Error::from(refusal)
        };
        let verified = snapshot.auth.authenticate(headers).await.map_err(turned_away)?;
        let identity = verified.invoker().map_err(turned_away)?;
        self.permits.of_all = Some(gateway.admission.enter(snapshot.limits.in_flight)?);
        let tenant = snapshot.tenant(identity)?;
        self.detail = tenant.detail;
        let permit = gateway.admission.enter_tenant(&identity.tenant, tenant.in_flight, tenant.rate)?;
        let permit = self.permits.of_tenant.insert(permit);
        let room = gateway.admission.tenant_room(permit, snapshot.limits.bytes_in_flight);
        self.permits.memory.insert(room).grow(encoded_len(tenant))?;
        Ok(list(tenant, snapshot.invoker.routes().table.revision()))
    }
}

/// The tools that can be called: each has one provider.
fn callable(tenant: &TenantPlans) -> impl Iterator<Item = PlanTool<'_>> {
    let tools = tenant.plan(Point::BeforeToolCall).tools.as_deref();
    tools.into_iter().flat_map(PlanTools::iter).filter(|tool| tool.rival.is_none())
}

fn encoded_len(tenant: &TenantPlans) -> usize {
    callable(tenant).map(|PlanTool { tool, .. }| tool.encoded_len()).sum()
}

fn list(tenant: &TenantPlans, revision: u64) -> ListToolsResponse {
    let is_full = tenant.detail == Detail::Full;
    let tools = callable(tenant).map(|PlanTool { tool, step, .. }| ListedTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        annotations: tool.annotations.clone(),
        plugin: is_full.then(|| step.plugin_name.to_string()),
        binding: is_full.then(|| step.binding.to_string()),
    });
    let plan_digest = tenant.plan(Point::BeforeToolCall).digest.to_string();
    ListToolsResponse { tools: tools.collect(), plan_digest, revision }
}
