//! The TypeScript SDK and the runner for JavaScript plugins: their packages and their builds.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::repository;

/// A runtime for JavaScript.
#[derive(Debug, Clone, Copy)]
pub enum JsRuntime {
    /// The machine's Node.
    Node,
    /// Bun, one of the SDK's development packages.
    Bun,
}

impl JsRuntime {
    /// The command that starts it.
    pub fn command(self) -> String {
        match self {
            JsRuntime::Node => "node".to_owned(),
            JsRuntime::Bun => sdk().join("node_modules/.bin/bun").display().to_string(),
        }
    }
}

/// The SDK's folder, with its packages installed and `dist` built. Blocks while that is done for the first time.
pub fn sdk() -> &'static PathBuf {
    static SDK: OnceLock<PathBuf> = OnceLock::new();
    SDK.get_or_init(|| repository::prepared("sdk/typescript"))
}

/// The folder of the runner for plugins of other systems, built like [`sdk`], which it uses.
pub fn runner() -> &'static PathBuf {
    static RUNNER: OnceLock<PathBuf> = OnceLock::new();
    RUNNER.get_or_init(|| {
        sdk();
        repository::prepared("sdk/typescript-runner")
    })
}

/// The folder of the examples. Their packages are linked.
pub fn examples() -> PathBuf {
    sdk();
    repository::root().join("examples/typescript")
}

/// The arguments with which a runtime serves a plugin of the SDK's test fixtures.
pub fn serve_fixture(runtime: JsRuntime, fixture: &str, endpoint: &str) -> Vec<String> {
    serve_module(runtime, &sdk().join("test/fixtures").join(fixture), endpoint)
}

/// The arguments with which a runtime serves the plugin that a file exports.
pub fn serve_module(runtime: JsRuntime, module: &Path, endpoint: &str) -> Vec<String> {
    let program = sdk().join("dist/cli/main.js").display().to_string();
    let module = module.display().to_string();
    let args = [program, "run".to_owned(), module, "--listen".to_owned(), endpoint.to_owned()];
    std::iter::once(runtime.command()).chain(args).collect()
}
