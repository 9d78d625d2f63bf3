//! `hookgate serve`.

use std::path::Path;

use super::Exit;
use crate::{
    app::{self, App, RunError},
    config,
    telemetry::Telemetry,
};

pub(super) async fn run(path: &Path) -> Exit {
    let loaded = match config::load(path, app::environment()) {
        Ok(loaded) => loaded,
        Err(problems) => return Exit::usage(problems.to_string()),
    };
    let telemetry = match Telemetry::start(&loaded.config) {
        Ok(telemetry) => telemetry,
        Err(error) => return Exit::usage(error),
    };
    let app = match App::build(loaded, telemetry.clone()) {
        Ok(app) => app,
        Err(problems) => return Exit::usage(problems.to_string()),
    };
    let ended = app.run().await;
    telemetry.shutdown(app::TELEMETRY).await;
    match ended {
        Ok(()) => Exit::ok(),
        Err(RunError::Missing(missing)) => Exit::plugin_missing(missing.to_string()),
        Err(error @ RunError::Listen { .. }) => Exit::failure(error.to_string()),
    }
}
