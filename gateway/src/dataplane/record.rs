//! Records a call: its metrics, its log line, and its outcome on the span.
//!
//! Every call must be recorded, whether it ends with a decision, an error or a panic, or its caller goes
//! away. So this layer owns what the stages below fill in, and they borrow it. Its future borrows from
//! itself, which only an `async` function can do without a box; that is why this layer is a function over
//! [`service_fn`] and not a type.

use std::{convert::Infallible, sync::Arc};

use hookgate_proto::HookName;
use tower::{Service, ServiceExt, service_fn};

use crate::{
    core::error::Error,
    dataplane::call::{ArrivedCall, CallScope, PointRequest},
    edge::{admission::CallPermits, request_meta::RequestMeta, response::InvocationResult},
    invoke::{AgentCall, ChainOutcome},
};

/// A service that runs calls, with the lifetime of their borrows.
pub(super) trait CallService<P: AgentCall>:
    for<'a> Service<ArrivedCall<'a>, Response = ChainOutcome<P>, Error = Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<P: AgentCall, S> CallService<P> for S where
    S: for<'a> Service<ArrivedCall<'a>, Response = ChainOutcome<P>, Error = Error, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Records the calls of `inner`.
pub(super) fn record<P, S>(
    inner: S,
) -> impl Service<PointRequest, Response = InvocationResult<P>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
where
    P: AgentCall,
    S: CallService<P>,
{
    service_fn(move |request| run_recorded::<P, S>(inner.clone(), request))
}

async fn run_recorded<P, S>(inner: S, request: PointRequest) -> Result<InvocationResult<P>, Infallible>
where
    P: AgentCall,
    S: CallService<P>,
{
    let PointRequest { gateway, headers, hook, body } = request;
    let meta = RequestMeta::now();
    let snapshot = gateway.snapshots.current();
    let (mut detail, mut permits) = (snapshot.limits.detail, CallPermits::default());
    // If this is dropped early, it records that the caller went away.
    let mut invocation = gateway.telemetry.invocation(P::point(), meta.request_id, meta.received);
    let result = {
        let facts = &mut invocation.facts;
        if let Some(hook) = hook.as_deref().and_then(|name| HookName::new(name).ok()) {
            facts.site = Some(hook.into());
        }
        let hook = hook.as_deref();
        let scope = CallScope { gateway: &gateway, snapshot: &snapshot, meta: &meta, hook, facts };
        let (detail, permits) = (&mut detail, &mut permits);
        inner.oneshot(ArrivedCall { scope, detail, permits, headers: &headers, body }).await
    };
    let statuses = Arc::clone(&snapshot.statuses);
    invocation.ended(&result, |block| statuses.status(&block.plugin, &block.code).as_u16());
    Ok(InvocationResult { arrival: meta, result, detail, statuses, permits })
}
