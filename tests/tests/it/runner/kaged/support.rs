//! A folder with a plugin of kaged, and a gateway in front of it.

use std::{fs, path::Path, time::Duration};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{agent::HttpAnswer, token::token};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::support::{ServedProgram, serve_configured};
use crate::edge::support::send;

/// A manifest with a hook and a tool.
const MANIFEST: &str = "name: program\nversion: 0.1.0\nkaged_api: 1\ndescription: A plugin.\n\
                        command: [/usr/bin/env, python3, ./src/main.py]\n\
                        tools: [{ name: echo, description: Answers with its arguments. }]\n";
const HOOKS: &str = "hooks: [on_session_start]\n";

/// Reads lines and answers `initialize` and `ping`. Other requests go to `handle`, and notifications to `notified`.
const LIBRARY: &str = r#"import json, os, sys, time

def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")

def result(request, value):
    send(id=request["id"], result=value)

def refuse(request, code, message):
    send(id=request["id"], error={"code": code, "message": message})

def inject(request, value):
    result(request, {"inject": value if isinstance(value, str) else json.dumps(value)})

def introduction():
    return {"name": "program", "version": "0.1.0", "api_version": 1, "methods": ["program.echo"],
            "notifications": [], "capabilities_used": []}

def messages():
    for line in iter(sys.stdin.readline, ""):
        yield json.loads(line)

def ask(method, **params):
    "A request to the host. What comes before its response is lost."
    send(id="q", method=method, params=params)
    return next(message for message in messages() if message.get("id") == "q")

def serve(handle, first=introduction(), notified=lambda message: None):
    for message in messages():
        if message.get("method") == "initialize":
            result(message, first)
        elif message.get("method") == "ping":
            result(message, {"status": "ok"})
        elif "id" not in message:
            notified(message)
        else:
            handle(message)
"#;

/// A plugin called `program`.
pub(super) struct KagedPlugin {
    pub(super) directory: TempDir,
    manifest: String,
    entry: Value,
    config: Value,
}

impl KagedPlugin {
    /// A plugin in Python, after its library.
    pub(super) fn new(main: &str) -> Self {
        Self::with_manifest(HOOKS, main)
    }

    /// The same, whose manifest has these keys instead of `hooks`.
    pub(super) fn with_manifest(keys: &str, main: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let entry = json!({ "name": "program", "dialect": "kaged", "directory": "./plugin" });
        let plugin =
            KagedPlugin { directory, manifest: format!("{MANIFEST}{keys}"), entry, config: json!({}) };
        plugin.file("src/main.py", &format!("{LIBRARY}\n{main}"))
    }

    /// Writes a file of the plugin.
    pub(super) fn file(self, name: &str, text: &str) -> Self {
        let path = self.directory.path().join("plugin").join(name);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
        fs::write(path, text).expect("the directory is ours");
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

    /// Writes the manifest and the runner's file.
    pub(super) fn write(&self) -> &Path {
        fs::write(self.directory.path().join("plugin/kaged-plugin.yaml"), &self.manifest)
            .expect("the directory is ours");
        let file = json!({ "data_dir": "homes", "plugins": [self.entry] });
        fs::write(self.directory.path().join("runner.yaml"), file.to_string())
            .expect("the directory is ours");
        self.directory.path()
    }

    /// Serves it at these hooks. A failure is the answer's error.
    pub(super) async fn serve(self, hooks: &[&str]) -> ServedProgram {
        self.serve_bound(&[json!({ "hooks": hooks, "on_error": "fail" })]).await
    }

    /// Serves its tools.
    pub(super) async fn serve_tools(self) -> ServedProgram {
        self.serve_bound(&[json!({})]).await
    }

    pub(super) async fn serve_bound(self, bindings: &[Value]) -> ServedProgram {
        self.write();
        serve_configured(self.directory, self.config, bindings).await
    }
}

impl ServedProgram {
    /// The line of the runner's log with this message.
    pub(super) async fn logged(&self, message: &str) -> Value {
        for _ in 0..500 {
            if let Some(line) = self.runner.lines().into_iter().find(|line| line["message"] == message) {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not logged: {message}");
    }

    /// A call of `program.echo`.
    pub(super) async fn run_tool(&self, tenant: &str, args: Value) -> HttpAnswer {
        let payload = json!({ "tool_name": "program.echo", "args": args });
        self.run_tool_with(tenant, &json!({ "payload": payload, "takes_results": true })).await
    }

    pub(super) async fn run_tool_with(&self, tenant: &str, body: &Value) -> HttpAnswer {
        let path = hookgate_tests::agent::path(ExtensionPoint::BeforeToolCall);
        let asked = self.gateway.http(&token(tenant)).request(Method::POST, path);
        send(asked.header("content-type", "application/json").body(body.to_string())).await
    }

    /// What is injected when a session of `agent` starts.
    pub(super) async fn session_start(&self, tenant: &str, agent: &str) -> HttpAnswer {
        let request = json!({ "body": {}, "context": { "agent_path": agent, "session_id": "s-1" } });
        self.hook_with(tenant, "session_start", &request).await
    }

    /// The same, as JSON.
    pub(super) async fn injected(&self, tenant: &str, agent: &str) -> Value {
        let answer = self.session_start(tenant, agent).await;
        serde_json::from_str(&injected(&answer)).unwrap_or_else(|_| panic!("not JSON: {answer:?}"))
    }
}

/// The text that the first contribution injects.
pub(super) fn injected(answer: &HttpAnswer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let contribution = &answer.body["contributions"][0];
    assert_eq!(contribution["kind"], "inject", "{answer:?}");
    contribution["value"]["content"].as_str().expect("a text").to_owned()
}
