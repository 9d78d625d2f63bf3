//! Tests the chart's pod with processes instead of containers: what the chart renders from five lines of
//! values is started unchanged, and an agent's call passes one of Hookgate's plugins and one in Python.

use std::{path::Path, process::Stdio};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::HttpAnswer,
    ca::Ca,
    gateway::{Gateway, Setup, binary},
    repository,
    token::{AUDIENCE, ISSUER, SECRET, token},
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::deploy::chart_support::{Pod, Rendered, list};

/// An image's entry point, before the arguments.
async fn entry_point(image: &str) -> Vec<String> {
    match image {
        "hookgate:0.1.0" => vec![binary().display().to_string()],
        "hookgate-tenant-auth:0.1.0" => {
            let words = ["plugin", "run", "tenant-auth", "--listen"].map(str::to_owned);
            [vec![binary().display().to_string()], words.to_vec()].concat()
        }
        "hookgate-python-raw:1.0.0" => {
            let example = repository::root().join("examples/python-raw");
            let generated = Command::new(example.join("generate.sh")).output().await.unwrap();
            assert!(generated.status.success(), "{generated:?}");
            [".venv/bin/python", "plugin.py"].map(|file| example.join(file).display().to_string()).to_vec()
        }
        other => panic!("no such image: {other}"),
    }
}

