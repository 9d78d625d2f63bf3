//! Tests plugins that can't be reached or don't behave like plugins, with one gateway for one of each:
//! status and log give the same reason, calls fail as their binding says, and none is let through.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    time::Duration,
};

use hookgate_tests::{
    agent::HttpAgent,
    ca::{self, Ca},
    fake::{Act, FakePlugin, WireBehaviour},
    gateway::{Gateway, Line, Setup},
    token::{Token, token},
};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt as _, sink},
    net::{TcpListener, UnixListener},
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::proxy::support::{POINT, RAW};

/// The step's timeout: enough for a plugin that answers.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// By default, a step may take 5 s, and a call 15 s.
const BOUND: Duration = Duration::from_millis(4500);

/// A plugin with one fault.
struct Bad {
    name: &'static str,
    /// The reason of its state.
    reason: &'static str,
    endpoint: String,
    tls: Option<Value>,
    _held: Held,
}

/// Holds an address.
enum Held {
    Nothing,
    Socket { _listener: UnixListener },
    Plugin(FakePlugin),
    Task(JoinHandle<()>),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Task(task) = self {
            task.abort();
        }
    }
}

fn at(name: &'static str, reason: &'static str, endpoint: impl Into<String>, held: Held) -> Bad {
    Bad { name, reason, endpoint: endpoint.into(), tls: None, _held: held }
}

async fn over_tls(name: &'static str, reason: &'static str, server: ServerConfig, ca: &Ca) -> Bad {
    let plugin = FakePlugin::named(name).start_tls_as(server).await;
    let tls = Some(json!({ "ca_file": ca.file() }));
    Bad { tls, ..at(name, reason, plugin.endpoint(), Held::Plugin(plugin)) }
}

/// Accepts connections, and either never reads or closes immediately without a word.
async fn mute(name: &'static str, reason: &'static str, hangs_up: bool) -> Bad {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if hangs_up {
                // Reads to the end, because closing earlier would cause a reset.
                tokio::spawn(async move {
                    let _ = stream.shutdown().await;
                    let _ = tokio::io::copy(&mut stream, &mut sink()).await;
                });
            } else {
                held.push(stream);
            }
        }
    });
    at(name, reason, endpoint, Held::Task(task))
}

async fn all(ca: &Ca, folder: &Path) -> Vec<Bad> {
    let (file, socket) = (folder.join("file"), folder.join("socket"));
    fs::write(&file, "").unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o000)).unwrap();
    let unix = |path: &Path| format!("unix://{}", path.display());
    let server = |pair| ca::server(&pair, None);
    let elsewhere = server(ca.pair(&["elsewhere.example.org"]));
    let ended = server(ca.ended_pair(&["127.0.0.1"]));
    vec![
        at("forbidden", "socket_permission", unix(&socket), Held::Socket { _listener: listener }),
        at("file", "not_a_socket", unix(&file), Held::Nothing),
        at("nameless", "name_unresolved", "http://no-such-name.invalid:1", Held::Nothing),
        at("nameless-set", "name_unresolved", "dns:///no-such-name.invalid:1", Held::Nothing),
        over_tls("elsewhere", "certificate_name", elsewhere, ca).await,
        over_tls("ended", "certificate_expired", ended, ca).await,
        mute("hangs-up", "closed_without_answer", true).await,
        mute("never-reads", "describe_timeout", false).await,
    ]
}

/// Makes the gateway obey file modes, which root doesn't.
fn obeying_modes(setup: Setup, forbidden: &Path) -> Setup {
    match UnixStream::connect(forbidden) {
        Ok(_) => setup.launched_by(&["setpriv", "--bounding-set=-dac_override,-dac_read_search"]),
        Err(_) => setup,
    }
}

/// A plugin with two tenants: `NAME` needs it, `NAME-open` goes on without it.
fn bound(setup: Setup, name: &str) -> Setup {
    let (open, timeout) = (format!("{name}-open"), format!("{}ms", TIMEOUT.as_millis()));
    let skip = json!({ "tenant": open, "name": open, "timeout": timeout, "blocking": false });
    setup
        .tenant(name)
        .tenant(&open)
        .binding_with(name, 1, &json!({ "tenant": name, "timeout": timeout }))
        .binding_with(name, 1, &skip)
}

