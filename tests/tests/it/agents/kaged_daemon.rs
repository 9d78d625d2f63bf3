//! A stand-in for kaged's daemon: it starts the plugin, does the handshake, and calls its hooks one after the other.

use std::{
    collections::BTreeMap,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::support::example;

/// For what isn't a hook: it is answered at once.
const PATIENCE: Duration = Duration::from_secs(35);

pub(super) fn manifest() -> Value {
    let text = std::fs::read_to_string(example("kaged-agent").join("kaged-plugin.yaml"));
    serde_saphyr::from_str(&text.expect("there is a manifest")).expect("the manifest is YAML")
}

/// The daemon with the drop-in as its only plugin.
pub(super) struct Kaged {
    process: Child,
    /// `None` after [`Self::hang_up`].
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    next_id: u64,
    /// Answers that came while another one was waited for.
    answers: BTreeMap<u64, Value>,
    hook_timeout: Duration,
}

impl Kaged {
    /// Starts the plugin with these variables in the manifest's `env`, and does the handshake.
    pub(super) async fn start(env: &[(&str, &str)]) -> Self {
        let manifest = manifest();
        let words = manifest["command"].as_array().expect("a list").iter().filter_map(Value::as_str);
        // The plugin is for Bun and for Node, and Node is what the tests have.
        let words: Vec<_> = words.map(|word| if word == "bun" { "node" } else { word }).collect();
        let folder = example("kaged-agent");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&folder).env_clear().kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &folder);
        command.env("KAGED_PLUGIN_NAME", "hookgate").env("KAGED_API_VERSION", "1").envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("the plugin can be run");
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let hook_timeout = Duration::from_secs(manifest["hook_timeout_sec"].as_u64().expect("a number"));
        let answers = BTreeMap::new();
        let mut kaged = Kaged { process, stdin, stdout, next_id: 1, answers, hook_timeout };
        kaged.handshake(&manifest).await;
        kaged
    }

    async fn handshake(&mut self, manifest: &Value) {
        let params = json!({
            "daemon_version": "0.1.0", "api_version": 1, "plugin_name": manifest["name"],
            "storage_available": false, "projects": ["proj-1"],
        });
        let answer = self.request("initialize", params).await;
        let answer = &answer["result"];
        assert_eq!((&answer["name"], &answer["version"]), (&manifest["name"], &manifest["version"]));
        assert_eq!(
            (&answer["api_version"], &answer["methods"]),
            (&manifest["kaged_api"], &manifest["methods"])
        );
        let capabilities = manifest["capabilities"].as_array().expect("a list");
        let used = answer["capabilities_used"].as_array().expect("a list");
        assert!(used.iter().all(|capability| capabilities.contains(capability)), "{used:?}");
        self.notify("initialized", json!({})).await;
    }

    /// Makes hooks time out earlier, for plugins that never answer.
    pub(super) fn hook_timeout(&mut self, limit: Duration) {
        self.hook_timeout = limit;
    }

    async fn write(&mut self, message: &Value) {
        self.write_text(&format!("{message}\n")).await;
    }

    pub(super) async fn write_text(&mut self, text: &str) {
        self.write_bytes(text.as_bytes()).await;
    }

    pub(super) async fn write_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("the daemon hasn't hung up");
        stdin.write_all(bytes).await.expect("the plugin reads");
    }

    /// Ends the plugin's standard input, as a daemon does that is killed.
    pub(super) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Sends a request, and returns its id.
    pub(super) async fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    pub(super) async fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// The next line of the plugin, which is an answer.
    pub(super) async fn line(&mut self) -> Value {
        let line = self.stdout.next_line().await.expect("the answer is text").expect("the plugin runs");
        let answer: Value = serde_json::from_str(&line).expect("a line is a message");
        assert_eq!(answer["jsonrpc"], "2.0");
        answer
    }

    /// The answer to the request `id`.
    pub(super) async fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let answer = self.line().await;
            self.answers.insert(answer["id"].as_u64().expect("an answer has an integer id"), answer);
        }
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        timeout(PATIENCE, self.answer(id)).await.expect("it is answered")
    }

    /// Calls a hook in a session. An error, or no answer in time, counts as null.
    pub(super) async fn hook(&mut self, hook: &str, mut params: Value) -> Value {
        params["_context"] = json!({
            "operator_id": "op-1", "project_id": "proj-1", "agent_path": "primary/helper",
            "session_id": "ses-1", "request_id": "req-1",
        });
        let id = self.send(&format!("kaged.hook.{hook}"), params).await;
        let limit = self.hook_timeout;
        let answer = timeout(limit, self.answer(id)).await;
        answer.map_or(Value::Null, |mut answer| answer["result"].take())
    }

    /// Waits for the plugin's end.
    pub(super) async fn ended(&mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.process.wait()).await.expect("the plugin ends");
        ended.expect("the plugin is our child")
    }
}
