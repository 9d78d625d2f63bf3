//! Tests the reference plugins as processes: `hookgate plugin run NAME --listen ADDR`.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::{Gateway, Setup, binary},
    token::{AUDIENCE, ISSUER, SECRET, token},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use super::process::{PluginProcess, unix};

async fn run(name: &str, listen: &str) -> PluginProcess {
    PluginProcess::reference(name, listen, &[]).await
}

/// A gateway with these plugins at endpoints, tenants and bindings.
fn gateway(tenants: &Value, plugins: &Value, bindings: &Value) -> Setup {
    let issuer = json!({
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "keys": [{ "alg": "HS256", "secret": SECRET }],
        "tenants": "*",
    });
    let file = json!({
        "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" },
        "auth": { "issuers": [issuer] },
        "tenants": { "list": tenants },
        "plugins": plugins,
        "bindings": bindings,
        "drain": { "grace": "0ms", "finish": "5s" },
        "log": { "format": "json" },
    });
    Setup::file(&file.to_string())
}

async fn tool(gateway: &Gateway, tenant: &str, name: &str) -> HttpAnswer {
    let payload = json!({ "tool_name": name, "args": { "secret": "canary" } });
    gateway.http(&token(tenant)).call(ExtensionPoint::BeforeToolCall, payload).await
}

#[tokio::test]
async fn tenant_auth_lets_each_tenant_use_its_own_tools() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = run("tenant-auth", &unix(directory.path(), "tenant-auth")).await;
    let tools = |allowed: Value| json!({ "tenant-auth": allowed });
    let tenants = json!([
        { "id": "acme", "config": tools(json!({ "allowed_tools": ["fs.*"], "blocked_tools": ["fs.write"] })) },
        { "id": "globex", "config": tools(json!({ "allowed_tools": ["*"] })) },
        { "id": "initech" },
    ]);
    let plugins = json!([{ "name": "tenant-auth", "endpoint": plugin.address }]);
    let bindings = json!([{ "plugin": "tenant-auth", "tenant": "*", "priority": 100 }]);
    let gateway = gateway(&tenants, &plugins, &bindings).start().await;
    for (tenant, name, status) in [
        ("acme", "fs.read", 200),
        ("acme", "fs.write", 403),
        ("acme", "web.get", 403),
        ("globex", "fs.write", 200),
        ("initech", "fs.read", 403), // absent lists allow nothing
    ] {
        let answer = tool(&gateway, tenant, name).await;
        assert_eq!(answer.status, status, "{tenant} {name}: {answer:?}");
    }
    let answer = tool(&gateway, "acme", "web.get").await;
    let message = "Tool 'web.get' is not available on your plan.";
    assert_eq!(
        (&answer.body["block"]["code"], &answer.body["block"]["message"]),
        (&json!("TOOL_NOT_ALLOWED"), &json!(message)),
        "{answer:?}"
    );
    let notice = json!({
        "plugin": "tenant-auth",
        "kind": "block",
        "code": "TOOL_NOT_ALLOWED",
        "message": message,
        "details": { "tool_name": "web.get", "allowed": ["fs.*"] },
    });
    assert_eq!(answer.body["notices"], json!([notice]), "{answer:?}");
}

