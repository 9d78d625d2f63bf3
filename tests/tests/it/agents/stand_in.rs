//! Runs the stand-ins for systems in TypeScript, each in a project as the drop-in's user has it.

use std::{fs, os::unix::fs::symlink, path::Path, process::Stdio, time::Duration};

use hookgate_proto::types::v1::{
    AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch,
};
use hookgate_tests::{port::ReservedPort, repository, typescript};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::support::example;

const PATIENCE: Duration = Duration::from_secs(60);
/// A larger integer than JavaScript counts to, which its numbers still hold.
pub(super) const LARGE: u64 = 9_007_199_254_740_994;

/// What a stand-in printed, and what the drop-in logged.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) outcome: Value,
    pub(super) log: String,
}

/// Runs the stand-in of a system. None of the secrets may be in what it prints.
pub(super) async fn run(system: &str, scenario: &Value, secrets: &[&str]) -> Run {
    let (project, program) = project(system).await;
    let mut command = Command::new("node");
    command.args(["--import", "tsx", &program]).current_dir(project.path()).env_clear().kill_on_drop(true);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", project.path());
    for (number, secret) in secrets.iter().enumerate() {
        command.env(format!("SECRET_{number}"), secret);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("node can be run");
    let mut stdin = process.stdin.take().expect("it is piped");
    stdin.write_all(scenario.to_string().as_bytes()).await.expect("it reads the scenario");
    drop(stdin);
    let output = timeout(PATIENCE, process.wait_with_output()).await.expect("it ends").expect("it is ours");
    let (printed, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{log}");
    for secret in secrets {
        assert!(!printed.contains(secret) && !log.contains(secret), "a secret shows: {printed}\n{log}");
    }
    Run { outcome: serde_json::from_str(&printed).expect("it prints JSON"), log }
}

/// A project with the drop-in, its packages and the stand-in, and the stand-in's file.
async fn project(system: &str) -> (TempDir, String) {
    let packages = tokio::task::spawn_blocking(|| (typescript::sdk(), typescript::runner()));
    let (sdk, runner) = packages.await.expect("the packages can be built");
    let project = tempfile::tempdir().expect("there is room");
    let modules = project.path().join("node_modules");
    link(sdk, &modules.join("@hookgate/sdk"));
    link(&sdk.join("node_modules/@types/node"), &modules.join("@types/node"));
    for package in ["effect", "tsx"] {
        link(&runner.join("node_modules").join(package), &modules.join(package));
    }
    fs::write(project.path().join("package.json"), r#"{"type":"module"}"#).expect("it is writable");
    let program = format!("{system}_loop.mjs");
    let stand_in = repository::root().join("tests/tests/it/agents").join(&program);
    for (file, name) in
        [(stand_in, &*program), (example(&format!("{system}-agent")).join("hookgate.ts"), "hookgate.ts")]
    {
        fs::copy(file, project.path().join(name)).expect("it can be copied");
    }
    (project, program)
}

fn link(target: &Path, at: &Path) {
    fs::create_dir_all(at.parent().expect("it is in a folder")).expect("it is writable");
    symlink(target, at).expect("it is writable");
}

/// An address where nobody listens, as long as the port is held.
pub(super) fn nobody() -> (ReservedPort, String) {
    let port = ReservedPort::new().expect("a port is free");
    let address = format!("http://{}", port.address());
    (port, address)
}

pub(super) fn text_patch(text: &str) -> BeforeLlmRequestPatch {
    BeforeLlmRequestPatch { text: Some(text.into()), ..BeforeLlmRequestPatch::default() }
}

pub(super) fn name_patch(name: &str) -> BeforeToolCallPatch {
    BeforeToolCallPatch { tool_name: Some(name.into()), ..BeforeToolCallPatch::default() }
}

pub(super) fn args_patch(args: &Value) -> BeforeToolCallPatch {
    BeforeToolCallPatch { args: Some(args.to_string().into()), ..BeforeToolCallPatch::default() }
}

pub(super) fn result_patch(result: &Value) -> AfterToolResultPatch {
    AfterToolResultPatch { result: Some(result.to_string().into()), ..AfterToolResultPatch::default() }
}

pub(super) fn content_patch(content: &str) -> BeforeResponsePatch {
    BeforeResponsePatch { content: Some(content.into()), ..BeforeResponsePatch::default() }
}

#[tokio::test]
async fn the_drop_ins_in_typescript_have_the_right_types() {
    let options = r#"{ "extends": "EXAMPLES/tsconfig.json", "compilerOptions": { "typeRoots": ["node_modules/@types"] },
        "include": ["hookgate.ts"] }"#;
    let examples = tokio::task::spawn_blocking(typescript::examples).await.expect("they can be prepared");
    let options = options.replace("EXAMPLES", &examples.display().to_string());
    for system in ["dexto", "mastermind", "drover"] {
        let (project, _) = project(system).await;
        fs::write(project.path().join("tsconfig.json"), &options).expect("it is writable");
        let mut tsc = Command::new("node");
        tsc.arg(examples.join("node_modules/typescript/bin/tsc")).current_dir(project.path());
        let ran = tsc.output().await.expect("node can be run");
        assert!(ran.status.success(), "{system}: {}", String::from_utf8_lossy(&ran.stdout));
    }
}
