//! Tests plugins over TLS: their identity, the gateway's identity, and the cause named by each failure. No
//! failure lets a call through.

use std::{fs, sync::Arc};

use hookgate_tests::{
    ca::{self, Ca},
    fake::FakePlugin,
    gateway::{Gateway, Line, Setup},
    metrics::Scrape,
    token::token,
};
use serde_json::{Value, json};
use tokio::net::UnixListener;

use crate::edge::support::{POINT, payload};

const LOCAL: &str = "127.0.0.1";
const ID: &str = "spiffe://example.org/guard";

fn health_fail(plugin: &str) -> impl Fn(&Line) -> bool {
    move |line| {
        line.field("event") == Some(&json!("plugin.health_failed"))
            && line.field("plugin") == Some(&json!(plugin))
    }
}

fn required(plugin: &FakePlugin, tls: &Value) -> Setup {
    Gateway::with().tenant("acme").plugin_with(plugin, &json!({ "tls": tls })).binding(plugin.name(), 1)
}

/// Starts a gateway, and makes one call that the plugin answers.
async fn serves(setup: Setup) -> Gateway {
    let gateway = setup.start().await;
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    gateway
}

#[tokio::test]
async fn a_plugin_is_known_by_its_host_by_another_name_or_by_its_id() {
    let ca = Ca::new();
    let trusted = json!({ "ca_file": ca.file() });
    let named = json!({ "ca_file": ca.file(), "server_name": "guard.example.org" });
    let identified = json!({ "ca_file": ca.file(), "spiffe_id": ID });
    for (names, tls) in [
        (&[LOCAL][..], trusted),
        (&["guard.example.org"], named),
        (&[ID], identified.clone()),
        (&[ID, "elsewhere.example.org"], identified),
    ] {
        let config = ca::server(&ca.pair(names), None);
        let guard = FakePlugin::named("guard").start_tls_as(config).await;
        let gateway = serves(required(&guard, &tls)).await;
        assert_eq!((guard.counts().calls, guard.peers()), (1, vec![None]), "{names:?}");
        let labels = [("hookgate_certificate", "server_ca"), ("hookgate_plugin_name", "guard")];
        let left = Scrape::of(&gateway).await.sum("hookgate_certificate_expiry_seconds", &labels);
        assert!(left > 1e9, "{left}");
    }
}

#[tokio::test]
async fn a_plugin_that_asks_for_a_certificate_is_shown_ours() {
    let (ca, ours) = (Ca::new(), Ca::new());
    let guard = FakePlugin::named("guard").start_tls_as(ca::server(&ca.pair(&[LOCAL]), Some(&ours))).await;
    let pair = ours.pair(&["gateway"]);
    let files = pair.files();
    let _gateway = serves(required(&guard, &files.members(&json!({ "ca_file": ca.file() })))).await;
    assert_eq!(guard.peers(), [Some(pair.certificate())]);
}

/// A plugin that can't be reached; its name says why.
struct Failing {
    cause: &'static str,
    endpoint: String,
    tls: Option<Value>,
    /// Holds the address.
    _held: Option<FakePlugin>,
}

/// A plugin that serves with `server`, to which TLS fails with `cause`.
async fn over_tls(cause: &'static str, server: rustls::ServerConfig, tls: Value) -> Failing {
    let plugin = FakePlugin::named("unreached").start_tls_as(server).await;
    Failing { cause, endpoint: plugin.endpoint(), tls: Some(tls), _held: Some(plugin) }
}

fn at(cause: &'static str, endpoint: impl Into<String>) -> Failing {
    Failing { cause, endpoint: endpoint.into(), tls: None, _held: None }
}

async fn failures(ca: &Ca, folder: &std::path::Path) -> Vec<Failing> {
    let trusted = || json!({ "ca_file": ca.file() });
    let identified = || json!({ "ca_file": ca.file(), "spiffe_id": ID });
    let good = || ca.pair(&[LOCAL]);
    let server = |pair| ca::server(&pair, None);
    let mut without_h2 = server(good());
    without_h2.alpn_protocols = vec![b"http/1.1".to_vec()];
    let plain = FakePlugin::named("unreached").start().await;
    let plain_endpoint = plain.endpoint().replace("http://", "https://");
    fs::write(folder.join("file"), "").unwrap();
    vec![
        over_tls("certificate_name", server(ca.pair(&["guard.example.org"])), trusted()).await,
        over_tls("certificate_name", server(ca.pair(&[ID])), trusted()).await,
        over_tls("certificate_expired", server(ca.ended_pair(&[LOCAL])), trusted()).await,
        over_tls("certificate_expired", server(ca.ended_pair(&[ID])), identified()).await,
        over_tls("certificate_untrusted", server(Ca::new().pair(&[LOCAL])), trusted()).await,
        over_tls("certificate_untrusted", server(Ca::new().pair(&[ID])), identified()).await,
        // No `tls`: the machine's CAs don't include the test's.
        Failing { tls: None, ..over_tls("certificate_untrusted", server(good()), trusted()).await },
        over_tls("certificate_identity", server(good()), identified()).await,
        over_tls("certificate_identity", server(ca.pair(&["spiffe://example.org/guard2"])), identified())
            .await,
        over_tls("certificate_identity", server(ca.pair(&[ID, "spiffe://example.org/b"])), identified())
            .await,
        over_tls("client_certificate_refused", ca::server(&good(), Some(ca)), trusted()).await,
        over_tls("tls_failed", without_h2, trusted()).await,
        Failing { cause: "tls_failed", endpoint: plain_endpoint, tls: Some(trusted()), _held: Some(plain) },
        // The system's resolver reads the number as 169.254.169.254.
        at("egress_denied", "http://2852039166:80"),
        at("name_unresolved", "http://guard.invalid:80"),
        at("not_a_socket", format!("unix://{}", folder.join("file").display())),
        at("no_socket", format!("unix://{}", folder.join("nothing").display())),
    ]
}

