//! The gateway's services (`hookgate.host.v1`) as a plugin reaches them: over a connection, or in this process.
//! Knows no method of theirs but the renewal of tokens.

mod client;
mod dial;
mod error;
mod links;

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
};

use hookgate_proto::plugin::v1::InitializeRequest;
use tonic::body::Body;
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

pub use self::error::HostError;
pub(crate) use self::{
    client::HostClient,
    dial::{DialError, dial_with_environment},
    links::{HostLink, HostLinks, bearer},
};
use crate::Capability;

/// The gateway's services as a tower service, for [`service_with_host`](crate::service_with_host). Cheap to clone.
#[derive(Clone)]
pub struct HostService(BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>);

impl HostService {
    /// Wraps a service that answers the methods of `hookgate.host.v1`, for example [`tonic::service::Routes`] of the
    /// generated servers.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self::from_fallible(service)
    }

    fn from_fallible<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        HostService(BoxCloneSyncService::new(service.map_err(Into::into)))
    }
}

impl fmt::Debug for HostService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostService").finish_non_exhaustive()
    }
}

impl Service<http::Request<Body>> for HostService {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = <BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError> as Service<
        http::Request<Body>,
    >>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// Where a plugin's host services come from.
#[derive(Default)]
pub(crate) struct HostServices {
    /// Used instead of what gateways name.
    in_process: Option<Arc<HostService>>,
    /// One connection for each endpoint that a gateway names, as long as one uses it.
    connections: Mutex<HashMap<String, Weak<HostService>>>,
}

impl HostServices {
    pub(crate) fn in_process(service: HostService) -> Self {
        HostServices { in_process: Some(Arc::new(service)), ..HostServices::default() }
    }

    /// What the gateway of a request offers.
    pub(crate) fn link(&self, request: &InitializeRequest) -> HostLink {
        let service = match &self.in_process {
            Some(service) if has_capability(request) => Ok(Arc::clone(service)),
            None if !request.host_endpoint.is_empty() => self.connection(&request.host_endpoint),
            _ => Err(HostError::NotOffered),
        };
        HostLink::new(&request.gateway_instance_id, service, &request.host_token)
    }

    fn connection(&self, endpoint: &str) -> Result<Arc<HostService>, HostError> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = connections.get(endpoint).and_then(Weak::upgrade) {
            return Ok(service);
        }
        connections.retain(|_, service| service.strong_count() > 0);
        let channel = dial_with_environment(endpoint);
        let channel = channel.map_err(|error| HostError::Unavailable(error.to_string()))?;
        let service = Arc::new(HostService::from_fallible(channel));
        connections.insert(endpoint.to_owned(), Arc::downgrade(&service));
        Ok(service)
    }
}

/// Whether the gateway granted a capability that it offers a service for.
fn has_capability(request: &InitializeRequest) -> bool {
    request.capabilities.iter().any(|granted| Capability::from_name(granted).is_some())
}

#[cfg(test)]
mod tests;
