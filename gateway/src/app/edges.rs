//! The handlers of the ports: gRPC or HTTP, by content type.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::{HeaderMap, Request, Response, header};
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::ServiceExt;

use crate::{
    admin::{Admin, grpc::AdminGrpc},
    dataplane::{call::Gateway, grpc::GrpcService, http as http_edge},
    edge::common_services::CommonServices,
    net::server::{Drain, RequestHandler},
    ops::{routes, status::StatusSource},
    telemetry::Telemetry,
};

/// The data port: extension points over HTTP and gRPC, health and reflection.
#[derive(Clone)]
pub(super) struct DataEdge {
    telemetry: Telemetry,
    http: Router,
    grpc: GrpcService,
}

impl DataEdge {
    pub(super) fn new(gateway: Arc<Gateway>, health: HealthServer<impl Health>, drain: Drain) -> Self {
        let mut services = tonic::service::RoutesBuilder::default();
        services.add_service(health);
        add_reflection(&mut services, "hookgate.gateway.v1.ExtensionPointService");
        DataEdge {
            telemetry: gateway.telemetry.clone(),
            http: http_edge::router(Arc::clone(&gateway)),
            grpc: GrpcService::new(gateway, CommonServices::new(services.routes(), drain)),
        }
    }
}

/// Adds reflection to a port that serves `own` and health.
fn add_reflection(services: &mut tonic::service::RoutesBuilder, own: &str) {
    // The descriptors contain the other services too, but this port doesn't serve them.
    let served = [
        own,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure();
        served
            .into_iter()
            .fold(builder, |builder, name| builder.with_service_name(name))
            .register_encoded_file_descriptor_set(hookgate_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    services.add_service(builder().build_v1().expect("the descriptors in git are valid"));
    // Older tools use the previous version.
    services.add_service(builder().build_v1alpha().expect("the descriptors in git are valid"));
}

impl RequestHandler for DataEdge {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        if !is_grpc(request.headers()) {
            let call = self.telemetry.http_call(&request);
            let answer = call.wrap(ask(&self.http, request)).await;
            call.answered(&answer);
            return answer;
        }
        let Some(call) = self.telemetry.grpc_call(&request) else {
            return self.grpc.call(request).await;
        };
        let answer = call.wrap(self.grpc.call(request)).await;
        call.answered(&answer);
        answer
    }
}

/// The ops port: probes, a page, and health over gRPC.
#[derive(Clone)]
pub(super) struct OpsEdge {
    http: Router,
    grpc: CommonServices,
}

impl OpsEdge {
    pub(super) fn new(overview: Arc<StatusSource>, health: HealthServer<impl Health>, drain: Drain) -> Self {
        OpsEdge { http: routes::router(overview), grpc: CommonServices::new(Routes::new(health), drain) }
    }
}

impl RequestHandler for OpsEdge {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        if is_grpc(request.headers()) {
            return self.grpc.answer(request).await;
        }
        ask(&self.http, request).await
    }
}

/// The admin port and the admin socket: status and the registry over HTTP and gRPC, health and reflection.
#[derive(Clone)]
pub(super) struct AdminEdge {
    http: Arc<Admin>,
    grpc: AdminGrpc,
}

impl AdminEdge {
    pub(super) fn new(admin: Admin, health: HealthServer<impl Health>, drain: Drain) -> Self {
        let mut services = tonic::service::RoutesBuilder::default();
        services.add_service(health);
        add_reflection(&mut services, "hookgate.admin.v1.AdminService");
        let http = Arc::new(admin);
        let services = CommonServices::new(services.routes(), drain);
        AdminEdge { grpc: AdminGrpc::new(Arc::clone(&http), services), http }
    }
}

impl RequestHandler for AdminEdge {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        if is_grpc(request.headers()) {
            return self.grpc.answer(request).await;
        }
        self.http.answer(request).await
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

async fn ask(router: &Router, request: Request<Body>) -> Response<Body> {
    match router.clone().oneshot(request).await {
        Ok(answer) => answer,
        Err(impossible) => match impossible {},
    }
}