#[tokio::test]
async fn every_failure_has_its_cause_and_fails_as_its_binding_says() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    let failures = failures(&ca, folder.path()).await;
    let name = |index: usize| format!("p{index}");
    let plugins = failures.iter().enumerate().map(|(index, failing)| {
        let mut plugin = json!({ "name": name(index), "endpoint": failing.endpoint, "required": false });
        // All connect at once and need name lookups, so none may fail for lack of time.
        plugin["limits"] = json!({ "connect": "30s" });
        if let Some(tls) = &failing.tls {
            plugin["tls"] = tls.clone();
        }
        plugin
    });
    let plugins = plugins.collect::<Vec<_>>();
    // This test's machine trusts one CA, which issued none of the plugins' certificates.
    let stranger = Ca::new();
    let machine = stranger.file().display().to_string();
    let mut setup = Gateway::with().set("/plugins", plugins).environment("SSL_CERT_FILE", &machine);
    for index in 0..failures.len() {
        let (closed, open) = (format!("closed{index}"), format!("open{index}"));
        let skip = json!({ "tenant": open, "name": open, "blocking": false });
        setup = setup
            .tenant(&closed)
            .tenant(&open)
            .binding_with(&name(index), 1, &json!({ "tenant": closed }))
            .binding_with(&name(index), 1, &skip);
    }
    let gateway = Arc::new(setup.start().await);
    for (index, failing) in failures.iter().enumerate() {
        let line = gateway.log().wait_for(health_fail(&name(index))).await;
        assert_eq!(line.field("reason"), Some(&json!(failing.cause)), "{}: {line:?}", failing.endpoint);
        let answer = gateway.http(&token(&format!("closed{index}"))).call(POINT, payload()).await;
        assert_eq!((answer.status, &answer.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{answer:?}");
        assert!(answer.header("hookgate-decision").is_none(), "{answer:?}");
        let answer = gateway.http(&token(&format!("open{index}"))).call(POINT, payload()).await;
        assert_eq!(answer.body["steps"][0]["outcome"], json!("failed_open"), "{answer:?}");
        if let Some(plugin) = &failing._held {
            assert_eq!(plugin.counts().calls, 0, "{}", failing.cause);
        }
    }
}

#[tokio::test]
async fn a_server_with_another_identity_gets_no_call_for_the_plugin() {
    let ca = Ca::new();
    let config = ca::server(&ca.pair(&[ID]), None);
    let mut guard = FakePlugin::named("guard").start_tls_as(config).await;
    let gateway = serves(required(&guard, &json!({ "ca_file": ca.file(), "spiffe_id": ID }))).await;
    guard.stop().await;
    guard.set_tls(ca::server(&ca.pair(&["spiffe://example.org/other"]), None));
    guard.start().await;
    let is_other = |line: &Line| line.field("reason") == Some(&json!("certificate_identity"));
    let line = gateway.log().wait_for(|line| health_fail("guard")(line) && is_other(line)).await;
    assert!(line.text.contains("tls.spiffe_id"), "it says what to mend: {line:?}");
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{answer:?}");
    assert_eq!((guard.counts().calls, guard.initialized().len()), (1, 1), "nor the configuration");
}

#[tokio::test]
async fn a_configuration_with_references_travels_over_tls() {
    let ca = Ca::new();
    let guard = FakePlugin::named("guard").start_tls(&ca).await;
    let members = json!({ "config": { "key": "${GUARD_KEY}" } });
    let setup = Gateway::with().tenant("acme").plugin_with(&guard, &members).binding("guard", 1);
    let _gateway = serves(setup.environment("GUARD_KEY", "s3cr3t")).await;
    let config: Value = serde_json::from_slice(&guard.initialized()[0].config).unwrap();
    assert_eq!(config, json!({ "key": "s3cr3t" }));
}

/// Root may write to every socket, so the cause itself is tested in a unit test beside the code. Here, the
/// path is a socket where nobody listens.
#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_told_from_a_path_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let plugin =
        json!({ "name": "guard", "endpoint": format!("unix://{}", path.display()), "required": false });
    let gateway =
        Gateway::with().tenant("acme").set("/plugins", vec![plugin]).binding("guard", 1).start().await;
    let line = gateway.log().wait_for(health_fail("guard")).await;
    assert_eq!(line.field("reason"), Some(&json!("connection_refused")), "{line:?}");
}
