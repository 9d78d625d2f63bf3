//! `hookgate serve`.

use std::path::Path;

use super::{
    Exit,
    dev::{self, DevMode},
    output,
};
use hookgate::{
    app::{self, App, RunError, RunningGateway, StartError},
    config::Config,
    control::file_source::Source,
    telemetry::Telemetry,
};

/// At least one of the two is given; with both, `file` is served in development mode.
pub(super) async fn run(file: Option<&Path>, development: bool) -> Exit {
    let source = match (development, file) {
        (true, file) => match DevMode::new() {
            Ok(dev) => dev.source(file),
            Err(wrong) => return Exit::failure(wrong),
        },
        (false, file) => Source::file(file.expect("the arguments ask for one of the two")),
    };
    let (app, telemetry) = match App::start(source, Telemetry::start).await {
        Ok(started) => started,
        Err(StartError::Invalid(problems)) => return Exit::problems(&problems),
        Err(StartError::Run(error)) => return failure(error),
    };
    let config = development.then(|| app.config().clone());
    let ended = app.run(|running| config.iter().for_each(|config| invite(config, running))).await;
    telemetry.shutdown(app::TELEMETRY).await;
    match ended {
        Ok(()) => Exit::ok(),
        Err(error) => failure(error),
    }
}

fn failure(error: RunError) -> Exit {
    match error {
        RunError::Missing(missing) => Exit::plugin_missing(missing.to_string()),
        RunError::Socket { .. } | RunError::Workers(_) => Exit::failure(error.to_string()),
        RunError::Listen { key, .. } => Exit::failure(format!("{error}; {}", elsewhere(key))),
    }
}

/// The remedy for an address that is in use.
fn elsewhere(key: &str) -> String {
    let variable = format!("HOOKGATE__{}", key.to_uppercase().replace('.', "__"));
    format!(
        "stop the process that uses it, or set another address in the file or with {variable}=127.0.0.1:0, which \
         picks a free port"
    )
}

/// Prints how to call the gateway, once it serves.
fn invite(config: &Config, running: &RunningGateway) {
    tracing::warn!("development mode: every tenant is accepted, with the printed token");
    match dev::banner(config, running.data_addr(), running.ops_addr()) {
        // Serving must not wait for the reader of standard output.
        Ok(banner) => drop(tokio::task::spawn_blocking(move || output::print(&banner, Exit::ok()))),
        Err(wrong) => tracing::error!("{wrong}"),
    }
}
