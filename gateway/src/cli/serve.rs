//! `hookgate serve`.

use std::path::Path;

use super::Exit;
use crate::{
    app::{self, App, RunError},
    config, telemetry,
};

pub(super) async fn run(path: &Path) -> Exit {
    let loaded = match config::load(path, app::environment()) {
        Ok(loaded) => loaded,
        Err(problems) => return Exit::usage(problems.to_string()),
    };
    telemetry::start_log(&loaded.config.log);
    let app = match App::build(loaded) {
        Ok(app) => app,
        Err(problems) => return Exit::usage(problems.to_string()),
    };
    match app.run().await {
        Ok(()) => Exit::ok(),
        Err(RunError::Missing(missing)) => Exit::plugin_missing(missing.to_string()),
        Err(error @ RunError::Listen { .. }) => Exit::failure(error.to_string()),
    }
}
