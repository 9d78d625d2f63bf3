//! LiteLLM's proxy as its own process, with one worker and a guard that lets everything pass.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{self, Path},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;

use crate::{BenchError, http_probe, process::KilledChild};

/// The guard, in the words of LiteLLM's documentation.
const GUARD: &str = "\
from litellm.integrations.custom_guardrail import CustomGuardrail


class NoOp(CustomGuardrail):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        return data
";
/// The settings that cost it least and that need no internet. It has the gateway's paths.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true"),
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("LITELLM_LOG", "ERROR"),
    ("LITELLM_TELEMETRY", "False"),
    ("SERVER_ROOT_PATH", "/openai"),
];
/// The time between two looks at its port.
const READY_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum time until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running LiteLLM.
pub(crate) struct LiteLlmProcess {
    child: KilledChild,
    _directory: TempDir,
    /// `host:port`.
    pub(crate) address: String,
}

impl LiteLlmProcess {
    /// Starts `binary` before the model server `provider`, and waits until it is ready.
    pub(crate) fn start(binary: &Path, provider: &str) -> Result<Self, BenchError> {
        let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
        let model = json!({ "model": "openai/gpt-5", "api_base": format!("{provider}/v1"), "api_key": "sk-of-the-operator" });
        let guard = json!({ "guardrail": "guard.NoOp", "mode": "pre_call", "default_on": true });
        let config = json!({
            "model_list": [{ "model_name": "*", "litellm_params": model }],
            "guardrails": [{ "guardrail_name": "no-op", "litellm_params": guard }],
        });
        fs::write(directory.path().join("guard.py"), GUARD)?;
        fs::write(directory.path().join("config.yaml"), config.to_string())?;
        // It can't say which port it chose.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // It runs in the directory of its configuration.
        let mut command = Command::new(path::absolute(binary)?);
        command.args(["--config", "config.yaml", "--host", "127.0.0.1", "--num_workers", "1"]);
        command.args(["--port", &port.to_string()]).envs(ENVIRONMENT).current_dir(directory.path());
        let log = File::create(directory.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().map_err(|error| format!("{}: {error}", binary.display()))?;
        let (mut child, address) = (KilledChild(child), format!("127.0.0.1:{port}"));
        // Any failure means "not yet".
        let is_ready = || http_probe::get(&address, "/health/liveliness").ok()?.is_ok.then_some(());
        child.wait_until_ready(READY_INTERVAL, READY_TIMEOUT, is_ready).map_err(|error| {
            let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            format!("LiteLLM: {error}\n{log}")
        })?;
        Ok(LiteLlmProcess { child, _directory: directory, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }
}
