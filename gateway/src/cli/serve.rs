//! `hookgate serve`.

use std::path::Path;

use super::Exit;
use crate::{
    app::{self, App, RunError},
    telemetry::Telemetry,
};

pub(super) async fn run(path: &Path) -> Exit {
    let (app, telemetry) = match App::load(path, Telemetry::start) {
        Ok(started) => started,
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