#[tokio::test]
async fn audit_log_writes_a_line_for_every_call_and_how_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("audit.jsonl");
    let log = run("audit-log", "http://127.0.0.1:0").await;
    let guard = run("tenant-auth", &unix(directory.path(), "tenant-auth")).await;
    let tenants = json!([{ "id": "acme", "config": { "tenant-auth": { "allowed_tools": ["fs.read"] } } }]);
    let plugins = json!([
        { "name": "audit-log", "endpoint": log.address, "required": true, "config": { "path": file } },
        { "name": "tenant-auth", "endpoint": guard.address },
    ]);
    let bindings = json!([
        { "plugin": "tenant-auth", "tenant": "*", "priority": 100 },
        { "plugin": "audit-log", "tenant": "*", "priority": 1000, "mode": "observe" },
    ]);
    let gateway = gateway(&tenants, &plugins, &bindings).start().await;
    let agent = gateway.http(&token("acme"));
    agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "canary" })).await;
    tool(&gateway, "acme", "fs.read").await;
    tool(&gateway, "acme", "fs.write").await;
    let result = json!({ "tool_name": "fs.read", "result": "canary", "success": true });
    agent.call(ExtensionPoint::AfterToolResult, result).await;
    agent.call(ExtensionPoint::BeforeResponse, json!({ "content": "canary" })).await;
    let exit = gateway.stop().await; // observers are drained before it exits
    assert_eq!(exit.code, Some(0), "{}", exit.log);

    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("canary"), "facts, never values: {text}");
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["request_id"].to_string()); // UUIDv7: in the order of the calls
    let facts = |line: &Value| {
        ["tenant", "operator", "point", "tool", "decision", "plugin", "code"].map(|name| line[name].clone())
    };
    let who = ("acme", "operator-of-acme");
    let expected = [
        json!([who.0, who.1, "before_llm_request", null, "continue", null, null]),
        json!([who.0, who.1, "before_tool_call", "fs.read", "continue", null, null]),
        json!([who.0, who.1, "before_tool_call", "fs.write", "block", "tenant-auth", "TOOL_NOT_ALLOWED"]),
        json!([who.0, who.1, "after_tool_result", "fs.read", "continue", null, null]),
        json!([who.0, who.1, "before_response", null, "continue", null, null]),
    ];
    assert_eq!(lines.iter().map(|line| json!(facts(line))).collect::<Vec<_>>(), expected, "{text}");
}

#[tokio::test]
async fn a_plugin_may_write_to_its_standard_output() {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    let mut command = Command::new(binary());
    command.args(["plugin", "run", "audit-log", "--listen", "http://127.0.0.1:0"]).stdout(Stdio::piped());
    let mut log = PluginProcess::run(command).await;
    let mut lines = BufReader::new(log.take_stdout()).lines();
    let plugins = json!([{ "name": "audit-log", "endpoint": log.address }]);
    let bindings = json!([{ "plugin": "audit-log", "tenant": "*", "priority": 1 }]);
    let gateway = gateway(&json!([{ "id": "acme" }]), &plugins, &bindings).start().await;
    for name in ["fs.read", "fs.write"] {
        assert_eq!(tool(&gateway, "acme", name).await.status, 200);
        let line = timeout(Duration::from_secs(35), lines.next_line()).await.expect("it writes in time");
        let line = line.expect("it is text").expect("the process runs still");
        let line: Value = serde_json::from_str(&line).expect("a line is JSON");
        assert_eq!(line["tool"], name, "{line}");
    }
}

#[tokio::test]
async fn a_plugin_process_ends_with_code_0_on_sigterm_and_removes_its_socket() {
    for name in ["tenant-auth", "audit-log"] {
        let directory = tempfile::tempdir().unwrap();
        let mut plugin = run(name, &unix(directory.path(), name)).await;
        let socket = directory.path().join(format!("{name}.sock"));
        assert!(socket.exists());
        let status = plugin.terminate().await;
        assert_eq!((status.code(), socket.exists()), (Some(0), false), "{name}");
    }
}

#[tokio::test]
async fn help_says_which_plugins_there_are_and_where_they_can_listen() {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    let output = Command::new(binary()).args(["plugin", "run", "--help"]).output().await.unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for text in ["tenant-auth", "audit-log", "unix:///path", "http://host:port", "Example: "] {
        assert!(help.contains(text), "no `{text}` in\n{help}");
    }
    let wrong = Command::new(binary()).args(["plugin", "run", "tenant-auth", "--listen", "tcp:1"]).output();
    let wrong = wrong.await.unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("unix:///path") || said.contains("http://"), "{said}");
}
