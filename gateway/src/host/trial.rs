//! The services for a plugin under test, without a gateway. Data is in a database of its own, which is deleted at the
//! end.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::{HostEndpoints, HostServices};
use crate::{
    config::{Limits, Plugin},
    net::server::{self, DrainSignals},
    store::{self, Store},
    telemetry::Telemetry,
    upstream::{CallTokenRequest, HostAccess, HostOffer},
};

/// The plugin's name in tokens, data and lines. Its own isn't known before Describe.
const TRIAL_NAME: &str = "under-test";
/// How long the last lines are waited for: plugins send them in the background.
const LATE_LINES_WAIT: Duration = Duration::from_millis(300);
/// How long open connections may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Host services for one plugin.
pub struct TrialHost {
    services: Arc<HostServices>,
    store: Arc<dyn Store>,
    /// Holds the database.
    directory: TempDir,
    drain: DrainSignals,
    connections: TaskTracker,
}

impl TrialHost {
    /// Serves at `address` what `plugin` is granted.
    ///
    /// # Errors
    /// One sentence that says what failed.
    pub async fn start(address: SocketAddr, plugin: &Plugin) -> Result<Self, String> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| format!("can't listen on {address}: {error}"))?;
        let bound = listener.local_addr().map_err(|error| error.to_string())?;
        let directory = tempfile::Builder::new().prefix("hookgate-").tempdir();
        let directory = directory.map_err(|error| format!("no temporary directory can be made: {error}"))?;
        let store = store::open(&format!("sqlite:{}", directory.path().join("data.db").display()))?;
        store.prepare().await.map_err(|error| error.to_string())?;
        let endpoint = OnceLock::from(format!("http://{bound}"));
        let endpoints = HostEndpoints { local: None, remote: endpoint, scheme: "http" };
        let plugin = Arc::new(Plugin { name: TRIAL_NAME.into(), ..plugin.clone() });
        let data = Arc::clone(&store) as _;
        let services =
            HostServices::assemble(data, &Limits::default(), &[plugin], endpoints, Telemetry::unseen());
        services.keys.refresh().await.map_err(|error| error.to_string())?;
        let (drain, connections) = (DrainSignals::default(), TaskTracker::new());
        let router = services.routes().prepare().into_axum_router();
        tokio::spawn(server::serve(listener, None, router, drain.clone(), connections.clone()));
        Ok(TrialHost { services, store, directory, drain, connections })
    }

    /// The services, as the plugin is told of them.
    pub fn offer(&self) -> HostOffer {
        HostOffer::Services(Arc::new(TrialAccess(Arc::clone(&self.services))))
    }

    /// Takes the plugin's last lines, ends the services and deletes the data.
    pub async fn close(self) {
        sleep(LATE_LINES_WAIT).await;
        self.drain.goaway.cancel();
        self.connections.close();
        // A connection that stays open ends with the process.
        let _ = timeout(CLOSE_TIMEOUT, self.connections.wait()).await;
        self.store.close().await;
        if let Err(error) = self.directory.close() {
            tracing::warn!(%error, "the data of the test could not be deleted");
        }
    }
}

/// Names the plugin in tokens, whatever the entry's name is.
struct TrialAccess(Arc<HostServices>);

impl HostAccess for TrialAccess {
    fn endpoint(&self, is_local: bool) -> Option<&str> {
        self.0.endpoint(is_local)
    }

    fn plugin_token(&self, _: &str, capabilities: &[String]) -> String {
        self.0.plugin_token(TRIAL_NAME, capabilities)
    }

    fn call_token(&self, call: &CallTokenRequest<'_>) -> String {
        self.0.call_token(&CallTokenRequest { plugin: TRIAL_NAME, ..*call })
    }
}
