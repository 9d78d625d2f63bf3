//! Several plugins at one endpoint. Each call names its plugin in the metadata `hookgate-plugin` (docs/protocol.md,
//! section 2).

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, Ready, ready};
use hookgate_proto::plugin::v1::plugin_service_server::SERVICE_NAME;
use http::HeaderMap;
use tonic::{Status, body::Body, server::NamedService};
use tower::{
    Service, ServiceExt as _,
    util::{BoxCloneSyncService, Oneshot},
};

use crate::{Plugin, PluginHost, host};

/// The metadata that names the plugin.
const PLUGIN: &str = "hookgate-plugin";

/// A plugin that a process serves, whatever its type.
pub(super) trait ServedPlugin: Send + Sync {
    fn name(&self) -> &'static str;
    fn version(&self) -> &'static str;
    fn service(self: Arc<Self>) -> PluginService;
    /// Shuts all instances down.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

impl<P: Plugin> ServedPlugin for PluginHost<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn version(&self) -> &'static str {
        P::VERSION
    }

    fn service(self: Arc<Self>) -> PluginService {
        BoxCloneSyncService::new(host::server(self))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(PluginHost::shutdown(self))
    }
}

/// The contract's service of one plugin.
pub(super) type PluginService = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// Passes each call to the plugin that it names. A single plugin gets every call, whatever it names.
#[derive(Clone)]
pub(super) struct PluginRouter {
    plugins: Arc<[(&'static str, PluginService)]>,
}

impl PluginRouter {
    pub(super) fn new(plugins: &[Arc<dyn ServedPlugin>]) -> Self {
        let service = |plugin: &Arc<dyn ServedPlugin>| (plugin.name(), Arc::clone(plugin).service());
        PluginRouter { plugins: plugins.iter().map(service).collect() }
    }

    fn route(&self, headers: &HeaderMap) -> Result<&PluginService, Status> {
        if let [(_, only)] = &*self.plugins {
            return Ok(only);
        }
        let asked = headers.get(PLUGIN).and_then(|name| name.to_str().ok());
        let found = self.plugins.iter().find(|(name, _)| asked == Some(*name));
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
        Either<Oneshot<PluginService, http::Request<Body>>, Ready<Result<http::Response<Body>, Infallible>>>;

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
