//! Several plugins at one endpoint. Each call names its plugin in the metadata `hookgate-plugin` (docs/protocol.md,
//! section 2).

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, Ready, ready};
use hookgate_proto::plugin::v1::plugin_service_server::{PluginService, PluginServiceServer, SERVICE_NAME};
use http::HeaderMap;
use tonic::{Status, body::Body, server::NamedService};
use tower::{
    Service, ServiceExt as _,
    util::{BoxCloneSyncService, Oneshot},
};

use crate::{MAX_CALL_BYTES, Plugin, PluginHost, host};

/// The metadata that names the plugin.
const PLUGIN: &str = "hookgate-plugin";

/// A plugin that a process serves, whatever its type.
pub(super) struct ServedPlugin {
    pub(super) name: Arc<str>,
    pub(super) version: String,
    service: BoxedService,
    host: Arc<dyn Shutdown>,
}

/// What can shut all instances of a plugin down.
trait Shutdown: Send + Sync {
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

impl<P: Plugin> Shutdown for PluginHost<P> {
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(PluginHost::shutdown(self))
    }
}

/// For a service that its owner shuts down.
impl Shutdown for () {
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

impl ServedPlugin {
    pub(super) fn new<P: Plugin>() -> Self {
        let host = Arc::new(PluginHost::<P>::new());
        let service = BoxCloneSyncService::new(host::server(Arc::clone(&host)));
        ServedPlugin { name: P::NAME.into(), version: P::VERSION.to_owned(), service, host }
    }

    pub(super) fn of_service(name: &str, version: &str, service: impl PluginService) -> Self {
        let service = PluginServiceServer::new(service).max_decoding_message_size(MAX_CALL_BYTES);
        let service = BoxCloneSyncService::new(service);
        ServedPlugin { name: name.into(), version: version.to_owned(), service, host: Arc::new(()) }
    }

    pub(super) async fn shutdown(&self) {
        self.host.shutdown().await;
    }
}

/// The contract's service of one plugin.
type BoxedService = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// Passes each call to the plugin that it names. A single plugin also gets calls that name none.
#[derive(Clone)]
pub(super) struct PluginRouter {
    plugins: Arc<[(Arc<str>, BoxedService)]>,
}

impl PluginRouter {
    pub(super) fn new(plugins: &[ServedPlugin]) -> Self {
        let service = |plugin: &ServedPlugin| (Arc::clone(&plugin.name), plugin.service.clone());
        PluginRouter { plugins: plugins.iter().map(service).collect() }
    }

    fn route(&self, headers: &HeaderMap) -> Result<&BoxedService, Status> {
        let asked = headers.get(PLUGIN).map(|name| name.to_str().unwrap_or_default());
        if let ([(_, only)], None) = (&*self.plugins, asked) {
            return Ok(only);
        }
        let found = self.plugins.iter().find(|(name, _)| asked == Some(name));
        found.map(|(_, service)| service).ok_or_else(|| self.not_found(asked))
    }

    fn not_found(&self, asked: Option<&str>) -> Status {
        let served: Vec<_> = self.plugins.iter().map(|(name, _)| format!("`{name}`")).collect();
        let served = served.join(", ");
        Status::not_found(match asked {
            Some(asked) => format!("no plugin `{asked}` is served here, only {served}"),
            None => {
                format!("the metadata `{PLUGIN}` must name one of the plugins that are served here: {served}")
            }
        })
    }
}

impl NamedService for PluginRouter {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for PluginRouter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future =
        Either<Oneshot<BoxedService, http::Request<Body>>, Ready<Result<http::Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self.route(request.headers()) {
            Ok(service) => Either::Left(service.clone().oneshot(request)),
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}