/// Checks that one call of each tenant fails as its binding says: not let through, and skipped byte for
/// byte.
async fn assert_fails(gateway: &Gateway, name: &str, status: u16, code: &str) {
    let body = format!(r#"{{"payload":{{"tool_name":"fs.read","args":{RAW}}}}}"#);
    let call = async |tenant: &str| {
        let began = Instant::now();
        let answer = gateway.http(&token(tenant)).post_text(POINT, body.clone()).await;
        assert!(began.elapsed() < BOUND, "{name}: {:?}", began.elapsed());
        answer
    };
    let answer = call(name).await;
    assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{name}: {answer:?}");
    assert_eq!(answer.header("hookgate-decision"), None, "{answer:?}");
    let detail = answer.body["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with(&format!("Plugin '{name}' ")), "{answer:?}");
    let answer = call(&format!("{name}-open")).await;
    assert_eq!((answer.status, answer.header("hookgate-decision")), (200, Some("continue")), "{answer:?}");
    assert_eq!(answer.body["steps"][0]["outcome"], json!("failed_open"), "{answer:?}");
    assert_eq!(answer.body["notices"][0]["code"], json!(code), "{answer:?}");
    assert!(
        answer.text.contains(&format!(r#""payload":{{"tool_name":"fs.read","args":{RAW}}}"#)),
        "{answer:?}"
    );
}

fn operator(gateway: &Gateway) -> HttpAgent {
    gateway.admin(&Token::for_operators().mint())
}

async fn status(gateway: &Gateway, name: &str) -> Value {
    operator(gateway).get(&format!("/admin/v1/plugins/{name}")).await.unwrap().body
}

#[tokio::test]
async fn each_bad_endpoint_has_its_reason_and_lets_no_call_through() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    let bad = all(&ca, folder.path()).await;
    let entry = |bad: &Bad| {
        let mut entry = json!({ "name": bad.name, "endpoint": bad.endpoint, "required": false });
        // Each call must show what the endpoint does, not its breaker.
        entry["breaker"] = json!({ "failures": 1_000_000 });
        if let Some(tls) = &bad.tls {
            entry["tls"] = tls.clone();
        }
        entry
    };
    let setup = Gateway::with().admin().set("/plugins", bad.iter().map(entry).collect::<Vec<_>>());
    let setup = bad.iter().fold(setup, |setup, bad| bound(setup, bad.name));
    let gateway = obeying_modes(setup, &folder.path().join("socket")).start().await;
    for bad in &bad {
        let of_it = |line: &Line| {
            line.field("event") == Some(&json!("plugin.health_failed"))
                && line.field("plugin") == Some(&json!(bad.name))
        };
        let line = gateway.log().wait_for(of_it).await;
        assert_eq!(line.field("reason"), Some(&json!(bad.reason)), "{line:?}");
        let plugin = status(&gateway, bad.name).await;
        assert_eq!(
            (&plugin["state"], &plugin["reason"], &plugin["manifest"]),
            (&json!("unhealthy"), &json!(bad.reason), &Value::Null),
            "{plugin:#}"
        );
        let said = (plugin["detail"].as_str(), line.message());
        assert!(said.0.zip(said.1).is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()), "{said:?}");
        for endpoint in plugin["endpoints"].as_array().unwrap() {
            assert_eq!((&endpoint["state"], &endpoint["reason"]), (&plugin["state"], &plugin["reason"]));
        }
        assert_fails(&gateway, bad.name, 503, "PLUGIN_UNAVAILABLE").await;
        if let Held::Plugin(plugin) = &bad._held {
            assert_eq!((plugin.counts().calls, plugin.initialized().len()), (0, 0), "{}", bad.name);
        }
    }
}

/// Polls until the endpoint's breaker is as wanted, and this many tenant breakers are open.
async fn breakers_are(gateway: &Gateway, name: &str, wanted: &str, of_tenants: u64) {
    let began = Instant::now();
    loop {
        let plugin = status(gateway, name).await;
        let endpoint = &plugin["endpoints"][0];
        if endpoint["breaker"] == wanted && endpoint["tenant_breakers_open"] == json!(of_tenants) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "never {wanted}: {plugin:#}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_plugin_that_leaves_its_calls_unanswered_opens_its_breaker_and_closes_it_once_it_works() {
    let cases = [
        // A lost connection counts for both tenants, a call without an answer only for its own.
        ("hangs-up", Act::pass().sent(WireBehaviour::Disconnect), 2, 503, "PLUGIN_UNAVAILABLE"),
        ("never-answers", Act::hang(), 1, 504, "PLUGIN_TIMEOUT"),
    ];
    let mut setup = Gateway::with().admin();
    let mut plugins = Vec::new();
    for (name, act, failures, ..) in &cases {
        let plugin = FakePlugin::named(name).at(POINT, act.clone()).start().await;
        let breaker = json!({ "breaker": { "failures": failures, "open": "60s", "max_open": "60s" } });
        setup = bound(setup.plugin_with(&plugin, &breaker), name);
        plugins.push(plugin);
    }
    let gateway = setup.start().await;
    for ((name, _, _, code, error), plugin) in cases.iter().zip(&mut plugins) {
        let ready = status(&gateway, name).await;
        assert_eq!((&ready["state"], &ready["endpoints"][0]["breaker"]), (&json!("ready"), &json!("closed")));
        assert_fails(&gateway, name, *code, error).await;
        let is_open = |line: &Line| {
            line.field("plugin") == Some(&json!(name)) && line.field("reason") == Some(&json!("breaker_open"))
        };
        gateway.log().wait_for(is_open).await;
        let calls = plugin.counts().calls;
        assert_eq!(calls, 2, "each call was tried once");
        plugin.set(POINT, Act::pass());
        if *name == "never-answers" {
            breakers_are(&gateway, name, "closed", 2).await;
            assert_fails(&gateway, name, 503, "PLUGIN_UNAVAILABLE").await;
            assert_eq!(plugin.counts().calls, calls, "it is spared");
            // A new connection lets the next call try, long before the minute is over.
            plugin.stop().await;
            plugin.start().await;
        }
        // The new connection lets the next call of any tenant try.
        let breaker = if *name == "hangs-up" { "half_open" } else { "closed" };
        breakers_are(&gateway, name, breaker, 0).await;
        // Immediate failures say nothing, so the first call that passes is the trial.
        let began = Instant::now();
        let answer = loop {
            let body = r#"{"payload":{"tool_name":"t","args":{}}}"#;
            let answer = gateway.http(&token(name)).post_text(POINT, body).await;
            if answer.status == 200 || began.elapsed() > Duration::from_secs(10) {
                break answer;
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(
            (answer.status, answer.header("hookgate-decision")),
            (200, Some("continue")),
            "{answer:?}"
        );
        breakers_are(&gateway, name, "closed", 0).await;
        assert_eq!(status(&gateway, name).await["state"], json!("ready"));
    }
}
