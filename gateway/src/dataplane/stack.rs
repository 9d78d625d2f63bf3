//! The layers that answer a request on the data port, as lists, the same for HTTP and gRPC. A request goes
//! down the lists, and its answer comes back up. A layer that rejects a request answers it there.
//!
//! The compiler enforces the order of the stages: each takes the form of a call that the one above it gives
//! ([`super::call`]). All layers of a call but the first are types without fields, so cloning a service is
//! free. The futures of all layers are one value: nothing is boxed.
//!
//! Two things are not layer types. Routing is a function between the two lists, because everything below it
//! is generic over the kind of call. And `record` is a function over the service below it, for the reason given in
//! its file.

use std::{convert::Infallible, sync::Arc};

use axum::body::Body;
use http::{Request, Response};
use tower::{Service, ServiceBuilder, ServiceExt, layer::layer_fn, service_fn};

use crate::{
    dataplane::{
        abort::AbortLayer,
        call::Gateway,
        catch_panic::CatchPanicLayer,
        grpc::GrpcRouter,
        http::router,
        protocol::{Protocol, ProtocolLayer},
        record::record,
        server_span::ServerSpanLayer,
        stage::stage,
        stages::{
            admit, admit_to_tenant, authenticate, build_context, decode, limit_time, read_headers,
            receive_body, run_chain,
        },
    },
    edge::{common_services::CommonServices, header::is_grpc},
    invoke::AgentCall,
};

/// Answers every request.
pub trait HttpService:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> HttpService for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Answers the requests of the data port.
pub fn port(gateway: &Arc<Gateway>, common: CommonServices) -> impl HttpService {
    let http = router(Arc::clone(gateway));
    let grpc = Arc::new(GrpcRouter::new(gateway, common));
    ServiceBuilder::new()
        // First, so that the span and the metric cover everything, even requests that aren't calls.
        .layer(ServerSpanLayer::new(gateway.telemetry.clone()))
        // Last: finds the extension point by the path; `call` answers from there on.
        .service(service_fn(move |request: Request<Body>| {
            let (http, grpc) = (http.clone(), Arc::clone(&grpc));
            async move {
                match is_grpc(request.headers()) {
                    true => grpc.answer(request).await,
                    false => http.oneshot(request).await,
                }
            }
        }))
}

/// Answers calls of the kind `P` over the protocol `C`.
pub(super) fn call<P: AgentCall, C: Protocol<P>>(gateway: &Arc<Gateway>) -> impl HttpService + use<P, C> {
    ServiceBuilder::new()
        // Outermost: every result, including errors of any layer below, becomes an answer of the protocol
        // here. A request of another form isn't a call and leaves no record.
        .layer(ProtocolLayer::<P, C>::new(Arc::clone(gateway)))
        // Before everything that can fail, so that each call has one record, however it ends. It also takes
        // the snapshot, so all layers below see the same configuration.
        .layer(layer_fn(record::<P, _>))
        // Below the record, which should say DRAINING; above everything that waits.
        .layer(AbortLayer)
        // Below the record, which should say INTERNAL; above everything that can panic.
        .layer(CatchPanicLayer)
        // Before the token, so that a loop ends at the least cost.
        .layer(stage(read_headers))
        // Before any permit and the body: a caller without a valid token uses up none of the gateway's
        // limits.
        .layer(stage(authenticate))
        // After the token, so that callers without one take no permit; before the tenant's, since it protects all tenants.
        .layer(stage(admit))
        // After the token, which names the tenant; before the body, so that a call over the limit costs no memory.
        .layer(stage(admit_to_tenant))
        // Before the body, which must arrive within the call's time.
        .layer(stage(limit_time))
        // After both admissions: it takes memory, which counts against the tenant's share.
        .layer(stage(receive_body::<P, C>))
        // After the whole body; before the chain, which gets valid payloads only.
        .layer(stage(decode::<P, C>))
        // Last before the chain: it combines the token, the headers and the body.
        .layer(stage(build_context::<P>))
        .service(service_fn(run_chain::<P>))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dataplane::{grpc::GrpcProtocol, http::JsonProtocol},
        invoke::BeforeToolCall,
    };

    const MAX_FUTURE_BYTES: usize = 2 << 10;

    fn size_of_service<S>(_: impl Fn(&Arc<Gateway>) -> S) -> usize {
        size_of::<S>()
    }

    #[test]
    fn the_service_of_a_point_is_one_pointer_however_many_layers_it_has() {
        let json = size_of_service(call::<BeforeToolCall, JsonProtocol>);
        let grpc = size_of_service(call::<BeforeToolCall, GrpcProtocol>);
        assert_eq!([json, grpc], [size_of::<Arc<Gateway>>(); 2]);
    }

    fn size_of_future<S: HttpService>(_: impl Fn(&Arc<Gateway>) -> S) -> usize {
        size_of::<S::Future>()
    }

    /// It is moved into a box once, and each poll goes through it.
    #[test]
    fn the_future_of_a_call_stays_small() {
        let json = size_of_future(call::<BeforeToolCall, JsonProtocol>);
        let grpc = size_of_future(call::<BeforeToolCall, GrpcProtocol>);
        assert!(json.max(grpc) <= MAX_FUTURE_BYTES, "{json} bytes over HTTP, {grpc} over gRPC");
    }
}
