//! The host services over TLS, to a shipped plugin that is a process of its own.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::HttpAgent,
    ca::{Ca, Pair, PairFiles},
    fake::FakePlugin,
    gateway::{Gateway, binary},
    token::{Token, token},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::support::STORAGE;

/// `hookgate plugin run tenant-quota`, which registers itself over TLS.
fn plugin(folder: &Path, gateway: &Gateway, ca: &Ca, certificate: Option<&PairFiles>) -> Child {
    let address = gateway.log().lines().iter().find_map(|line| line.field("host_addr").cloned());
    let address =
        address.as_ref().and_then(Value::as_str).expect("the line says where the port is").to_owned();
    let mut command = Command::new(binary());
    command
        .args(["plugin", "run", "tenant-quota", "--listen", "http://127.0.0.1:0"])
        .args(["--register", &format!("https://{address}"), "--token-file"])
        .arg(folder.join("token"))
        .env("HOOKGATE_HOST_CA_FILE", ca.file())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if let Some(files) = certificate {
        command.env("HOOKGATE_HOST_CERT_FILE", files.chain()).env("HOOKGATE_HOST_KEY_FILE", files.key());
    }
    command.spawn().expect("it can be started")
}

async fn call(gateway: &Gateway, ca: &Ca, certificate: Option<&Pair>) -> (u16, Value) {
    let agent = HttpAgent::over_tls(gateway.data_addr(), ca.client(certificate)).with_token(&token("acme"));
    let answer = agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "hello" })).await;
    (answer.status, answer.body)
}

/// Calls until the plugin is registered.
async fn first_call(gateway: &Gateway, ca: &Ca, certificate: Option<&Pair>) -> u16 {
    let began = Instant::now();
    loop {
        let (status, _) = call(gateway, ca, certificate).await;
        if status != 503 || began.elapsed() > Duration::from_secs(20) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn start(folder: &TempDir, tls: Value) -> Gateway {
    let configured = FakePlugin::named("tenant-quota").start().await;
    let members = json!({ "endpoint": null, "self_registration": true, "grants": STORAGE });
    let quota = json!({ "config": { "requests_per_minute": 1 } });
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let token = Token::for_operators().scopes("hookgate:plugin").claim("sub", "deployer");
    let token = token.claim("plugins", json!(["tenant-quota"])).mint();
    std::fs::write(folder.path().join("token"), token).expect("the folder is new");
    let setup = Gateway::with().tenant("acme").store(&url, folder.path()).admin();
    let setup = setup.plugin_with(&configured, &members).binding_with("tenant-quota", 10, &quota);
    let setup = setup.set("/egress", json!({ "cidrs": ["127.0.0.0/8"] }));
    setup.set("/server/host_addr", "127.0.0.1:0").set("/server/tls", tls).start().await
}

#[tokio::test]
async fn plugin_registers_itself_and_stores_data_over_tls() {
    let (folder, ca) = (tempfile::tempdir().expect("it can be made"), Ca::new());
    let files = ca.pair(&["127.0.0.1"]).files();
    let gateway = start(&folder, files.members(&json!({}))).await;
    let stranger = plugin(folder.path(), &gateway, &Ca::new(), None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(call(&gateway, &ca, None).await.0, 503, "a plugin that trusts another CA doesn't register");
    drop(stranger);

    let _plugin = plugin(folder.path(), &gateway, &ca, None);
    assert_eq!(first_call(&gateway, &ca, None).await, 200);
    let (status, body) = call(&gateway, &ca, None).await;
    assert_eq!((status, &body["code"]), (429, &json!("QUOTA_EXCEEDED")), "{body}");
}

#[tokio::test]
async fn plugin_shows_its_certificate_where_the_gateway_asks_for_one() {
    let (folder, ca) = (tempfile::tempdir().expect("it can be made"), Ca::new());
    let (files, pair) = (ca.pair(&["127.0.0.1"]).files(), ca.pair(&["plugin"]));
    let gateway = start(&folder, files.members(&json!({ "client_ca_file": ca.file() }))).await;
    let without = plugin(folder.path(), &gateway, &ca, None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        call(&gateway, &ca, Some(&pair)).await.0,
        503,
        "a plugin without certificate doesn't register"
    );
    drop(without);

    let shown = pair.files();
    let _plugin = plugin(folder.path(), &gateway, &ca, Some(&shown));
    assert_eq!(first_call(&gateway, &ca, Some(&pair)).await, 200);
    let (status, body) = call(&gateway, &ca, Some(&pair)).await;
    assert_eq!((status, &body["code"]), (429, &json!("QUOTA_EXCEEDED")), "{body}");
}
