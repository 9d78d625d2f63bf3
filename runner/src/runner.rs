//! Serves the plugins of a file at one address.

use std::{future::Future, io, path::PathBuf, sync::Arc, time::Duration};

use hookgate_sdk::{Registration, ServeError, Server};
use tokio::time::{interval, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    RunnerFile, home, launch, plugin::RunnerPlugin, processes::Processes, system_calls,
    task_limit::TaskLimit, watch,
};

/// How often programs that aren't needed are ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long programs may take to end by themselves at the end of the runner. With the server's drain and [`MAX_KILL`], the
/// runner ends within 30 s.
const MAX_END: Duration = Duration::from_secs(3);
/// How long they may take to end when they are told to.
const MAX_KILL: Duration = Duration::from_secs(2);

/// Why the plugins could not be served.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel can't restrict access rights.
    #[error(
        "this kernel can't restrict what programs read ({0}): use Linux 5.13 or newer with Landlock, or set `sandbox: \
         false` if every program may read the files of all tenants"
    )]
    Sandbox(String),
    /// There is no filter of system calls for this machine.
    #[error("the system calls of programs can't be restricted: {0}")]
    SystemCalls(String),
    /// The programs could call the runner as any tenant.
    #[error(
        "{0} is an address that programs could call too, as any tenant: listen at a Unix socket, or set `sandbox: false` \
         if every program may do that"
    )]
    Address(String),
    /// The folder of the programs' private folders can't be used.
    #[error("data_dir: {}: {source}", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel doesn't let the runner adopt orphans.
    #[error("the processes of programs can't be followed: {0}")]
    Orphans(io::Error),
    /// The thread that watches limits can't be started.
    #[error("the limits of programs can't be watched: {0}")]
    Watch(io::Error),
    /// The address or the registration can't be used.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The plugins of a file.
pub struct Runner {
    plugins: Vec<RunnerPlugin>,
    processes: Arc<Processes>,
    sandbox: bool,
}

impl Runner {
    /// Prepares the plugins of `file`.
    ///
    /// # Errors
    /// If this machine lacks something that they need.
    pub fn new(file: RunnerFile) -> Result<Self, RunError> {
        let RunnerFile { data_dir, sandbox, plugins } = file;
        home::prepare(&data_dir).map_err(|source| RunError::DataDir { path: data_dir.clone(), source })?;
        system_calls::check().map_err(|error| RunError::SystemCalls(error.to_string()))?;
        if sandbox {
            launch::check_sandbox().map_err(|error| RunError::Sandbox(error.to_string()))?;
            if !launch::restricts_signals() {
                tracing::warn!(
                    "this kernel can't keep programs from signalling other processes of the runner's user; Linux 6.12 can"
                );
            }
        }
        // What this process inherited is not for programs, nor for storages, which execute nothing that would close it.
        close_fds::set_fds_cloexec(3, &[]);
        Processes::adopt_orphans().map_err(RunError::Orphans)?;
        let processes = Arc::new(Processes::new(TaskLimit::from_machine()));
        let plugin = |entry| RunnerPlugin::new(entry, data_dir.clone(), sandbox, Arc::clone(&processes));
        let plugins: Vec<_> = plugins.into_iter().map(plugin).collect();
        for plugin in &plugins {
            let name = &plugin.entry().name;
            plugin.entry().warnings().iter().for_each(|warning| tracing::warn!(plugin = name, "{warning}"));
            // Those of a runner that was killed.
            plugin.remove_configs();
        }
        Ok(Runner { plugins, processes, sandbox })
    }

    /// Serves at `unix:///path` or `http://host:port` until `stop` resolves. Then finishes the calls in flight and ends
    /// all programs.
    ///
    /// # Errors
    /// If the address is taken or one that programs could call, or the registration can't work.
    pub async fn run(
        self,
        address: &str,
        registration: Option<Registration>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), RunError> {
        let Runner { plugins, processes, sandbox } = self;
        if sandbox && address.starts_with("http") {
            return Err(RunError::Address(address.to_owned()));
        }
        let mut server = Server::bind(address).await?;
        for plugin in &plugins {
            let entry = plugin.entry();
            server = server.with_service(&entry.name, &entry.version, plugin.clone());
        }
        if let Some(registration) = registration {
            server = server.with_registration(registration);
        }
        watch::start(&processes).map_err(RunError::Watch)?;
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
        // Those of calls that were cut off too.
        processes.close();
        let _ = timeout(MAX_KILL, processes.all_ended()).await;
        plugins.iter().for_each(RunnerPlugin::remove_configs);
        Ok(served?)
    }
}
