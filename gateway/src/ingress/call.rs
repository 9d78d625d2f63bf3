//! The way of one call, the same over HTTP and gRPC: who calls, may it come in, what does it say, what do the
//! plugins say. How it is decoded and how the answer is written differ; those are `http`, `grpc` and `answer`.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt;
use hookgate_proto::gateway::v1::RequestContext;
use http::HeaderMap;
use http_body::Body;
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    admission::{Admission, Place, Room, TenantPlace},
    answer::BlockStatuses,
    applied::Applied,
    arrival::{Arrival, Said},
    body,
};
use crate::{
    auth::{Authenticator, Refusal},
    config::{Config, Detail},
    context::{CallContext, Identity},
    error::{Code, Error, Violation},
    invoke::{Ended, ExtensionPoint, Invoker},
    routing::{RouteTable, TenantPlans, TenantRoute},
    telemetry::{Facts, Telemetry},
    upstream::PluginClient,
};

/// What every call needs; one per process.
pub struct Gateway {
    in_force: ArcSwap<InForce>,
    /// Of the table in force.
    revision: watch::Sender<u64>,
    applied: ArcSwap<Applied>,
    /// Cancelled when no other revision is put in force any more.
    settled: CancellationToken,
    /// Plugins' clients that no call is given any more, as long as anybody holds them.
    leaving: Mutex<Vec<Weak<PluginClient>>>,
    /// Counts the calls under way.
    pub admission: Admission,
    /// Records what became of them.
    pub telemetry: Telemetry,
    /// Cancelled when the calls still under way are given up at the end of a drain.
    pub abort: CancellationToken,
}

/// Everything that a configuration says about a call. It is replaced as a whole, and a call takes it once and keeps it:
/// no call is made by parts of two configurations.
pub struct InForce {
    /// The configuration.
    pub config: Arc<Config>,
    /// Who may call.
    pub auth: Arc<Authenticator>,
    /// Runs the chains.
    pub invoker: Invoker,
    /// Limits at the edge.
    pub limits: Limits,
    /// Statuses of block codes.
    pub statuses: Arc<BlockStatuses>,
    /// The registry could not be read since the start: nobody knows yet who is to be served, and by which chain.
    pub is_absent: bool,
    /// Entries of plugins in whose place are those before.
    pub held_back: Vec<HeldBack>,
}

/// An entry of the registry's that its plugin refuses, which goes on by the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// Whose.
    pub plugin: String,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refused,
}

/// Why a plugin refuses its entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// As in the plugin's own state.
    pub reason: &'static str,
    /// One sentence for the operator.
    pub detail: String,
}

impl InForce {
    /// What there is for who calls.
    ///
    /// # Errors
    /// The tenant is unknown or switched off, or nobody knows.
    pub(super) fn tenant(&self, identity: &Identity) -> Result<&TenantPlans, Error> {
        if self.is_absent {
            let detail = "The gateway could not read its registry since it started";
            return Err(Error::new(Code::StoreUnavailable, detail).retry_after(Duration::from_secs(1)));
        }
        tenant(&self.invoker.routes().table, identity)
    }
}

/// Limits at the edge.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest request, in bytes.
    pub request: usize,
    /// Most calls under way.
    pub in_flight: usize,
    /// Most payload bytes of all calls under way.
    pub bytes_in_flight: usize,
    /// What answers tell a caller whose tenant is not known yet.
    pub detail: Detail,
}

/// How a request's body becomes a message.
pub struct Codec<Request> {
    /// Bytes around the message that don't count towards its size.
    pub framing: usize,
    /// Decodes and checks the whole body, of which the message is at most so many bytes.
    pub decode: fn(Bytes, usize) -> Result<Request, Error>,
}

/// A call that came to an end, with what its answer needs beside it.
pub struct Finished<P: ExtensionPoint> {
    /// When it arrived, and as what.
    pub arrival: Arrival,
    /// What came of its chain; an error when the chain was never run.
    pub result: Result<Ended<P>, Error>,
    /// How much the answer tells.
    pub detail: Detail,
    /// Statuses of block codes, as they were when it arrived.
    pub statuses: Arc<BlockStatuses>,
    /// Its places and its room, kept until the answer is written.
    pub held: Held,
}

/// What a call takes of the limits, so far.
#[derive(Debug, Default)]
pub struct Held {
    place: Option<Place>,
    of_tenant: Option<TenantPlace>,
    room: Option<Room>,
}

