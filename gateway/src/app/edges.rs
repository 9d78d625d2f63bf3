//! The handlers of the ports: gRPC or HTTP, by content type.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::{Request, Response};
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::ServiceExt;

use crate::{
    admin::{Admin, grpc::AdminGrpc},
    dataplane::{
        call::Gateway,
        stack::{self, HttpService},
    },
    edge::{
        common_services::{CommonServices, is_common},
        header::is_grpc,
    },
    net::server::{DrainSignals, RequestHandler},
    ops::{routes, status::StatusSource},
    telemetry::{Parent, Telemetry},
};

/// The data port: extension points and hooks over HTTP and gRPC, health and reflection.
#[derive(Clone)]
pub(super) struct DataEdge<S> {
    stack: S,
}

pub(super) fn data_edge(
    gateway: &Arc<Gateway>,
    health: HealthServer<impl Health>,
    drain: DrainSignals,
) -> DataEdge<impl HttpService> {
    let mut services = tonic::service::RoutesBuilder::default();
    services.add_service(health);
    add_reflection(
        &mut services,
        &[
            "hookgate.gateway.v1.ExtensionPointService",
            "hookgate.gateway.v1.HookService",
            "hookgate.gateway.v1.ToolService",
        ],
    );
    DataEdge { stack: stack::port(gateway, CommonServices::new(services.routes(), drain)) }
}

/// Adds reflection to a port that serves `own` and health.
fn add_reflection(services: &mut tonic::service::RoutesBuilder, own: &[&str]) {
    // The descriptors contain the other services too, but this port doesn't serve them.
    let common = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure();
        let served = own.iter().chain(&common);
        served
            .fold(builder, |builder, name| builder.with_service_name(*name))
            .register_encoded_file_descriptor_set(hookgate_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    services.add_service(builder().build_v1().expect("the descriptors in git are valid"));
    // Older tools use the previous version.
    services.add_service(builder().build_v1alpha().expect("the descriptors in git are valid"));
}

impl<S: HttpService> RequestHandler for DataEdge<S> {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let Ok(answer) = self.stack.clone().oneshot(request).await;
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
    pub(super) fn new(
        overview: Arc<StatusSource>,
        health: HealthServer<impl Health>,
        drain: DrainSignals,
    ) -> Self {
        OpsEdge { http: routes::router(overview), grpc: CommonServices::new(Routes::new(health), drain) }
    }
}

impl RequestHandler for OpsEdge {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        if is_grpc(request.headers()) {
            return self.grpc.answer(request).await;
        }
        self.http.answer(request).await
    }
}

/// The path prefix of registrations, which have tokens of their own.
const REGISTRATION_PREFIX: &str = "/hookgate.host.v1.RegistrationService/";
/// The services for plugins.
const HOST_SERVICES: [&str; 5] = [
    "hookgate.host.v1.EventService",
    "hookgate.host.v1.LogService",
    "hookgate.host.v1.RegistrationService",
    "hookgate.host.v1.StorageService",
    "hookgate.host.v1.TokenService",
];

/// The host port and the host socket: services for plugins, health and reflection, over gRPC alone.
#[derive(Clone)]
pub(super) struct HostEdge {
    services: Router,
    registrations: Router,
    common: CommonServices,
    telemetry: Telemetry,
}

impl HostEdge {
    pub(super) fn new(
        services: Routes,
        registrations: Routes,
        telemetry: &Telemetry,
        health: HealthServer<impl Health>,
        drain: DrainSignals,
    ) -> Self {
        let mut common = tonic::service::RoutesBuilder::default();
        common.add_service(health);
        add_reflection(&mut common, &HOST_SERVICES);
        HostEdge {
            services: services.prepare().into_axum_router(),
            registrations: registrations.prepare().into_axum_router(),
            common: CommonServices::new(common.routes(), drain),
            telemetry: telemetry.clone(),
        }
    }
}

impl RequestHandler for HostEdge {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        if is_common(request.uri().path()) {
            return self.common.answer(request).await;
        }
        let Some(call) = self.telemetry.grpc_call(&request) else { return self.common.answer(request).await };
        let is_registration = request.uri().path().starts_with(REGISTRATION_PREFIX);
        let router = if is_registration { &self.registrations } else { &self.services };
        let answer = call.wrap(router.answer(request)).await;
        call.answered(&answer);
        answer
    }
}

/// The admin port and the admin socket: status and the registry over HTTP and gRPC, health and reflection.
#[derive(Clone)]
pub(super) struct AdminEdge {
    http: Arc<Admin>,
    grpc: AdminGrpc,
}

impl AdminEdge {
    pub(super) fn new(admin: Admin, health: HealthServer<impl Health>, drain: DrainSignals) -> Self {
        let mut services = tonic::service::RoutesBuilder::default();
        services.add_service(health);
        add_reflection(&mut services, &["hookgate.admin.v1.AdminService"]);
        let http = Arc::new(admin);
        let services = CommonServices::new(services.routes(), drain);
        AdminEdge { grpc: AdminGrpc::new(Arc::clone(&http), services), http }
    }
}

impl RequestHandler for AdminEdge {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let caller = Parent::from_headers(request.headers());
        if is_grpc(request.headers()) {
            return caller.wrap(self.grpc.answer(request)).await;
        }
        caller.wrap(self.http.answer(request)).await
    }
}
