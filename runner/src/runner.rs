//! Serves the plugins of a file at one address.

use std::{future::Future, io, sync::Arc, time::Duration};

use hookgate_sdk::{Registration, ServeError, Server};
use tokio::time::{interval, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{RunnerFile, launch, plugin::RunnerPlugin, processes::Processes};

/// How often programs that aren't needed are ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long programs may take to end at the end of the runner.
const MAX_END: Duration = Duration::from_secs(2);

/// Why the plugins could not be served.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel can't restrict access rights.
    #[error(
        "this kernel can't restrict what programs read ({0}): use Linux 5.13 or newer with Landlock, or set `sandbox: \
         false` if every program may read the files of all tenants"
    )]
    Sandbox(String),
    /// The kernel doesn't let the runner adopt orphans.
    #[error("the processes of programs can't be followed: {0}")]
    Orphans(io::Error),
    /// The address or the registration can't be used.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The plugins of a file.
pub struct Runner {
    plugins: Vec<RunnerPlugin>,
    processes: Arc<Processes>,
}

impl Runner {
    /// Prepares the plugins of `file`.
    ///
    /// # Errors
    /// If this machine lacks something that they need.
    pub fn new(file: RunnerFile) -> Result<Self, RunError> {
        let RunnerFile { data_dir, sandbox, plugins } = file;
        if sandbox {
            launch::check_sandbox().map_err(|error| RunError::Sandbox(error.to_string()))?;
        }
        Processes::adopt_orphans().map_err(RunError::Orphans)?;
        let processes = Arc::new(Processes::default());
        let plugin = |entry| RunnerPlugin::new(entry, data_dir.clone(), sandbox, Arc::clone(&processes));
        Ok(Runner { plugins: plugins.into_iter().map(plugin).collect(), processes })
    }

    /// Serves at `unix:///path` or `http://host:port` until `stop` resolves. Then finishes the calls in flight and ends
    /// all programs.
    ///
    /// # Errors
    /// If the address is taken, or the registration can't work.
    pub async fn run(
        self,
        address: &str,
        registration: Option<Registration>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), RunError> {
        let Runner { plugins, processes } = self;
        let mut server = Server::bind(address).await?;
        for plugin in &plugins {
            let entry = plugin.entry();
            server = server.with_service(&entry.name, &entry.version, plugin.clone());
        }
        if let Some(registration) = registration {
            server = server.with_registration(registration);
        }
        let watched = Arc::clone(&processes);
        let _watch = AbortOnDropHandle::new(tokio::spawn(async move { watched.watch().await }));
        let swept = plugins.clone();
        let _sweep = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut ticks = interval(SWEEP_INTERVAL);
            loop {
                ticks.tick().await;
                swept.iter().for_each(RunnerPlugin::sweep);
            }
        }));
        let served = server.run(stop).await;
        plugins.iter().for_each(RunnerPlugin::close);
        let _ = timeout(MAX_END, processes.all_ended()).await;
        Ok(served?)
    }
}