impl Gateway {
    /// A gateway that serves by `in_force`.
    pub fn new(in_force: InForce, telemetry: Telemetry, abort: CancellationToken) -> Self {
        let revision = watch::Sender::new(in_force.invoker.routes().table.revision());
        let (in_force, applied) =
            (ArcSwap::from_pointee(in_force), ArcSwap::from_pointee(Applied::now(Vec::new())));
        let (settled, leaving, admission) = Default::default();
        Gateway { in_force, revision, applied, settled, leaving, admission, telemetry, abort }
    }

    /// What holds at this moment.
    pub fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// Puts another configuration in force for the calls that come; gives back the one before.
    pub fn publish(&self, in_force: InForce) -> Arc<InForce> {
        let revision = in_force.invoker.routes().table.revision();
        let before = self.in_force.swap(Arc::new(in_force));
        self.revision.send_replace(revision);
        before
    }

    /// Whether the revision `revision`, or a later one, is in force within `patience`. Once none is put in force any more,
    /// nobody waits for it.
    pub async fn reaches(&self, revision: u64, patience: Duration) -> bool {
        let mut revisions = self.revision.subscribe();
        let reached = timeout(patience, revisions.wait_for(|now| *now >= revision));
        tokio::select! {
            biased;
            reached = reached => reached.is_ok_and(|reached| reached.is_ok()),
            () = self.settled.cancelled() => false,
        }
    }

    /// No other revision is put in force any more.
    pub fn settle(&self) {
        self.settled.cancel();
    }

    /// Returns when [`Self::settle`] was called.
    pub async fn settled(&self) {
        self.settled.cancelled().await;
    }

    /// Says that `client` is given no more calls.
    pub fn add_leaving(&self, client: &Arc<PluginClient>) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|client| client.strong_count() > 0);
        leaving.push(Arc::downgrade(client));
    }

    /// Those of the plugin `name` that are given no more calls.
    pub fn leaving(&self, name: &str) -> Vec<Arc<PluginClient>> {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.iter().filter_map(Weak::upgrade).filter(|client| client.name() == name).collect()
    }

    /// How the configuration file stands to what holds.
    pub fn applied(&self) -> Arc<Applied> {
        self.applied.load_full()
    }

    /// Says how it stands from now on.
    pub fn set_applied(&self, applied: Applied) {
        self.applied.store(Arc::new(applied));
    }

    /// Runs one call to its end.
    pub async fn serve<P, B>(&self, headers: &HeaderMap, body: B, codec: Codec<P::Request>) -> Finished<P>
    where
        P: ExtensionPoint,
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let arrival = Arrival::now();
        let in_force = self.in_force();
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
        invocation.ended(&result, |block| statuses.status(block).as_u16());
        Finished { arrival, result, detail, statuses, held }
    }

    #[expect(clippy::too_many_arguments, reason = "three of them are what it leaves behind, however it ends")]
    async fn run<P, B>(
        &self,
        in_force: &InForce,
        arrival: &Arrival,
        headers: &HeaderMap,
        body: B,
        codec: Codec<P::Request>,
        detail: &mut Detail,
        held: &mut Held,
        facts: &mut Facts,
    ) -> Result<Ended<P>, Error>
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
        let Facts { ctx, broken_off, .. } = facts;
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

/// Remembers why a caller was turned away: finer than the answer, which must not help to guess.
fn refused(facts: &mut Facts, refusal: Refusal) -> Error {
    facts.refused = Some(refusal.reason);
    refusal.into()
}

/// What the table has for who calls; an error where the tenant is unknown or switched off.
pub(crate) fn tenant<'a>(table: &'a RouteTable, identity: &Identity) -> Result<&'a TenantPlans, Error> {
    match table.tenant(&identity.tenant) {
        TenantRoute::Known(plans) => Ok(plans),
        TenantRoute::Disabled => Err(Error::new(Code::TenantDisabled, "The tenant is switched off")),
        TenantRoute::Unknown => {
            Err(Error::new(Code::TenantUnknown, "The tenant is not configured at this gateway"))
        }
    }
}

/// Builds the call's context from what is verified and what the request says.
fn context(
    arrival: &Arrival,
    said: Said,
    identity: &Arc<Identity>,
    mut request: RequestContext,
) -> Result<CallContext, Error> {
    if let Some(user_id) = &identity.user_id {
        if request.user_id.is_some() {
            let violation =
                Violation::new("/context/user_id", "`user_id` is taken from the token: leave it out");
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
