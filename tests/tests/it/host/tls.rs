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
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

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
        .stderr(Stdio::piped())
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

/// Calls until the answer has this status.
async fn call_until(status: u16, gateway: &Gateway, ca: &Ca, certificate: Option<&Pair>) -> Value {
    let began = Instant::now();
    loop {
        let (answered, body) = call(gateway, ca, certificate).await;
        if answered == status {
            return body;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{answered} is not {status}: {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the plugin's log has a line with this text.
async fn logged(plugin: &mut Child, text: &str) {
    let lines = BufReader::new(plugin.stderr.take().expect("it is piped")).lines();
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        let mut lines = lines;
        while let Some(line) = lines.next_line().await.expect("it is text") {
            if line.contains(text) {
                return true;
            }
        }
        false
    });
    assert!(found.await.expect("it is logged in time"), "{text} is not in the log");
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
    let other = Ca::new();
    let mut stranger = plugin(folder.path(), &gateway, &other, None);
    logged(&mut stranger, "not registered; trying again").await;
    assert_eq!(call(&gateway, &ca, None).await.0, 503, "a plugin that trusts another CA doesn't register");
    drop(stranger);

    let _plugin = plugin(folder.path(), &gateway, &ca, None);
    call_until(200, &gateway, &ca, None).await;
    assert_eq!(call_until(429, &gateway, &ca, None).await["code"], "QUOTA_EXCEEDED");
}

#[tokio::test]
async fn plugin_shows_its_certificate_where_the_gateway_asks_for_one() {
    let (folder, ca) = (tempfile::tempdir().expect("it can be made"), Ca::new());
    let (files, pair) = (ca.pair(&["127.0.0.1"]).files(), ca.pair(&["plugin"]));
    let gateway = start(&folder, files.members(&json!({ "client_ca_file": ca.file() }))).await;
    let mut without = plugin(folder.path(), &gateway, &ca, None);
    logged(&mut without, "not registered; trying again").await;
    assert_eq!(
        call(&gateway, &ca, Some(&pair)).await.0,
        503,
        "a plugin without certificate doesn't register"
    );
    drop(without);

    let shown = pair.files();
    let _plugin = plugin(folder.path(), &gateway, &ca, Some(&shown));
    call_until(200, &gateway, &ca, Some(&pair)).await;
    assert_eq!(call_until(429, &gateway, &ca, Some(&pair)).await["code"], "QUOTA_EXCEEDED");
}
