//! Tests several plugins that one process serves at one endpoint.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    gateway::{Gateway, Setup, binary},
    token::token,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::process::{PluginProcess, unix};
use crate::cli::support::Folder;

/// Two reference plugins at one socket.
async fn process(directory: &TempDir) -> PluginProcess {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    let mut command = Command::new(binary());
    let listen = unix(directory.path(), "plugins");
    command.args(["plugin", "run", "audit-log", "tenant-auth", "--listen", &listen]);
    PluginProcess::run(command).await
}

/// A gateway's file with the plugins `of_gateway` at `process`.
fn setup(process: &PluginProcess, directory: &TempDir, of_gateway: &[&str]) -> Setup {
    let entry = |name: &&str| match *name {
        "audit-log" => {
            let path = directory.path().join("audit.jsonl");
            json!({ "name": name, "endpoint": process.address, "config": { "path": path } })
        }
        _ => json!({ "name": name, "endpoint": process.address, "required": false }),
    };
    let plugins: Vec<_> = of_gateway.iter().map(entry).collect();
    let own = match of_gateway.contains(&"tenant-auth") {
        true => json!({ "tenant-auth": { "allowed_tools": ["fs.read"] } }),
        false => json!({}),
    };
    let bindings = json!([
        { "plugin": "tenant-auth", "tenant": "*", "priority": 1 },
        { "plugin": "audit-log", "tenant": "*", "priority": 2, "mode": "observe" },
    ]);
    let bindings: Vec<&Value> = bindings
        .as_array()
        .into_iter()
        .flatten()
        .filter(|binding| of_gateway.iter().any(|name| binding["plugin"] == *name))
        .collect();
    Gateway::with()
        .set("/tenants/list", json!([{ "id": "acme", "config": own }]))
        .set("/plugins", json!(plugins))
        .set("/bindings", json!(bindings))
}

async fn block_code(gateway: &Gateway, tool: &str) -> Value {
    let payload = json!({ "tool_name": tool, "args": {} });
    let answer = gateway.http(&token("acme")).call(ExtensionPoint::BeforeToolCall, payload).await;
    answer.body["block"]["code"].clone()
}

#[tokio::test]
async fn plugins_of_one_process_come_and_go_separately() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let process = process(&directory).await;
    let gateway = setup(&process, &directory, &["audit-log", "tenant-auth"]).start().await;
    assert_eq!(block_code(&gateway, "fs.write").await, "TOOL_NOT_ALLOWED");
    assert_eq!(block_code(&gateway, "fs.read").await, Value::Null);

    gateway.reload(&setup(&process, &directory, &["tenant-auth"]));
    gateway.wait_for_revision(2).await;
    assert_eq!(block_code(&gateway, "fs.write").await, "TOOL_NOT_ALLOWED");
    gateway.reload(&setup(&process, &directory, &["audit-log", "tenant-auth"]));
    gateway.wait_for_revision(3).await;
    assert_eq!(block_code(&gateway, "fs.write").await, "TOOL_NOT_ALLOWED");

    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert!(!exit.log.to_string().contains("did not answer"), "{}", exit.log);
    let seen = std::fs::read_to_string(directory.path().join("audit.jsonl")).expect("the log was written");
    assert_eq!(seen.lines().count(), 3, "the call in between was not its own: {seen}");
}

#[tokio::test]
async fn a_name_that_the_process_does_not_serve_is_refused_with_those_that_it_does() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let process = process(&directory).await;
    let folder = Folder::new();
    folder.write("f.yaml", &setup(&process, &directory, &["webhook"]).text());
    let ran = folder.run(&["config", "check", "f.yaml", "--connect"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = ran.stderr;
    assert!(said.contains("NAME_MISMATCH"), "{said}");
    assert!(said.contains("no plugin `webhook` is served here, only `audit-log`, `tenant-auth`"), "{said}");
}

#[tokio::test]
async fn one_of_the_plugins_is_tested_by_its_name() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let process = process(&directory).await;
    let folder = Folder::new();
    let test =
        ["plugin", "test", &process.address, "before_tool_call", "--tool", "fs.read", "--tenant-config"];
    let test = [&test[..], &[r#"{"allowed_tools":["fs.*"]}"#]].concat();
    let unnamed = folder.run(&test).await;
    assert_eq!(unnamed.code, Some(1), "{unnamed:?}");
    assert!(unnamed.stderr.contains("= --name says which plugin is meant"), "{unnamed:?}");
    let named = folder.run(&[&test[..], &["--name", "tenant-auth"]].concat()).await;
    assert_eq!((named.code, named.stderr.as_str()), (Some(0), ""), "{named:?}");

    let checked = ["conformance", &process.address, "--name", "tenant-auth", "--tenant-config"];
    let checked = folder.run(&[&checked[..], &[r#"{"allowed_tools":["fs.*"]}"#]].concat()).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
}
