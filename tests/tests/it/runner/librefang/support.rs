//! A folder with a plugin of LibreFang, and a gateway in front of it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use hookgate_tests::agent::HttpAnswer;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::support::{ServedProgram, serve_configured};

/// A plugin called `program`.
pub(super) struct LibrefangPlugin {
    pub(super) directory: TempDir,
    entry: Value,
    config: Value,
}

impl LibrefangPlugin {
    /// `manifest` follows the name and the version.
    pub(super) fn new(manifest: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let entry = json!({ "name": "program", "dialect": "librefang", "directory": "./plugin" });
        let manifest = format!("name = \"program\"\nversion = \"0.1.0\"\n{manifest}");
        LibrefangPlugin { directory, entry, config: json!({}) }.file("plugin.toml", &manifest)
    }

    pub(super) fn path(&self, file: &str) -> std::path::PathBuf {
        self.directory.path().join("plugin").join(file)
    }

    /// Writes a file of the plugin. It is executable.
    pub(super) fn file(self, name: &str, text: &str) -> Self {
        write(&self.path(name), text);
        self
    }

    /// Adds members to the entry in the runner's file.
    pub(super) fn entry(mut self, members: &Value) -> Self {
        let entry = self.entry.as_object_mut().expect("it is an object");
        entry.extend(members.as_object().expect("it is an object").clone());
        self
    }

    /// The plugin-level configuration at the gateway.
    pub(super) fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Writes the runner's file.
    pub(super) fn write(&self) {
        let file = json!({ "data_dir": "homes", "plugins": [self.entry] });
        fs::write(self.directory.path().join("runner.yaml"), file.to_string()).expect("it is ours");
    }

    /// Serves it at these hooks. A failure is the answer's error.
    pub(super) async fn serve(self, hooks: &[&str]) -> ServedProgram {
        self.serve_bound(&[json!({ "hooks": hooks, "on_error": "fail" })]).await
    }

    pub(super) async fn serve_bound(self, bindings: &[Value]) -> ServedProgram {
        self.write();
        serve_configured(self.directory, self.config, bindings).await
    }
}

pub(super) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
    fs::write(path, text).expect("the directory is ours");
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("the file is ours");
}

/// A script in Python that answers an ingest with what the expression `said` is, as text.
pub(super) fn says(said: &str) -> String {
    format!(
        "import json, os, sys\ncall = json.loads(sys.stdin.read())\nsaid = {said}\n\
         print(json.dumps({{'type': 'ingest_result', 'memories': [{{'content': str(said)}}]}}))\n"
    )
}

/// The same for a script that is persistent.
pub(super) fn keeps_saying(said: &str) -> String {
    format!(
        "import json, os, sys\ncount = 0\nfor line in sys.stdin:\n    call = json.loads(line)\n    count += 1\n    \
         said = {said}\n    print(json.dumps({{'memories': [{{'content': str(said)}}]}}), flush=True)\n"
    )
}

impl ServedProgram {
    /// What is recalled for the message `message` of `agent`.
    pub(super) async fn recall(&self, tenant: &str, agent: &str, message: &str) -> HttpAnswer {
        let request = json!({ "body": { "message": message }, "context": { "agent_id": agent } });
        self.hook_with(tenant, "recall", &request).await
    }

    /// The first memory that is recalled then.
    pub(super) async fn memory(&self, tenant: &str, agent: &str, message: &str) -> String {
        first_memory(&self.recall(tenant, agent, message).await)
    }
}

/// The first memory of an answer.
pub(super) fn first_memory(answer: &HttpAnswer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let memory = &answer.body["contributions"][0];
    assert_eq!(memory["kind"], "memory", "{answer:?}");
    memory["value"]["content"].as_str().expect("a text").to_owned()
}
