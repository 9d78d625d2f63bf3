//! A stand-in for LibreFang's loop: a process for each call of a hook, and its own behaviour when a hook fails.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::support::example;

/// A longer output of a hook is an error.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

#[derive(Deserialize)]
struct Manifest {
    name: String,
    hook_timeout_secs: u64,
    allow_network: bool,
    hooks: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

/// How a version of LibreFang writes a tool's result.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResultFormat {
    /// `args` and `result`, and a reply of the type `transformed`.
    Result,
    /// `input` and `content`, which is a text, and a reply with `content`.
    Content,
}

/// LibreFang with the drop-in as its only plugin.
pub(super) struct LibreFang {
    folder: PathBuf,
    manifest: Manifest,
    /// LibreFang's own environment.
    environment: BTreeMap<&'static str, String>,
}

impl LibreFang {
    pub(super) fn new(url: &str, token: &str) -> Self {
        let folder = example("librefang-agent");
        let text = std::fs::read_to_string(folder.join("plugin.toml")).expect("there is a manifest");
        let manifest: Manifest = toml::from_str(&text).expect("the manifest is one of LibreFang");
        assert!(manifest.allow_network, "LibreFang may start hooks without a network");
        assert_eq!(Some(&*manifest.name), folder.file_name().and_then(|name| name.to_str()));
        let environment =
            BTreeMap::from([("HOOKGATE_URL", url.to_owned()), ("HOOKGATE_TOKEN", token.to_owned())]);
        LibreFang { folder, manifest, environment }
    }

    /// Sets a variable in `[env]` of the manifest.
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.manifest.env.insert(name.into(), value.into());
        self
    }

    /// What a variable of the manifest is for hooks: a reference counts if it is the whole value.
    fn resolve(&self, value: &str) -> String {
        let reference = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        match reference {
            Some(name) => self.environment.get(name).cloned().unwrap_or_default(),
            None => value.to_owned(),
        }
    }

    /// Calls a hook. The reply is the last line that is JSON.
    pub(super) async fn call(&self, hook: &str, call: &Value) -> Result<Value, String> {
        let script = &self.manifest.hooks[hook];
        let mut command = Command::new("python3");
        command.arg(self.folder.join(script)).env_clear().kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LIBREFANG_RUNTIME", "python");
        command.envs(self.manifest.env.iter().map(|(name, value)| (name, self.resolve(value))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("python3 can be run");
        let mut stdin = process.stdin.take().expect("it is piped");
        let line = format!("{call}\n");
        let run = async {
            stdin.write_all(line.as_bytes()).await.expect("the hook reads its call");
            drop(stdin);
            process.wait_with_output().await.expect("the hook ends")
        };
        let limit = Duration::from_secs(self.manifest.hook_timeout_secs);
        let output = timeout(limit, run).await.map_err(|_| "the hook is slow".to_owned())?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() || output.stdout.len() > MAX_OUTPUT_BYTES {
            return Err(format!("{}: {log}", output.status));
        }
        let lines = output.stdout.split(|byte| *byte == b'\n').rev();
        lines.filter_map(|line| serde_json::from_slice(line).ok()).next().ok_or(log)
    }

    /// The memories for a message: LibreFang's own, then those of the hook.
    pub(super) async fn ingest(&self, message: &str, peer: Option<&str>) -> Vec<String> {
        let call = json!({ "type": "ingest", "agent_id": "agent-1", "message": message, "peer_id": peer });
        let reply = self.call("ingest", &call).await.unwrap_or_default();
        let memories = reply["memories"].as_array().into_iter().flatten();
        let contents = memories.filter_map(|memory| memory["content"].as_str());
        ["LibreFang's own"].into_iter().chain(contents).map(str::to_owned).collect()
    }

    /// The messages that `assemble` or `compact` leaves of these, or LibreFang's own choice.
    pub(super) async fn window(&self, hook: &str, messages: &Value) -> Value {
        let call = json!({
            "type": hook, "agent_id": "agent-1", "messages": messages, "model": "m-1", "context_window_tokens": 9,
        });
        let mut reply = self.call(hook, &call).await.unwrap_or_default();
        match reply["messages"].as_array().is_some_and(|messages| !messages.is_empty()) {
            true => reply["messages"].take(),
            false => json!("LibreFang's own"),
        }
    }

    /// What the model sees of a tool's result. If the hook fails, that is the result.
    pub(super) async fn tool_result(&self, format: ResultFormat, result: &Value) -> Value {
        let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
        let call = match format {
            ResultFormat::Result => json!({
                "type": "transform_tool_result", "agent_id": "agent-1", "tool_name": "mail.read",
                "args": { "id": 7 }, "result": result,
            }),
            ResultFormat::Content => json!({
                "type": "transform_tool_result", "agent_id": "agent-1", "tool_name": "mail.read",
                "input": { "id": 7 }, "content": text, "tool_use_id": "call-1", "status": "success",
            }),
        };
        let reply = self.call("transform_tool_result", &call).await.unwrap_or_default();
        match format {
            ResultFormat::Result if reply["type"] == "transformed" => reply["result"].clone(),
            ResultFormat::Result => result.clone(),
            ResultFormat::Content if reply["content"].is_string() => reply["content"].clone(),
            ResultFormat::Content => json!(text),
        }
    }
}
