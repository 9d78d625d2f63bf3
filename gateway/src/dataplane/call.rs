//! The shared state of calls, and the forms of one call on its way through [`super::stack`]. Each stage takes
//! one form and gives the next, so that a wrong order doesn't compile. The forms borrow the results that
//! outlive the call, however it ends; `record` owns them.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Detail,
    core::context::{CallContext, Identity},
    edge::{
        admission::{Admission, CallPermits, MemoryPermit},
        request_meta::{CallHeaders, RequestMeta},
    },
    invoke::{AgentCall, RequestParts, StepReport},
    records::invocation::CallFacts,
    routing::TenantPlans,
    snapshot::{ConfigSnapshot, SnapshotCell},
    telemetry::Telemetry,
};

/// The state that every call needs; one per process.
pub struct Gateway {
    /// The configuration that calls use, with notifications of changes.
    pub snapshots: Arc<SnapshotCell>,
    /// Counts the calls in flight.
    pub admission: Admission,
    /// Records the outcomes of calls.
    pub telemetry: Telemetry,
    /// Cancelled when the remaining calls are given up at the end of a drain.
    pub abort: CancellationToken,
}

impl Gateway {
    /// A gateway that serves with the current snapshot of `snapshots`.
    pub fn new(snapshots: Arc<SnapshotCell>, telemetry: Telemetry, abort: CancellationToken) -> Self {
        Gateway { snapshots, admission: Admission::default(), telemetry, abort }
    }
}

/// A request to an extension point or a hook, of the right method and content type.
pub(super) struct PointRequest {
    pub(super) gateway: Arc<Gateway>,
    pub(super) headers: HeaderMap,
    /// The hook that the path names.
    pub(super) hook: Option<Box<str>>,
    pub(super) body: Body,
}

/// The state that every stage of a call may use.
pub(super) struct CallScope<'a> {
    pub(super) gateway: &'a Gateway,
    /// The configuration of the whole call.
    pub(super) snapshot: &'a ConfigSnapshot,
    pub(super) meta: &'a RequestMeta,
    /// The hook that the path names.
    pub(super) hook: Option<&'a str>,
    /// What the record of the call will say.
    pub(super) facts: &'a mut CallFacts,
}

/// A call of which nothing has been read yet.
pub(super) struct ArrivedCall<'a> {
    pub(super) scope: CallScope<'a>,
    /// How much detail its answer has.
    pub(super) detail: &'a mut Detail,
    /// Its permits, which outlive the call until its answer is written.
    pub(super) permits: &'a mut CallPermits,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Body,
}

/// A call whose headers are valid.
pub(super) struct ParsedCall<'a> {
    pub(super) arrived: ArrivedCall<'a>,
    pub(super) said: CallHeaders,
}

/// A call whose token is valid at an extension point.
pub(super) struct AuthenticatedCall<'a> {
    pub(super) scope: CallScope<'a>,
    pub(super) detail: &'a mut Detail,
    pub(super) permits: &'a mut CallPermits,
    pub(super) body: Body,
    pub(super) said: CallHeaders,
    pub(super) identity: Arc<Identity>,
}

/// A call with a permit among all calls.
pub(super) struct AdmittedCall<'a>(pub(super) AuthenticatedCall<'a>);

/// A call with a permit among the calls of its tenant.
pub(super) struct TenantCall<'a> {
    pub(super) scope: CallScope<'a>,
    /// Takes no memory yet.
    pub(super) memory: &'a mut MemoryPermit,
    pub(super) body: Body,
    pub(super) said: CallHeaders,
    pub(super) identity: Arc<Identity>,
    pub(super) tenant: &'a TenantPlans,
}

/// A call with a time limit.
pub(super) struct TimedCall<'a> {
    pub(super) call: TenantCall<'a>,
    /// When the call's time is over.
    pub(super) end: Instant,
}

/// A call with its complete body.
pub(super) struct ReceivedCall<'a> {
    pub(super) scope: CallScope<'a>,
    pub(super) said: CallHeaders,
    pub(super) identity: Arc<Identity>,
    pub(super) tenant: &'a TenantPlans,
    pub(super) message: Bytes,
}

/// A call whose body is a valid message.
pub(super) struct DecodedCall<'a, P: AgentCall> {
    pub(super) scope: CallScope<'a>,
    pub(super) said: CallHeaders,
    pub(super) identity: Arc<Identity>,
    pub(super) tenant: &'a TenantPlans,
    pub(super) request: RequestParts<P::Payload>,
}

/// A call that is ready for its tenant's chain.
pub(super) struct ChainCall<'a, P: AgentCall> {
    pub(super) snapshot: &'a ConfigSnapshot,
    pub(super) tenant: &'a TenantPlans,
    pub(super) ctx: &'a CallContext,
    pub(super) payload: P::Payload,
    /// The chain that the agent expects.
    pub(super) expected_digest: Option<String>,
    /// The steps of a chain that ended early.
    pub(super) broken_off: &'a mut Vec<StepReport>,
}
