//! `grpc.health.v1` of a scripted plugin.

use futures::stream::Empty;
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
};

use super::service::Service;

/// How health checks are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Health {
    /// UNIMPLEMENTED, as by a plugin without the service.
    #[default]
    Lacking,
    /// SERVING.
    Serving,
    /// NOT_SERVING.
    NotServing,
    /// No answer.
    Hangs,
}

#[tonic::async_trait]
impl health_server::Health for Service {
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.state.record.count(|counts| counts.checks += 1);
        let health = self.state.behaviour().health;
        let status = match health {
            Health::Lacking => return Err(Status::unimplemented("no such service")),
            Health::Serving => ServingStatus::Serving,
            Health::NotServing => ServingStatus::NotServing,
            Health::Hangs => std::future::pending().await,
        };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("the gateway asks, it does not watch"))
    }
}
