//! The examples of plugins in each language: their own tests pass, and each does its work as a process behind a real gateway.

use std::{convert::Infallible, path::Path};

use bytes::Bytes;
use hookgate_proto::types::v1::ExtensionPoint::{AfterToolResult, BeforeResponse, BeforeToolCall};
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::Gateway,
    python,
    token::token,
    typescript::{self, JsRuntime},
};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};

use crate::plugins::process::{PluginProcess, unix};

/// The arguments that serve an example in a language at an endpoint. The example has the plugin's name.
type Serve = fn(example: &str, endpoint: &str) -> Vec<String>;

fn serve_typescript(example: &str, endpoint: &str) -> Vec<String> {
    let module = typescript::examples().join(format!("{example}.ts"));
    typescript::serve_module(JsRuntime::Node, &module, endpoint)
}

fn serve_python(example: &str, endpoint: &str) -> Vec<String> {
    let module = python::examples().join(format!("{}.py", example.replace('-', "_")));
    python::serve_module(&module, endpoint)
}

/// Makes a test of each check for each language.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        mod in_typescript {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::serve_typescript).await;
            })*
        }

        mod in_python {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::serve_python).await;
            })*
        }
    };
}

checks!(
    redaction_masks_a_tools_result_and_keeps_the_rest,
    tool_allow_list_blocks_the_tools_that_a_tenant_does_not_list,
    quota_blocks_a_tenants_third_call_and_says_when_to_try_again,
    llm_judge_blocks_what_the_model_refuses_and_everything_without_the_model,
    audit_logs_who_asked_and_what_was_decided_and_no_payload,
);

/// Runs a program in a folder, which must succeed.
async fn succeeds(folder: &Path, program: &str, args: &[&str]) -> String {
    let ran = Command::new(program).args(args).current_dir(folder).output().await.unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{args:?}: {printed}{}", String::from_utf8_lossy(&ran.stderr));
    printed
}

/// The names of the files with tests, one for each example.
fn tests_in(folder: &Path, is_test: impl Fn(&str) -> bool) -> Vec<String> {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let tests: Vec<_> = names.filter(|name| is_test(name)).collect();
    assert_eq!(tests.len(), 5, "one test for each example: {tests:?}");
    tests
}

/// Serves an example.
async fn serve(serve: Serve, example: &str, folder: &Path) -> PluginProcess {
    let (example, endpoint) = (example.to_owned(), unix(folder, example));
    let command = tokio::task::spawn_blocking(move || serve(&example, &endpoint)).await.unwrap();
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]);
    PluginProcess::run(process).await
}

/// A gateway with one example for the tenants `acme` and `globex`.
struct ExampleGateway {
    gateway: Gateway,
    plugin: PluginProcess,
    _folder: tempfile::TempDir,
}

impl ExampleGateway {
    async fn start(language: Serve, example: &str, config: Value, grants: &[&str], binding: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plugin = serve(language, example, folder.path()).await;
        let entry =
            json!({ "name": example, "endpoint": plugin.address, "config": config, "grants": grants });
        let database = format!("sqlite:{}", folder.path().join("data.db").display());
        let setup = Gateway::with().tenant("acme").tenant("globex").set("/plugins", json!([entry]));
        let setup = setup.binding_with(example, 1, &binding).store(&database, folder.path());
        let gateway = setup.set("/server/host_addr", "127.0.0.1:0").start().await;
        ExampleGateway { gateway, plugin, _folder: folder }
    }

    /// Calls `before_tool_call` for a tenant.
    async fn tool_call(&self, tenant: &str, tool: &str) -> HttpAnswer {
        let payload = json!({ "tool_name": tool, "args": { "secret": "hush" } });
        self.gateway.http(&token(tenant)).call(BeforeToolCall, payload).await
    }
}

/// A model that refuses answers with the word `medicine`. Returns its base URL.
async fn start_model() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serve = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(complete));
            tokio::spawn(serve);
        }
    });
    url
}

async fn complete(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/chat/completions");
    let body = request.into_body().collect().await.expect("the body arrives").to_bytes();
    let allowed = !String::from_utf8_lossy(&body).contains("medicine");
    let verdict = json!({ "allowed": allowed }).to_string();
    let answer = json!({ "choices": [{ "message": { "role": "assistant", "content": verdict } }] });
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}

#[tokio::test]
async fn the_examples_in_typescript_pass_their_tests_and_have_the_right_types() {
    let folder = tokio::task::spawn_blocking(typescript::examples).await.unwrap();
    succeeds(&folder, "node", &["node_modules/typescript/bin/tsc"]).await;
    let tests = tests_in(&folder, |name| name.ends_with(".test.ts"));
    let tests = tests.iter().map(String::as_str);
    let args: Vec<_> = ["--import", "tsx", "--test"].into_iter().chain(tests).collect();
    let printed = succeeds(&folder, "node", &args).await;
    assert!(printed.contains("fail 0"), "{printed}");
}

