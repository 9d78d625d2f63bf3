//! The TypeScript SDK: its packages and its build.

use std::{path::PathBuf, process::Command, sync::OnceLock};

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
    SDK.get_or_init(|| {
        let folder = repository::root().join("sdk/typescript");
        let prepared = Command::new(folder.join("prepare.sh")).output().expect("bash is installed");
        assert!(prepared.status.success(), "prepare.sh: {prepared:?}");
        folder
    })
}

/// The arguments with which a runtime serves a plugin of the SDK's test fixtures.
pub fn serve_fixture(runtime: JsRuntime, fixture: &str, endpoint: &str) -> Vec<String> {
    let program = sdk().join("dist/cli/main.js").display().to_string();
    let module = sdk().join("test/fixtures").join(fixture).display().to_string();
    let args = [program, "run".to_owned(), module, "--listen".to_owned(), endpoint.to_owned()];
    std::iter::once(runtime.command()).chain(args).collect()
}
