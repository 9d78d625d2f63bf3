//! The Python SDK: its packages, in a virtual environment.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::repository;

/// The SDK's folder, whose `.venv` has the SDK and its packages. Blocks while that is made for the first time.
pub fn sdk() -> &'static PathBuf {
    static SDK: OnceLock<PathBuf> = OnceLock::new();
    SDK.get_or_init(|| repository::prepared("sdk/python"))
}

/// The folder of the examples.
pub fn examples() -> PathBuf {
    repository::root().join("examples/python")
}

/// The arguments with which Python serves a plugin of the SDK's test fixtures.
pub fn serve_fixture(fixture: &str, endpoint: &str) -> Vec<String> {
    serve_module(&sdk().join("tests/fixtures").join(fixture), endpoint)
}

/// The arguments with which Python serves a plugin: the variable `plugin` of the file.
pub fn serve_module(module: &Path, endpoint: &str) -> Vec<String> {
    let python = sdk().join(".venv/bin/python").display().to_string();
    let plugin = format!("{}:plugin", module.display());
    let args = ["-m", "hookgate", "run", &plugin, "--listen", endpoint].map(str::to_owned);
    std::iter::once(python).chain(args).collect()
}
