//! The stages of a call between its arrival and its chain: one function each, in the order of [`super::stack`].

use std::sync::Arc;

use futures::future::BoxFuture;
use hookgate_proto::gateway::v1::RequestContext;
use tokio::time::timeout_at;

use crate::{
    auth::AuthRefusal,
    config::Detail,
    core::{
        call_site::CallSite,
        context::{CallContext, Identity},
        error::{Code, Error, Violation},
    },
    dataplane::{
        call::{
            AdmittedCall, ArrivedCall, AuthenticatedCall, ChainCall, DecodedCall, ParsedCall, ReceivedCall,
            TenantCall, TimedCall,
        },
        protocol::Protocol,
    },
    edge::{
        admission::CallPermits,
        body::{self, SizeLimit},
        request_meta::{CallHeaders, RequestMeta},
    },
    invoke::{AgentCall, ChainOutcome},
    net::movable::leave_worker,
    records::invocation::CallFacts,
};

/// Reads the headers that describe the call.
///
/// # Errors
/// PAYLOAD_INVALID names the header that is wrong; LOOP.
pub(super) async fn read_headers(arrived: ArrivedCall<'_>) -> Result<ParsedCall<'_>, Error> {
    let said = arrived.scope.meta.read(arrived.headers)?;
    arrived.scope.facts.correlation_id.clone_from(&said.correlation_id);
    Ok(ParsedCall { arrived, said })
}

/// Verifies the bearer token.
///
/// # Errors
/// TOKEN_MISSING, TOKEN_INVALID, TOKEN_EXPIRED, SCOPE_MISSING; INTERNAL if the issuer's keys can't be had.
pub(super) async fn authenticate(call: ParsedCall<'_>) -> Result<AuthenticatedCall<'_>, Error> {
    let ParsedCall { arrived: ArrivedCall { scope, detail, permits, headers, body }, said } = call;
    let verified = scope.snapshot.auth.authenticate(headers).await;
    let verified = verified.map_err(|refusal| refused(scope.facts, refusal))?;
    let identity = Arc::clone(verified.invoker().map_err(|refusal| refused(scope.facts, refusal))?);
    scope.facts.identity = Some(Arc::clone(&identity));
    Ok(AuthenticatedCall { scope, detail, permits, body, said, identity })
}

/// Takes a permit among all calls.
///
/// # Errors
/// OVERLOADED.
pub(super) async fn admit(call: AuthenticatedCall<'_>) -> Result<AdmittedCall<'_>, Error> {
    let most = call.scope.snapshot.limits.in_flight;
    call.permits.of_all = Some(call.scope.gateway.admission.enter(most)?);
    Ok(AdmittedCall(call))
}

/// Finds the plans of the caller's tenant, and takes a permit among the tenant's calls.
///
/// # Errors
/// STORE_UNAVAILABLE, TENANT_UNKNOWN, TENANT_DISABLED, TENANT_LIMITED.
pub(super) async fn admit_to_tenant(AdmittedCall(call): AdmittedCall<'_>) -> Result<TenantCall<'_>, Error> {
    let AuthenticatedCall { scope, detail, permits, body, said, identity } = call;
    let tenant = scope.snapshot.tenant(&identity)?;
    *detail = tenant.detail;
    let admission = &scope.gateway.admission;
    let permit = admission.enter_tenant(&identity.tenant, tenant.in_flight, tenant.rate)?;
    let CallPermits { of_tenant, memory, .. } = permits;
    let permit = of_tenant.insert(permit);
    let memory = memory.insert(admission.tenant_room(permit, scope.snapshot.limits.bytes_in_flight));
    Ok(TenantCall { scope, memory, body, said, identity, tenant })
}

/// Sets the end of the call: the gateway's budget, or the caller's deadline if that is earlier.
pub(super) async fn limit_time(call: TenantCall<'_>) -> Result<TimedCall<'_>, Error> {
    let invoker = &call.scope.snapshot.invoker;
    let end = invoker.budget(call.scope.meta.received, call.said.deadline).end();
    Ok(TimedCall { call, end })
}

/// Receives the body.
///
/// # Errors
/// PAYLOAD_TOO_LARGE, OVERLOADED, TENANT_LIMITED, PAYLOAD_INVALID for a truncated body, BUDGET_EXHAUSTED.
pub(super) async fn receive_body<P: AgentCall, C: Protocol<P>>(
    TimedCall { call, end }: TimedCall<'_>,
) -> Result<ReceivedCall<'_>, Error> {
    let TenantCall { scope, memory, body, said, identity, tenant } = call;
    let limit = SizeLimit::with_key(scope.snapshot.limits.request, "limits.request");
    let received = timeout_at(end, body::receive(body, limit, C::FRAMING_BYTES, memory));
    let late =
        |_| Error::new(Code::BudgetExhausted, "The body was not received within the invocation's time");
    let message = received.await.map_err(late)??;
    leave_worker(&identity.tenant, message.len()).await;
    Ok(ReceivedCall { scope, said, identity, tenant, message })
}

/// Decodes the body and checks the payload.
///
/// # Errors
/// PAYLOAD_INVALID with every violation; over gRPC PAYLOAD_TOO_LARGE and CONTENT_TYPE too.
pub(super) async fn decode<P: AgentCall, C: Protocol<P>>(
    call: ReceivedCall<'_>,
) -> Result<DecodedCall<'_, P>, Error> {
    let ReceivedCall { scope, said, identity, tenant, message } = call;
    let request = P::request_parts(C::decode(message, scope.snapshot.limits.request, scope.hook)?);
    Ok(DecodedCall { scope, said, identity, tenant, request })
}

/// Builds the call's context from the verified token and the request's own statements.
///
/// # Errors
/// PAYLOAD_INVALID if both the token and the request name a user, or the request names no hook.
pub(super) async fn build_context<P: AgentCall>(call: DecodedCall<'_, P>) -> Result<ChainCall<'_, P>, Error> {
    let DecodedCall { scope, said, identity, tenant, request } = call;
    let (snapshot, facts) = (scope.snapshot, scope.facts);
    let payload = request.payload.ok_or_else(|| Error::new(Code::Internal, "an unchecked request"))?;
    let site = P::site(&payload).map_err(|error| Error::new(Code::PayloadInvalid, error.to_string()))?;
    facts.describe::<P>(&payload, &site, tenant, snapshot.invoker.routes().table.revision());
    if P::point().is_none() {
        facts.site = Some(site.clone());
    }
    let CallFacts { ctx, broken_off, .. } = facts;
    // With less detail the answer omits steps, so none are kept.
    let trace = request.trace && tenant.detail == Detail::Full;
    let takes_results = request.takes_results;
    let ctx = ctx.insert(CallContext {
        trace,
        takes_results,
        ..context(scope.meta, site, said, identity, request.context)?
    });
    let expected_digest = request.expect_plan_digest;
    Ok(ChainCall { snapshot, tenant, ctx, payload, expected_digest, broken_off })
}

/// Runs the tenant's chain. Its future is most of a call's and in a box: the layers above move theirs several times
/// before the chain begins.
///
/// # Errors
/// PLAN_CHANGED. A chain that can't decide is not an error here.
pub(super) fn run_chain<P: AgentCall>(
    call: ChainCall<'_, P>,
) -> BoxFuture<'_, Result<ChainOutcome<P>, Error>> {
    Box::pin(async move {
        let ChainCall { snapshot, tenant, ctx, payload, expected_digest, broken_off } = call;
        snapshot.invoker.run::<P>(tenant, ctx, payload, expected_digest.as_deref(), broken_off).await
    })
}

/// Records why a caller was rejected. The record is finer than the answer, which must not help an attacker to
/// guess.
fn refused(facts: &mut CallFacts, refusal: AuthRefusal) -> Error {
    facts.refused = Some(refusal.reason);
    refusal.into()
}

fn context(
    meta: &RequestMeta,
    site: CallSite,
    said: CallHeaders,
    identity: Arc<Identity>,
    mut request: RequestContext,
) -> Result<CallContext, Error> {
    if let Some(user_id) = &identity.user_id {
        if request.user_id.is_some() {
            let violation = Violation::new("/context/user_id", "`user_id` is taken from the token: omit it");
            return Err(Error::invalid(vec![violation]));
        }
        // An empty user: the issuer maps a claim to it, but this token has none.
        request.user_id = Some(user_id.clone()).filter(|id| !id.is_empty());
    }
    request.labels.extend(identity.claims.clone());
    Ok(CallContext {
        site,
        identity,
        request_id: meta.request_id,
        correlation_id: said.correlation_id,
        request,
        received: meta.received,
        deadline: said.deadline,
        depth: said.depth,
        trace: false,
        takes_results: false,
        exchange: None,
    })
}
