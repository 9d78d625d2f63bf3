//! The path of one call, the same over HTTP and gRPC: authenticate, admit, read and decode the body, run the chain.
//! `http` and `grpc` decode the two protocols; `edge::response` writes the answer.

use crate::edge::admission::Held;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use hookgate_proto::gateway::v1::RequestContext;
use http::HeaderMap;
use http_body::Body;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::AuthRefusal,
    config::Detail,
    core::{
        context::{CallContext, Identity},
        error::{Code, Error, Violation},
    },
    edge::{
        admission::Admission,
        body,
        request_meta::{RequestMeta, Said},
        response::InvocationResult,
    },
    invoke::{ChainOutcome, ExtensionPoint},
    records::invocation::CallFacts,
    snapshot::{InForce, SnapshotCell},
    telemetry::Telemetry,
};

/// What every call needs; one per process.
pub struct Gateway {
    /// The configuration that calls use, and who is told when it changes.
    pub snapshots: Arc<SnapshotCell>,
    /// Counts the calls under way.
    pub admission: Admission,
    /// Records what became of them.
    pub telemetry: Telemetry,
    /// Cancelled when the calls still under way are given up at the end of a drain.
    pub abort: CancellationToken,
}

/// How a request's body becomes a message.
pub struct RequestDecoder<Request> {
    /// Bytes around the message that don't count towards its size.
    pub framing: usize,
    /// Decodes and checks the whole body, of which the message is at most so many bytes.
    pub decode: fn(Bytes, usize) -> Result<Request, Error>,
}

impl Gateway {
    /// A gateway that serves by the current snapshot of `snapshots`.
    pub fn new(snapshots: Arc<SnapshotCell>, telemetry: Telemetry, abort: CancellationToken) -> Self {
        Gateway { snapshots, admission: Admission::default(), telemetry, abort }
    }

    /// Runs one call to its end.
    pub async fn serve<P, B>(
        &self,
        headers: &HeaderMap,
        body: B,
        codec: RequestDecoder<P::Request>,
    ) -> InvocationResult<P>
    where
        P: ExtensionPoint,
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let arrival = RequestMeta::now();
        let in_force = self.snapshots.in_force();
        let (mut detail, mut held) = (in_force.limits.detail, Held::default());
        let mut invocation = self.telemetry.invocation(P::POINT, arrival.request_id, arrival.received);
        let result = {
            let facts = &mut invocation.facts;
            let run =
                self.run::<P, B>(&in_force, &arrival, headers, body, codec, &mut detail, &mut held, facts);
            let run = AssertUnwindSafe(run).catch_unwind();
            tokio::select! {
                biased;
                () = self.abort.cancelled() => Err(draining()),
                // A panic is our own fault, and no reason to let the call through or to hang up on it.
                result = run => result.unwrap_or_else(|_| Err(Error::new(Code::Internal, Code::Internal.meaning()))),
            }
        };
        let statuses = Arc::clone(&in_force.statuses);
        invocation.ended(&result, |block| statuses.status(&block.plugin, &block.code).as_u16());
        InvocationResult { arrival, result, detail, statuses, held }
    }

    #[expect(clippy::too_many_arguments, reason = "three of them are what it leaves behind, however it ends")]
    async fn run<P, B>(
        &self,
        in_force: &InForce,
        arrival: &RequestMeta,
        headers: &HeaderMap,
        body: B,
        codec: RequestDecoder<P::Request>,
        detail: &mut Detail,
        held: &mut Held,
        facts: &mut CallFacts,
    ) -> Result<ChainOutcome<P>, Error>
    where
        P: ExtensionPoint,
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let said = arrival.read(headers)?;
        facts.correlation_id.clone_from(&said.correlation_id);
        let InForce { auth, invoker, limits, .. } = in_force;
        let verified = auth.authenticate(headers).await.map_err(|refusal| refused(facts, refusal))?;
        let identity = verified.invoker().map_err(|refusal| refused(facts, refusal))?;
        facts.identity = Some(Arc::clone(identity));
        held.place = Some(self.admission.enter(limits.in_flight)?);
        let table = &invoker.routes().table;
        let tenant = in_force.tenant(identity)?;
        *detail = tenant.detail;
        let place = self.admission.enter_tenant(&identity.tenant, tenant.in_flight, tenant.rate)?;
        let place = held.of_tenant.insert(place);

        let room = held.room.insert(self.admission.tenant_room(place, limits.bytes_in_flight));
        let until = invoker.budget(arrival.received, said.deadline).end();
        let received = timeout_at(until, body::receive(body, limits.request, codec.framing, room));
        let late =
            |_| Error::new(Code::BudgetExhausted, "The body was not received within the invocation's time");
        let message = received.await.map_err(late)??;
        let parts = P::request_parts((codec.decode)(message, limits.request)?);
        let payload = parts.payload.ok_or_else(|| Error::new(Code::Internal, "an unchecked request"))?;
        let subject = P::subject(&payload);
        facts.tool = subject.tool.map(str::to_owned);
        facts.call_id = subject.call_id.map(str::to_owned);
        facts.plan = Some((Arc::clone(&tenant.plan(P::POINT).digest), table.revision()));
        facts.bypassed = (!tenant.bypassed(P::POINT).is_empty()).then(|| tenant.clone());
        let CallFacts { ctx, broken_off, .. } = facts;
        // With less detail steps are left out, so that nothing is kept for them.
        let trace = parts.trace && tenant.detail == Detail::Full;
        let ctx = ctx.insert(CallContext { trace, ..context(arrival, said, identity, parts.context)? });
        let expected = parts.expect_plan_digest;
        invoker.run::<P>(tenant, ctx, payload, expected.as_deref(), broken_off).await
    }
}

fn draining() -> Error {
    Error::new(Code::Draining, "The gateway is shutting down").retry_after(Duration::from_secs(1))
}

/// Remembers why a caller was refused: finer than the answer, which must not help to guess.
fn refused(facts: &mut CallFacts, refusal: AuthRefusal) -> Error {
    facts.refused = Some(refusal.reason);
    refusal.into()
}

/// Builds the call's context from what is verified and what the request says.
fn context(
    arrival: &RequestMeta,
    said: Said,
    identity: &Arc<Identity>,
    mut request: RequestContext,
) -> Result<CallContext, Error> {
    if let Some(user_id) = &identity.user_id {
        if request.user_id.is_some() {
            let violation = Violation::new("/context/user_id", "`user_id` is taken from the token: omit it");
            return Err(Error::invalid(vec![violation]));
        }
        // Empty: the issuer maps it, and this token has none.
        request.user_id = Some(user_id.clone()).filter(|id| !id.is_empty());
    }
    request.labels.extend(identity.claims.clone());
    Ok(CallContext {
        identity: Arc::clone(identity),
        request_id: arrival.request_id,
        correlation_id: said.correlation_id,
        request,
        received: arrival.received,
        deadline: said.deadline,
        depth: said.depth,
        trace: false,
    })
}