fn start(container: &Value, entry_point: &[String], pod: &Pod) -> Child {
    assert_eq!(container["restartPolicy"], "Always", "it is a sidecar: {container}");
    let mut command = Command::new(&entry_point[0]);
    command.args(&entry_point[1..]).args(Rendered::args(container).into_iter().map(|arg| pod.moved(arg)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("it can be run")
}

/// The gateway's container: its file and variables, with free ports.
fn container(pod: &Pod) -> Setup {
    let mut setup = Setup::file(&pod.text);
    for (name, value) in &pod.environment {
        setup = setup.environment(name, &pod.moved(value));
    }
    for port in ["DATA", "OPS"] {
        setup = setup.environment(&format!("HOOKGATE__SERVER__{port}_ADDR"), "127.0.0.1:0");
    }
    setup
}

async fn tool(gateway: &Gateway, name: &str) -> HttpAnswer {
    let payload = json!({ "tool_name": name, "args": {} });
    gateway.http(&token("acme")).call(ExtensionPoint::BeforeToolCall, payload).await
}

/// Values with two plugins as containers, each with a name, an image and a binding.
fn values() -> Value {
    json!({
        "config": {
            "auth": { "issuers": [{
                "issuer": ISSUER, "audience": AUDIENCE, "keys": [{ "alg": "HS256", "secret": "${HOOKGATE_JWT_SECRET}" }],
            }] },
            "tenants": { "list": [{ "id": "acme", "config": { "tenant-auth": { "allowed_tools": ["fs.*"] } } }] },
        },
        "secrets": { "create": { "HOOKGATE_JWT_SECRET": SECRET } },
        "drain": { "graceSeconds": 0 },
        "plugins": [
            { "name": "tenant-auth", "image": "hookgate-tenant-auth:0.1.0", "bindings": [{ "tenant": "*", "priority": 100 }] },
            {
                "name": "python-raw", "image": "hookgate-python-raw:1.0.0", "bindings": [{ "tenant": "acme", "priority": 200 }],
                "config": { "refused_tools": ["fs.delete"] },
            },
        ],
    })
}

#[tokio::test]
async fn the_rendered_pod_serves_with_its_sidecars_and_answers_its_probes() {
    let rendered = Rendered::with(&values());
    let pod = Pod::of(&rendered, &Ca::new());
    let containers = list(&rendered.template()["spec"]["initContainers"]);
    let mut images = Vec::new();
    for container in containers {
        images.push(entry_point(container["image"].as_str().unwrap()).await);
    }
    let gateway = container(&pod).start_unready().await;
    let probe = |name: &str| {
        let asked = &rendered.gateway()[name]["httpGet"];
        assert_eq!(asked["port"], "ops", "{name}");
        asked["path"].as_str().unwrap().to_owned()
    };
    // Before its plugins are up, it is alive but not ready.
    for (name, status) in [("startupProbe", 200), ("livenessProbe", 200), ("readinessProbe", 503)] {
        assert_eq!(gateway.ops().get(&probe(name)).await.unwrap().status, status, "{name}");
    }

    let started = containers.iter().zip(&images);
    let mut sidecars: Vec<_> = started.map(|(container, image)| start(container, image, &pod)).collect();
    assert_eq!(sidecars.len(), 2);
    gateway.wait_until_ready().await;
    assert_eq!(gateway.ops().get(&probe("readinessProbe")).await.unwrap().status, 200);
    for (name, status, plugin) in [
        ("fs.read", 200, Value::Null),
        ("web.get", 403, json!("tenant-auth")),
        ("fs.delete", 403, json!("python-raw")),
    ] {
        let answer = tool(&gateway, name).await;
        assert_eq!((answer.status, &answer.body["block"]["plugin"]), (status, &plugin), "{name}: {answer:?}");
    }

    sidecars[0].kill().await.unwrap();
    let answer = tool(&gateway, "fs.read").await;
    assert_eq!(answer.status, 503, "a plugin that is gone lets nothing through: {answer:?}");
    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
}

/// Until its pod is replaced, a gateway may already read the next pods' file (docs/operations.md).
#[tokio::test]
async fn a_pod_takes_what_it_can_do_and_keeps_what_it_had_where_it_lacks_a_sidecar() {
    let mut values = values();
    values["plugins"] = json!([{
        "name": "content-policy", "builtin": "content-policy", "config": { "max_input_chars": 10 },
        "bindings": [{ "tenant": "*", "priority": 10 }],
    }]);
    values["config"]["tenants"] = json!({ "unknown": "accept" });
    values["config"]["startup"] = json!({ "wait": "1s" });
    let rendered = Rendered::with(&values);
    let pod = Pod::of(&rendered, &Ca::new());
    let gateway = container(&pod).start().await;
    let status = async |text: &str| {
        let answer = gateway
            .http(&token("acme"))
            .call(ExtensionPoint::BeforeLlmRequest, json!({ "text": text }))
            .await;
        answer.status
    };
    assert_eq!((status("short").await, status("longer than ten").await), (200, 413));

    values["plugins"][0]["config"]["max_input_chars"] = json!(20);
    gateway.reload(&Setup::file(&pod.moved(Rendered::with(&values).text())));
    gateway.wait_for_revision(2).await;
    assert_eq!(status("longer than ten").await, 200);

    values["plugins"][0]["config"]["max_input_chars"] = json!(5);
    let guard = json!({ "name": "guard", "image": "example/guard:1.0.0", "bindings": [{ "tenant": "*", "priority": 20 }] });
    values["plugins"].as_array_mut().unwrap().push(guard);
    gateway.reload(&Setup::file(&pod.moved(Rendered::with(&values).text())));
    gateway.log().wait_for(|line| line.field("event").is_some_and(|event| event == "config.rejected")).await;
    assert_eq!(status("longer than ten").await, 200, "nothing of it holds");
}

/// `hostServices.socket` is where a sidecar finds its storage.
#[tokio::test]
async fn a_sidecar_keeps_its_data_in_the_gateways_database() {
    let mut values = values();
    values["config"]["tenants"]["list"][0]["config"] = json!({ "tenant-quota": { "daily_tokens": 10 } });
    values["plugins"] = json!([{
        "name": "tenant-quota", "image": "hookgate:0.1.0", "grants": ["storage:read", "storage:write"],
        "args": ["plugin", "run", "tenant-quota", "--listen", "unix:///run/plugins/tenant-quota/plugin.sock"],
        "bindings": [{ "tenant": "*", "priority": 110 }],
    }]);
    values["replicas"] = json!(1);
    values["store"] = json!({ "sqlite": { "enabled": true } });
    values["hostServices"] = json!({ "socket": true });
    let rendered = Rendered::with(&values);
    let pod = Pod::of(&rendered, &Ca::new());
    let [sidecar] = list(&rendered.template()["spec"]["initContainers"]) else { panic!("one sidecar") };
    let _sidecar = start(sidecar, &entry_point("hookgate:0.1.0").await, &pod);
    let gateway = container(&pod).start().await;
    let call =
        async |point: ExtensionPoint, payload: Value| gateway.http(&token("acme")).call(point, payload).await;
    let answer = json!({ "content": "ho", "token_usage": { "input": 10, "output": 1 } });
    assert_eq!(call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "hi" })).await.status, 200);
    assert_eq!(call(ExtensionPoint::BeforeResponse, answer).await.status, 200);
    let refused = call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "hi" })).await;
    assert_eq!((refused.status, &refused.body["code"]), (429, &json!("QUOTA_EXCEEDED")), "{refused:?}");
}

/// The Deployment shares a plugin's volume only between that plugin and the gateway.
#[test]
fn no_sidecar_sees_the_sockets_of_another() {
    let rendered = Rendered::with(&values());
    let mounted = |container: &Value| -> Vec<String> {
        let mounts = list(&container["volumeMounts"]).iter();
        mounts.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect()
    };
    for container in list(&rendered.template()["spec"]["initContainers"]) {
        let [argument] = Rendered::args(container)[..] else { panic!("one argument: {container}") };
        let folder =
            Path::new(argument.strip_prefix("unix://").unwrap()).parent().unwrap().display().to_string();
        assert_eq!(mounted(container), [folder.as_str()]);
        assert!(mounted(rendered.gateway()).contains(&folder));
    }
}
