//! The demo's environment: a temporary directory with the configuration file, two plugins as child processes, and the
//! gateway in this process. Knows nothing of the calls.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hookgate_sdk::agent::{Claims, Signer, TokenError};
use tempfile::TempDir;
use tokio::{sync::Notify, task::JoinHandle};

use super::child::PluginProcess;
use crate::keygen;
use hookgate::{app::App, config, telemetry::Telemetry};

/// The configuration; `@DIR@` is the directory.
const CONFIG_TEMPLATE: &str = include_str!("hookgate.yaml");
/// Lifetime of the tokens: long enough to play with `--keep`.
const TOKEN_TTL: Duration = Duration::from_secs(3600);

pub(super) struct Stage {
    pub(super) tenant_auth: PluginProcess,
    pub(super) audit_log: PluginProcess,
    /// Where agents call the gateway.
    pub(super) data_addr: SocketAddr,
    /// The ops port.
    pub(super) ops_addr: SocketAddr,
    secret: String,
    stop: Arc<Notify>,
    gateway: JoinHandle<()>,
    // Last, so that it is removed after the processes that write to it have ended.
    directory: TempDir,
}

impl Stage {
    /// Starts everything, and returns when it is ready.
    pub(super) async fn set() -> Result<Self, String> {
        let unwritable = |error: io::Error| format!("the temporary directory can't be written: {error}");
        let directory = tempfile::Builder::new().prefix("hookgate-demo-").tempdir().map_err(unwritable)?;
        let path = directory.path();
        // Readable only by us, because one of the files holds the secret.
        let write =
            |name: &str, text: &str| keygen::create(&path.join(name), 0o600, text).map_err(unwritable);
        let secret = keygen::random()?;
        write("jwt.key", &secret)?;
        let file = path.join("hookgate.yaml");
        write("hookgate.yaml", &CONFIG_TEMPLATE.replace("@DIR@", &path.display().to_string()))?;

        let (tenant_auth, audit_log) = tokio::try_join!(
            PluginProcess::start("tenant-auth", path),
            PluginProcess::start("audit-log", path)
        )?;

        // Ignore the environment: its settings are for another gateway.
        let loaded = config::load(&file, []).map_err(|problems| problems.to_string())?;
        let telemetry = Telemetry::without_log(&loaded.config)?;
        let app = App::build(loaded, telemetry).map_err(|problems| problems.to_string())?;
        let bound = app.bind().await.map_err(|error| error.to_string())?;
        let running = bound.start().await.map_err(|error| error.to_string())?;
        let (data_addr, ops_addr) = (running.data_addr(), running.ops_addr());
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let gateway = tokio::spawn(async move { running.until(|| stopped.notified()).await });
        Ok(Stage { tenant_auth, audit_log, data_addr, ops_addr, secret, stop, gateway, directory })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The file that audit-log writes.
    pub(super) fn audit(&self) -> PathBuf {
        self.path().join("audit.jsonl")
    }

    /// Signs the tenant's tokens.
    pub(super) fn signer(&self, tenant: &str) -> Result<Signer, TokenError> {
        signer(&self.secret, tenant)
    }

    /// Signs tokens that look like the tenant's, with another secret.
    pub(super) fn forger(&self, tenant: &str) -> Result<Signer, TokenError> {
        signer(&self.secret.to_ascii_uppercase(), tenant)
    }

    /// Starts tenant-auth again.
    pub(super) async fn bring_back(&mut self) -> Result<(), String> {
        self.tenant_auth = PluginProcess::start("tenant-auth", self.directory.path()).await?;
        Ok(())
    }

    /// Drains the gateway, so that audit-log has seen every call.
    pub(super) async fn stop(&mut self) -> Result<(), String> {
        self.stop.notify_one();
        (&mut self.gateway).await.map_err(|error| format!("the gateway failed: {error}"))
    }
}

fn signer(secret: &str, tenant: &str) -> Result<Signer, TokenError> {
    let claims = Claims {
        issuer: "https://id.example.com".into(),
        audience: "hookgate".into(),
        tenant: tenant.into(),
        operator: format!("{tenant}-support-bot"),
    };
    Ok(Signer::hs256(secret.as_bytes(), claims)?.with_ttl(TOKEN_TTL))
}