#[tokio::test]
async fn the_examples_in_python_pass_their_tests_and_have_the_right_types() {
    let sdk = tokio::task::spawn_blocking(python::sdk).await.unwrap();
    let (folder, python) = (python::examples(), sdk.join(".venv/bin/python").display().to_string());
    for module in [&["ruff", "check"][..], &["ruff", "format", "--check"], &["mypy", "."]] {
        succeeds(&folder, &python, &[&["-m"], module].concat()).await;
    }
    let tests = tests_in(&folder, |name| name.starts_with("test_") && name.ends_with(".py"));
    let tests = tests.iter().map(String::as_str);
    let args: Vec<_> =
        ["-m", "pytest", "--quiet", "-p", "no:cacheprovider"].into_iter().chain(tests).collect();
    let printed = succeeds(&folder, &python, &args).await;
    assert!(printed.contains(" passed in "), "{printed}");
}

async fn redaction_masks_a_tools_result_and_keeps_the_rest(language: Serve) {
    let example = ExampleGateway::start(language, "redaction", json!({}), &[], json!({})).await;
    let agent = example.gateway.http(&token("acme"));
    let body = r#"{"payload":{"tool_name":"crm.get","success":true,"result":{"mail":"ada@example.org","id":9007199254740993}}}"#;
    let answer = agent.post_text(AfterToolResult, body).await;
    assert!(answer.text.contains(r#""result":{"mail":"[email]","id":9007199254740993}"#), "{answer:?}");
    assert_eq!(answer.body["modified"], json!(true), "{answer:?}");
    assert_eq!(answer.body["notices"][0]["code"], json!("REDACTED"), "{answer:?}");
    let answer = agent.call(BeforeResponse, json!({ "content": "Pay with 4111 1111 1111 1111." })).await;
    assert_eq!(answer.body["payload"]["content"], json!("Pay with [card]."), "{answer:?}");
}

async fn tool_allow_list_blocks_the_tools_that_a_tenant_does_not_list(language: Serve) {
    let binding = json!({ "tenant": "acme", "config": { "allowed_tools": ["fs.*"] } });
    let example = ExampleGateway::start(language, "tool-allow-list", json!({}), &[], binding).await;
    assert_eq!(example.tool_call("acme", "fs.read").await.status, 200);
    let blocked = example.tool_call("acme", "shell.exec").await;
    assert_eq!((blocked.status, &blocked.body["code"]), (403, &json!("TOOL_NOT_ALLOWED")), "{blocked:?}");
    assert_eq!(blocked.body["detail"], json!("Agents may not use shell.exec."), "{blocked:?}");
    assert_eq!(example.tool_call("globex", "shell.exec").await.status, 200, "it isn't bound there");
}

async fn quota_blocks_a_tenants_third_call_and_says_when_to_try_again(language: Serve) {
    let binding = json!({ "config": { "calls_per_day": 2 } });
    let example = ExampleGateway::start(language, "quota", json!({}), &["storage:write"], binding).await;
    for _ in 0..2 {
        assert_eq!(example.tool_call("acme", "fs.read").await.status, 200);
    }
    let blocked = example.tool_call("acme", "fs.read").await;
    assert_eq!((blocked.status, &blocked.body["code"]), (429, &json!("QUOTA_EXCEEDED")), "{blocked:?}");
    let seconds: u64 = blocked.header("retry-after").expect("it says when").parse().unwrap();
    assert!((1..=86_400).contains(&seconds), "{blocked:?}");
    assert_eq!(example.tool_call("globex", "fs.read").await.status, 200);
}

async fn llm_judge_blocks_what_the_model_refuses_and_everything_without_the_model(language: Serve) {
    let config = |url: &str| json!({ "url": url, "model": "judge-1", "policy": "No medical advice." });
    let example =
        ExampleGateway::start(language, "llm-judge", config(&start_model().await), &[], json!({})).await;
    let agent = example.gateway.http(&token("acme"));
    let passed = agent.call(BeforeResponse, json!({ "content": "Hello." })).await;
    assert_eq!(passed.status, 200, "{passed:?}");
    let blocked = agent.call(BeforeResponse, json!({ "content": "Take this medicine." })).await;
    assert_eq!(blocked.body["code"], json!("RESPONSE_NOT_ALLOWED"), "{blocked:?}");
    assert_eq!(blocked.body["detail"], json!("The answer breaks the policy."), "{blocked:?}");

    let example =
        ExampleGateway::start(language, "llm-judge", config("http://127.0.0.1:1/v1"), &[], json!({})).await;
    let agent = example.gateway.http(&token("acme"));
    let failed = agent.call(BeforeResponse, json!({ "content": "Hello." })).await;
    assert_eq!((failed.status, &failed.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{failed:?}");
}

async fn audit_logs_who_asked_and_what_was_decided_and_no_payload(language: Serve) {
    let binding = json!({ "mode": "observe" });
    let mut example = ExampleGateway::start(language, "audit", json!({}), &["log", "emit"], binding).await;
    assert_eq!(example.tool_call("acme", "fs.read").await.status, 200);
    let line =
        example.gateway.log().wait_for(|line| line.message() == Some("an agent's call was decided")).await;
    for (name, value) in [("plugin", json!("audit")), ("tenant", json!("acme"))] {
        assert_eq!(line.field(name), Some(&value), "{}", line.text);
    }
    let attributes = line.field("attributes").expect("it has attributes");
    assert_eq!(attributes["decision"], json!("continue"), "{}", line.text);
    assert_eq!(attributes["point"], json!("before_tool_call"), "{}", line.text);
    assert!(attributes["operator"].is_string(), "{}", line.text);
    assert!(!line.text.contains("hush"), "{}", line.text);
    assert_eq!(example.plugin.terminate().await.code(), Some(0));
}
