//! Plugins with a health service.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hookgate_proto::plugin::v1::plugin_service_server::PluginServiceServer;
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};

use super::support::{Place, Process, Running};

/// Starts the plugin's process together with a health service.
pub(crate) fn start(place: &Place, process: Process, health: HealthServer<impl Health>) -> Running {
    let server = tonic::transport::Server::builder().add_service(PluginServiceServer::new(process));
    place.serve(server.add_service(health))
}

/// Answers while it is true, and otherwise never.
pub(crate) struct HealthOf(pub(crate) Arc<AtomicBool>);

#[tonic::async_trait]
impl Health for HealthOf {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !self.0.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let status = ServingStatus::Serving.into();
        Ok(Response::new(HealthCheckResponse { status }))
    }

    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("nobody watches"))
    }
}

/// Answers behind the running call, like a plugin with one worker.
pub(crate) struct Behind(pub(crate) Arc<tokio::sync::Mutex<()>>);

#[tonic::async_trait]
impl Health for Behind {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let _turn = self.0.lock().await;
        let status = ServingStatus::Serving.into();
        Ok(Response::new(HealthCheckResponse { status }))
    }

    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("nobody watches"))
    }
}
