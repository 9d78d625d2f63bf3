//! A runner with one program, and a gateway with two tenants in front of it.

use std::{fs, path::Path, time::Duration};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::{Gateway, binary},
    token::token,
};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    edge::support::send,
    plugins::process::{PluginProcess, unix},
};

pub(super) const SECRET: &str = "s3cr3t-of-the-runner";

/// Shell functions: `next_call` reads a call into `$call`, and `reply` writes a reply to it, with its `request_id`.
pub(super) const FUNCTIONS: &str = r#"next_call() { IFS= read -r call && called "$call"; }
called() { id=${1#*'"request_id":"'}; id=${id%%'"'*}; }
reply() { printf '%s,"request_id":"%s"}\n' "${1%\}}" "$id"; }
"#;

/// A script that runs `body` for each call.
pub(super) fn each_call(body: &str) -> String {
    format!("{FUNCTIONS}while next_call; do\n{body}\ndone\n")
}

/// A served program.
pub(super) struct ServedProgram {
    pub(super) directory: TempDir,
    pub(super) runner: PluginProcess,
    pub(super) gateway: Gateway,
}

/// Writes `script` and a file with its entry, to which `members` are added.
pub(super) fn write(directory: &Path, script: &str, members: &Value) {
    fs::write(directory.join("program"), script).expect("the directory is ours");
    let mut entry = json!({
        "name": "program",
        "version": "1.0.0",
        "command": ["sh", "./program"],
        "points": ["before_tool_call"],
    });
    let entry_members = entry.as_object_mut().expect("it is an object");
    entry_members.extend(members.as_object().expect("it is an object").clone());
    let file = json!({ "data_dir": "homes", "plugins": [entry] });
    fs::write(directory.join("runner.yaml"), file.to_string()).expect("the directory is ours");
}

/// Starts a runner with the file in `directory`.
pub(super) async fn run(directory: &Path) -> PluginProcess {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    run_command(Command::new(binary()), directory).await
}

/// Starts a runner with the file in `directory` by a command that begins so.
pub(super) async fn run_command(mut command: Command, directory: &Path) -> PluginProcess {
    command.args(["runner", "stdio"]).arg(directory.join("runner.yaml"));
    command.args(["--listen", &unix(directory, "s")]).env("RUNNERS_OWN", SECRET);
    PluginProcess::run(command).await
}

pub(super) async fn serve(script: &str, members: Value) -> ServedProgram {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    write(directory.path(), script, &members);
    serve_in(directory).await
}

/// Serves what was written in `directory`.
pub(super) async fn serve_in(directory: TempDir) -> ServedProgram {
    serve_bound(directory, &[json!({})]).await
}

/// Serves what was written in `directory`, to steps with these members of their bindings.
pub(super) async fn serve_bound(directory: TempDir, bindings: &[Value]) -> ServedProgram {
    serve_configured(directory, json!({ "word": "a-word-of-the-configuration" }), bindings).await
}

/// Serves what was written in `directory`, with a plugin-level configuration.
pub(super) async fn serve_configured(directory: TempDir, config: Value, bindings: &[Value]) -> ServedProgram {
    let runner = run(directory.path()).await;
    serve_by(runner, directory, config, bindings).await
}

/// Serves with a runner that was started in `directory`.
pub(super) async fn serve_by(
    runner: PluginProcess,
    directory: TempDir,
    config: Value,
    bindings: &[Value],
) -> ServedProgram {
    let plugin = json!({
        "name": "program",
        "endpoint": runner.address,
        "config": config,
        "breaker": { "failures": 1000 },
        // Programs start slowly while all other tests run.
        "limits": { "timeout": "25s" },
    });
    let gateway = Gateway::with().tenant("acme").tenant("globex").set("/plugins", json!([plugin]));
    let gateway = gateway.set("/limits", json!({ "budget": "30s" }));
    let gateway = (10..)
        .zip(bindings)
        .fold(gateway, |gateway, (priority, members)| gateway.binding_with("program", priority, members))
        .start()
        .await;
    ServedProgram { directory, runner, gateway }
}

impl ServedProgram {
    /// A call of `tool` by `tenant`.
    pub(super) async fn call(&self, tenant: &str, tool: &str) -> HttpAnswer {
        self.call_with(tenant, tool, json!({})).await
    }

    pub(super) async fn call_with(&self, tenant: &str, tool: &str, args: Value) -> HttpAnswer {
        let payload = json!({ "tool_name": tool, "args": args });
        self.gateway.http(&token(tenant)).call(ExtensionPoint::BeforeToolCall, payload).await
    }

    /// A call after a tool by `tenant`.
    pub(super) async fn tool_result(&self, tenant: &str, payload: Value) -> HttpAnswer {
        self.gateway.http(&token(tenant)).call(ExtensionPoint::AfterToolResult, payload).await
    }

    /// A call at `hook` by `tenant`.
    pub(super) async fn hook(&self, tenant: &str, hook: &str, body: Value) -> HttpAnswer {
        self.hook_with(tenant, hook, &json!({ "body": body })).await
    }

    /// A call at `hook` by `tenant`, with the whole request.
    pub(super) async fn hook_with(&self, tenant: &str, hook: &str, request: &Value) -> HttpAnswer {
        let asked = self.gateway.http(&token(tenant)).request(Method::POST, &format!("/v1/hooks/{hook}"));
        send(asked.header("content-type", "application/json").body(request.to_string())).await
    }

    /// The status and the message with which the runner answered the call that got `answer`.
    pub(super) async fn fault(&self, answer: &HttpAnswer) -> (String, String) {
        let line = self.fault_line(answer).await;
        let text = |member: &str| line[member].as_str().expect("a text").to_owned();
        (text("code"), text("error"))
    }

    /// The line of the runner's log about that.
    pub(super) async fn fault_line(&self, answer: &HttpAnswer) -> Value {
        let is_it = |line: &Value| {
            line["message"] == "the program gave no valid reply"
                && line["request_id"] == answer.body["request_id"]
        };
        for _ in 0..500 {
            if let Some(line) = self.runner.lines().into_iter().find(is_it) {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no fault is logged for {answer:?}");
    }
}

/// The message of the first notice.
pub(super) fn notice(answer: &HttpAnswer) -> &str {
    answer.body["notices"][0]["message"].as_str().unwrap_or_else(|| panic!("no notice: {answer:?}"))
}

/// The processes with `word` in their command line.
pub(super) fn processes(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("Linux has it").flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.split('\0').any(|argument| argument == word)).collect()
}

/// Waits until one process has `word` in its command line: a child that was forked may not have executed it yet.
pub(super) async fn until_running(word: &str) {
    for _ in 0..500 {
        if processes(word).len() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not one process: {:?}", processes(word));
}

/// Waits until no process has `word` in its command line.
pub(super) async fn until_gone(word: &str) {
    for _ in 0..500 {
        if processes(word).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("left behind: {:?}", processes(word));
}
